package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/accesslog"
)

// A file name cannot write control sequences to the terminal.
func TestFileNamesAreEscapedOnTheTerminal(t *testing.T) {
	const name = "a\x1b[2J\u202eb"
	dir := t.TempDir()
	t.Chdir(dir)
	for _, file := range []struct{ name, text string }{
		{name + ".log", later(0, 5)}, {name + ".txt", "notes"}, {name + ".bad", "oops\n"}, {name + ".yaml", "limiters:\n  - name: all\n    routes: [/*]\n    windows: [5 per minute by ip]\n"},
		{name + ".wrong", "limiters: 5\n"},
	} {
		t.Run(file.name, func(t *testing.T) {
			if err := os.WriteFile(file.name, []byte(file.text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, args := range [][]string{
		{name + ".log", "--html", name + ".txt"},
		{name + ".log", "--html", name + "/page.html"},
		{name + ".log", "--policy", name + ".wrong"},
		{name + ".log", "--policy", name + ".none"},
		{name + ".log", "--policy", name + ".yaml", "--fail-if", name + ".refused > 0"},
		{name + ".log", "--policy", name + ".yaml", "--html", "page.html", "--fail-if", "refused > 9"},
		{name + ".log", "--key", "session=" + name},
		{name + ".log", "--format", name},
		{name + ".bad"}, {name + ".bad", "--format", "combined"}, {name + ".none"}, {name + ".log", name + ".log"},
	} {
		var out, errs bytes.Buffer
		run(append([]string{"simulate"}, args...), nil, strings.NewReader(""), &out, &errs)
		if printed := out.String() + errs.String(); strings.ContainsAny(printed, "\x1b\u202e") || printed == "" {
			t.Errorf("weir simulate %q prints %q", args, printed)
		}
	}
	page, err := os.ReadFile("page.html")
	if err != nil || strings.ContainsAny(string(page), "\x1b\u202e") {
		t.Errorf("the page holds the raw names of its log and policy: %v", err)
	}
}

func TestASharePercentageIsExact(t *testing.T) {
	for value, want := range map[string]string{"0.1%": "0.1%", "0%": "0%", "100%": "100%", "33.3%": "33.3%", "off": "off"} {
		t.Run(value, func(t *testing.T) {
			var p portion
			if err := p.Set(value); err != nil || p.String() != want {
				t.Errorf("%s is read as %s, %v", value, &p, err)
			}
		})
	}
	for _, value := range []string{"", "%", "0.1", "101%", "-1%", "1e-3%", "1/3%", "0x1%", "1_0%", "NaN%", "0.1%%"} {
		var p portion
		if err := p.Set(value); err == nil {
			t.Errorf("%q is read as %s", value, &p)
		}
	}
}

func TestReplayProgressPrintsTheTimeLeft(t *testing.T) {
	var printed bytes.Buffer
	p := newSimulateProgress(&printed)
	p.update(accesslog.Stats{Bytes: 1, Total: 2, Lines: 3})
	if printed.Len() > 0 {
		t.Errorf("at the start it prints %q", &printed)
	}
	for _, c := range []struct {
		stats accesslog.Stats
		want  string
	}{
		{accesslog.Stats{Bytes: 250, Total: 1000, Lines: 20_000_000}, `^25 %, 20.0 M lines, 1.00 M/s, 1 min (0|1) s left\n$`},
		{accesslog.Stats{Bytes: 12_000_000, Total: -1, Lines: 2_000_000}, `^12.0 MB, 2.0 M lines, 0.10 M/s\n$`},
		{accesslog.Stats{Bytes: 1000, Total: 1000, Lines: 2_000_000}, `^100 %, 2.0 M lines, 0.10 M/s\n$`},
	} {
		printed.Reset()
		p.begun = time.Now().Add(-20 * time.Second)
		p.shown = p.begun
		p.update(c.stats)
		if !regexp.MustCompile(c.want).MatchString(printed.String()) {
			t.Errorf("for %+v it prints %q, want %s", c.stats, &printed, c.want)
		}
	}
	p.End()
}

// later returns log lines, ten a second, from so many seconds after the log's
// start.
func later(seconds, lines int) string {
	var b strings.Builder
	begin := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for n := range lines {
		fmt.Fprintf(&b, "192.0.2.7 - - [%s] \"POST /api/v1/widget/leads HTTP/1.1\" 201 12 \"-\" \"curl/8\"\n",
			begin.Add(time.Duration(seconds+n/10)*time.Second).Format("02/Jan/2006:15:04:05 -0700"))
	}
	return b.String()
}
