package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/verify"
)

// found is a report with everything in it.
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
	p := reportPrinter{out: &out, paint: painter(&out, nil)}
	if err := p.print(found()); err != nil {
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
  Retry-After is how long it takes until Reset: waiting it is enough, and not a
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

// What is the same for several limiters is said once.
func TestAReportSaysNothingTwice(t *testing.T) {
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
	if err := (&reportPrinter{out: &out, paint: painter(&out, nil)}).print(r); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{"✗ limit, leads, typing": 1, "✗ limit": 1, "✗ window, leads": 1, "seen: Limit is 7": 1, "– every clause (init)": 1} {
		if n := strings.Count(out.String(), want); n != times {
			t.Errorf("%q %d times, want %d:\n%s", want, n, times, out.String())
		}
	}
}

// Forty limiters with long names do not make a report wider than a terminal.
func TestAReportFitsTheTerminal(t *testing.T) {
	r := found()
	for i := range 40 {
		r.Results = append(r.Results, verify.Result{Clause: "limit", Limiter: fmt.Sprintf("%d-%s", i, strings.Repeat("名", 30)), Verdict: verify.Kept})
	}
	var out bytes.Buffer
	if err := (&reportPrinter{out: &out, paint: painter(&out, nil)}).print(r); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := runewidth.StringWidth(strings.TrimSuffix(line, "\n")); n > reportWidth {
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

func TestWhatAVerificationEndsWith(t *testing.T) {
	kept := &verify.Report{Sent: 1, Results: []verify.Result{{Verdict: verify.Kept}, {Verdict: verify.Untested}}}
	none := &verify.Report{Results: []verify.Result{{Verdict: verify.Untested}}}
	for _, c := range []struct {
		name             string
		report           *verify.Report
		interrupted, err error
		want             string
	}{
		{"nothing is broken", kept, nil, nil, ""},
		{"something is", found(), nil, nil, "not all is kept: 3 kept, 1 broken, 4 not testable"},
		{"nothing was tested", none, nil, nil, "nothing could be tested"},
		{"it was not reached", none, nil, errors.New("dial\x1b[2J"), `dial\x1b[2J`},
		{"it was interrupted", kept, errors.New("canceled"), errors.New("canceled"), "interrupted after 1 request; 1 kept, 0 broken, 1 not testable"},
	} {
		err := verifyOutcome(c.report, c.interrupted, c.err)
		if got := fmt.Sprint(err); got != c.want && (err != nil || c.want != "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		var f *cli.Failure
		if err != nil && (!errors.As(err, &f) || f.Exit != cli.Failed) {
			t.Errorf("%s: %+v, want status %d", c.name, f, cli.Failed)
		}
		for _, machine := range []cli.OnOff{false, true} {
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetOut(&out)
			if got := (&verifyFlags{machine: machine}).conclude(cmd, c.report, c.interrupted, c.err, nil); (got == nil) != (err == nil) {
				t.Errorf("%s: %v and %v", c.name, got, err)
			}
			var said struct {
				Done    bool
				Error   string
				Results []verify.Result
				Clauses []clauseJSON
			}
			if !machine {
				continue
			}
			if err := json.Unmarshal(out.Bytes(), &said); err != nil || said.Done != (c.want == "") || said.Error != c.want ||
				len(said.Results) != len(c.report.Results) || len(said.Clauses) != len(verify.Clauses) {
				t.Errorf("%s: %v, %+v in\n%s", c.name, err, said, out.String())
			}
			if strings.ContainsAny(out.String(), "\x1b\u202e") {
				t.Errorf("%s: JSON that a terminal acts on", c.name)
			}
		}
	}
}

func TestVerificationWithoutATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	p := newVerifyProgress(&out)
	p.begin(500)
	p.update(verify.Progress{Sent: 1, Planned: 500, Doing: []string{"leads: in step"}})
	for range 3 { // one wait, told several times
		p.update(verify.Progress{Sent: 31, Planned: 500, Doing: []string{"leads: waits\x1b[2J", "typing: in step"}, Waiting: 41500 * time.Millisecond})
	}
	p.update(verify.Progress{Sent: 32, Planned: 500, Waiting: time.Second}) // too short to tell
	p.interrupted()
	p.end()
	p.interrupted()
	p.update(verify.Progress{Sent: 33, Planned: 500, Waiting: time.Hour})
	if got, want := out.String(), `31 of at most 500, next window in 42 s; leads: waits\x1b[2J; typing: in step
stopping; interrupt again to end at once
`; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheLinesBelowTheBarSayWhatIsUnderWay(t *testing.T) {
	p := newVerifyProgress(&bytes.Buffer{})
	doing := []string{"leads: \x1b[2J all of the budget at once"}
	for i := range maxUnderWay {
		doing = append(doing, fmt.Sprint("limiter ", i))
	}
	p.update(verify.Progress{Doing: doing, Waiting: 41500 * time.Millisecond})
	want := []string{`leads: \x1b[2J all of the budget at once`}
	for i := range maxUnderWay - 1 {
		want = append(want, fmt.Sprint("limiter ", i))
	}
	want = append(want, "… and 1 more", "next window in 42 s")
	if got := p.below(); !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	p.interrupted()
	if got, want := p.below(), []string{"stopping; interrupt again to end at once"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOnlyWhatAppliesCanBeLeftUntested(t *testing.T) {
	kept := verify.Result{Clause: "limit", Verdict: verify.Kept}
	inherent := verify.Result{Clause: "separate", Verdict: verify.Untested, Reason: verify.Unobservable, Inherent: true}
	missed := verify.Result{Clause: "restored", Verdict: verify.Untested, Reason: verify.NeedsMore}
	if err := untestedOutcome(&verify.Report{Results: []verify.Result{kept, inherent}}); err != nil {
		t.Errorf("a clause that does not apply was called untested: %v", err)
	}
	if err := untestedOutcome(&verify.Report{Results: []verify.Result{kept, inherent, missed}}); err == nil {
		t.Error("a clause that applies was not tested, and that passed")
	}
}
