// Package report prints the plan of a verification and what it found: as text for people, and as
// JSON. Text from a server is escaped, so a terminal does not act on it.
package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/weirlimit/weir/internal/verify"
)

// Width is how many columns text uses at most.
const Width = 80

// A Tally counts verdicts.
type Tally struct{ Kept, Broken, Untested int }

// TallyOf counts the verdicts of a report.
func TallyOf(r *verify.Report) (t Tally) {
	for _, x := range r.Results {
		switch x.Verdict {
		case verify.Kept:
			t.Kept++
		case verify.Broken:
			t.Broken++
		default:
			t.Untested++
		}
	}
	return t
}

func (t Tally) String() string {
	return fmt.Sprintf("%d kept, %d broken, %d not testable", t.Kept, t.Broken, t.Untested)
}

// Missed counts by reason the clauses that apply to their limiter and could not be tested:
// "2 needs-more, 1 shared". It returns "" if there are none.
func Missed(r *verify.Report) string {
	counts := map[verify.Reason]int{}
	for _, x := range r.Results {
		if x.Verdict == verify.Untested && !x.Inherent {
			counts[x.Reason]++
		}
	}
	var parts []string
	for _, reason := range []verify.Reason{verify.NeedsInput, verify.NeedsMore, verify.Unobservable, verify.Shared} {
		if n := counts[reason]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, reason))
		}
	}
	return strings.Join(parts, ", ")
}

// A Document is a report as JSON.
type Document struct {
	*verify.Report
	Kept     int      `json:"kept"`
	Broken   int      `json:"broken"`
	Untested int      `json:"untested"`
	Done     bool     `json:"done"`            // a clause is kept, and none is broken
	Error    string   `json:"error,omitempty"` // why not
	Clauses  []Clause `json:"clauses"`         // what the results name
}

// A Clause is a clause with its text.
type Clause struct {
	ID     string `json:"id"`
	Says   string `json:"says"`
	Source string `json:"source"`
}

// NewDocument returns the document of a report. outcome is what the verification ended with; nil
// means that it is done.
func NewDocument(r *verify.Report, outcome error) Document {
	if r.Results == nil {
		r.Results = []verify.Result{}
	}
	t := TallyOf(r)
	d := Document{Report: r, Kept: t.Kept, Broken: t.Broken, Untested: t.Untested, Done: outcome == nil}
	if outcome != nil {
		d.Error = outcome.Error()
	}
	for _, c := range verify.Clauses {
		d.Clauses = append(d.Clauses, Clause{c.ID, c.Says, c.Source})
	}
	return d
}

// PrintPlan prints what will be sent, before it is sent. to is where.
func PrintPlan(w io.Writer, to string, plan *verify.Plan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "the plan for %s:\n", to)
	for _, line := range plan.Lines {
		for i, part := range wrap(line, Width-4) {
			indent := "  "
			if i > 0 {
				indent = "    "
			}
			b.WriteString(indent + part + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
