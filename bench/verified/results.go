package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// A result is one result of weir verify --json.
type result struct {
	Clause, Limiter, Verdict, Detail string
	Exchange                         *struct{ Request, Response, At string }
}

// A report is the part of the output of weir verify --json that is used here.
type report struct {
	Sent, Planned int
	Error         string
	Results       []result
	Clauses       []struct{ ID, Says string }
}

// verify runs weir verify. Broken clauses are no error.
func (w world) verify(ctx context.Context, url string) (r report, err error) {
	cmd := exec.CommandContext(ctx, w.weir, "verify", url, "--policy", filepath.Join(w.dir, "policy.yaml"), "--real", "--json")
	cmd.Stderr = os.Stderr
	out, ran := cmd.Output()
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&r); err != nil {
		return r, fmt.Errorf("weir verify printed no report: %w, %w", err, ran)
	}
	if len(r.Results) == 0 {
		return r, fmt.Errorf("weir verify found nothing: %s", r.Error)
	}
	return r, nil
}

// A verified is a peer with its report.
type verified struct {
	peer
	version string
	report
}

// results are the reports of all peers.
type results struct {
	machine string
	of      []verified
}

func (s *results) add(p peer, version string, r report) { s.of = append(s.of, verified{p, version, r}) }

var marks = map[string]string{"kept": "✓", "broken": "✗", "untested": "–"}

// mark returns a clause's verdict in the table: the worst if there are several.
func (v verified) mark(clause string) string {
	worst := ""
	for _, verdict := range []string{"untested", "kept", "broken"} {
		for _, x := range v.Results {
			if x.Clause == clause && x.Verdict == verdict {
				worst = verdict
			}
		}
	}
	return marks[worst]
}

// markdown returns the table with the observations below it.
func (s results) markdown() string {
	var b strings.Builder
	head := []string{"clause"}
	versions, counts := []string{"version"}, []string{"requests"}
	for _, v := range s.of {
		head = append(head, v.name)
		versions = append(versions, v.version)
		counts = append(counts, fmt.Sprint(v.Sent))
	}
	rows := [][]string{versions, counts}
	for _, c := range s.of[0].Clauses {
		row := []string{"`" + c.ID + "`"}
		for _, v := range s.of {
			row = append(row, v.mark(c.ID))
		}
		if slices.ContainsFunc(row[1:], func(mark string) bool { return mark == "✓" || mark == "✗" }) {
			rows = append(rows, row)
		}
	}
	fmt.Fprintf(&b, "%s.\n\n%s", s.machine, page.Table(head, rows))
	common := s.common()
	if len(common) > 0 {
		fmt.Fprintf(&b, "\nNot testable of any: %s.\n", strings.Join(common, "; "))
	}
	for _, v := range s.of {
		v.write(&b, s)
	}
	return b.String()
}

// common returns the clauses that cannot be tested with any peer, each with the reason.
func (s results) common() (all []string) {
	for _, x := range s.of[0].Results {
		if s.everywhere(x) {
			all = append(all, fmt.Sprintf("`%s`, since %s", x.Clause, quoted(x.Detail)))
		}
	}
	return all
}

// everywhere reports whether a clause cannot be tested with any peer, for the same reason.
func (s results) everywhere(x result) bool {
	for _, v := range s.of {
		if !slices.ContainsFunc(v.Results, func(y result) bool {
			return y.Verdict == "untested" && y.Clause == x.Clause && y.Detail == x.Detail
		}) {
			return false
		}
	}
	return true
}

// write writes the observations of a peer, and why the rest is untested.
func (v verified) write(b *strings.Builder, all results) {
	fmt.Fprintf(b, "\n%s\n\n", strings.TrimSpace(fmt.Sprintf("**%s** counts %s. %s", v.name, v.promise, v.reading)))
	var gaps []string
	why := map[string][]string{}
	for _, x := range v.Results {
		switch {
		case x.Verdict == "broken":
			fmt.Fprintf(b, "- ✗ `%s`: %s\n", x.Clause, quoted(x.Detail))
		case x.Verdict == "untested" && !all.everywhere(x):
			if why[x.Detail] == nil {
				gaps = append(gaps, x.Detail)
			}
			why[x.Detail] = append(why[x.Detail], "`"+x.Clause+"`")
		}
	}
	if !slices.ContainsFunc(v.Results, func(x result) bool { return x.Verdict == "broken" }) {
		b.WriteString("- Nothing is broken.\n")
	}
	for _, gap := range gaps {
		fmt.Fprintf(b, "- – %s: %s\n", strings.Join(why[gap], ", "), quoted(gap))
	}
}

// quoted escapes a text of a report for Markdown.
func quoted(s string) string {
	return strings.NewReplacer("<", "&lt;", "|", `\|`, "*", `\*`, "_", `\_`, "\n", " ").Replace(s)
}
