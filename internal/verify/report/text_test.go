package report_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/weirlimit/weir/internal/verify"
	"github.com/weirlimit/weir/internal/verify/report"
)

// found is a report with entries of each kind.
func found() *verify.Report {
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	return &verify.Report{
		URL: "http://127.0.0.1:8080", Started: begun, Ended: begun.Add(95 * time.Second), Planned: 500, Sent: 321,
		Results: []verify.Result{
			{Clause: "fields-served", Limiter: "leads", Verdict: verify.Kept, Detail: "31 answers"},
			{Clause: "fields-served", Limiter: "typing", Verdict: verify.Kept, Detail: "31 answers"},
			{Clause: "fields-preflight", Verdict: verify.Kept},
			{Clause: "restored", Limiter: "leads", Verdict: verify.Untested, Detail: "it waits for a window, and this was to be quick"},
			{Clause: "restored", Limiter: "typing", Verdict: verify.Untested, Detail: "it waits for a window, and this was to be quick"},
			{Clause: "retry-after", Limiter: "leads", Verdict: verify.Broken, Detail: "Retry-After was 0\x1b]0;title\a and Reset 42 s away", Exchange: &verify.Exchange{
				Request:  "POST /leads HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n{}",
				Response: "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nX-Evil: \x1b[2J\u202egnp.exe\r\n\r\n" + strings.Repeat("x", 100),
				At:       "2027-01-15T08:00:07.123Z",
			}},
			{Clause: "retry-after", Limiter: "typing", Verdict: verify.Untested, Detail: "it waits for a window, and this was to be quick"},
			{Clause: "separate", Limiter: "leads", Verdict: verify.Untested, Detail: "there is one session"},
		},
	}
}

func TestAReportReadsTopToBottom(t *testing.T) {
	var out bytes.Buffer
	if err := report.Print(&out, found(), false); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `clause                    1  2  3
fields-served             ✓  ✓
fields-preflight                ✓
restored                  –  –
retry-after               ✗  –
separate                  –

1 leads, 2 typing, 3 all of it
✓ kept, ✗ broken, – not testable

✗ retry-after, leads
  Retry-After is the time until Reset: waiting that long is enough, and not a
  second too long (contract, sections 5 and 8)
  seen: Retry-After was 0\x1b]0;title\a and Reset 42 s away
  > POST /leads HTTP/1.1
  > Host: 127.0.0.1:8080
  >
  > {}
  < HTTP/1.1 429 Too Many Requests
  < Retry-After: 0
  < X-Evil: \x1b[2J\u202egnp.exe
  <
  < xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
  <     xxxxxxxxxxxxxxxxxxxxxxxxxxxx
  at 2027-01-15T08:00:07.123Z

– restored (leads, typing)
  it waits for a window, and this was to be quick

– retry-after (typing)
  it waits for a window, and this was to be quick

– separate (leads)
  there is one session

3 kept, 1 broken, 4 not testable; 321 requests of at most 500, in 1 min 35 s
`; strings.ReplaceAll(got, "\u00a0", " ") != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A text that applies to several limiters is printed once.
func TestAReportPrintsNothingTwice(t *testing.T) {
	r := &verify.Report{}
	for _, c := range verify.Clauses {
		for _, limiter := range []string{"leads", "typing", "init"} {
			x := verify.Result{Clause: c.ID, Limiter: limiter, Verdict: verify.Untested, Detail: limiter + " is too large"}
			if limiter != "init" && c.ID == "limit" {
				x = verify.Result{Clause: c.ID, Limiter: limiter, Verdict: verify.Broken, Detail: "Limit is 7"}
			}
			if limiter == "leads" && c.ID == "window" {
				x = verify.Result{Clause: c.ID, Limiter: limiter, Verdict: verify.Broken, Detail: "Remaining is 8 of 7"}
			}
			r.Results = append(r.Results, x)
		}
	}
	var out bytes.Buffer
	if err := report.Print(&out, r, false); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"✗ limit, leads, typing": 1, "✗ limit": 1, "✗ window, leads": 1, "seen: Limit is 7": 1, "– every clause (init)": 1} {
		t.Run(want, func(t *testing.T) {
			if n := strings.Count(out.String(), want); n != times {
				t.Errorf("%q %d times, want %d:\n%s", want, n, times, out.String())
			}
		})
	}
}

// Forty limiters with long names do not make a report wider than a terminal.
func TestAReportFitsTheTerminal(t *testing.T) {
	r := found()
	for i := range 40 {
		r.Results = append(r.Results, verify.Result{Clause: "limit", Limiter: fmt.Sprintf("%d-%s", i, strings.Repeat("名", 30)), Verdict: verify.Kept})
	}
	var out bytes.Buffer
	if err := report.Print(&out, r, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := runewidth.StringWidth(strings.TrimSuffix(line, "\n")); n > report.Width {
			t.Errorf("%d columns: %s", n, line)
		}
		if regexp.MustCompile(`[^\n\x{a0}\x{20}-\x{7e}✓✗–…名]`).MatchString(line) {
			t.Errorf("a terminal may act on %q", line)
		}
	}
	if n := strings.Count(out.String(), "\nlimit "); n < 2 {
		t.Errorf("the columns are in %d tables", n)
	}
}
