package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/verify"
	reports "github.com/weirlimit/weir/internal/verify/report"
)

func TestExitStatusOfAVerification(t *testing.T) {
	kept := &verify.Report{Sent: 1, Results: []verify.Result{{Verdict: verify.Kept}, {Verdict: verify.Untested}}}
	broken := &verify.Report{Results: []verify.Result{{Verdict: verify.Kept}, {Verdict: verify.Broken, Detail: "seen\x1b]0;title\a\u202e"}}}
	none := &verify.Report{Results: []verify.Result{{Verdict: verify.Untested}}}
	for _, c := range []struct {
		name             string
		report           *verify.Report
		interrupted, err error
		want             string
	}{
		{"nothing is broken", kept, nil, nil, ""},
		{"something is", broken, nil, nil, "some clauses are broken: 1 kept, 1 broken, 0 not testable"},
		{"nothing was tested", none, nil, nil, "nothing could be tested"},
		{"it was not reached", none, nil, errors.New("dial\x1b[2J"), `dial\x1b[2J`},
		{"it was interrupted", kept, errors.New("canceled"), errors.New("canceled"), "interrupted after 1 request; 1 kept, 0 broken, 1 not testable"},
	} {
		t.Run(c.name, func(t *testing.T) {
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
				var decoded struct {
					Done    bool
					Error   string
					Results []verify.Result
					Clauses []reports.Clause
				}
				if !machine {
					continue
				}
				if err := json.Unmarshal(out.Bytes(), &decoded); err != nil || decoded.Done != (c.want == "") || decoded.Error != c.want ||
					len(decoded.Results) != len(c.report.Results) || len(decoded.Clauses) != len(verify.Clauses) {
					t.Errorf("%s: %v, %+v in\n%s", c.name, err, decoded, out.String())
				}
				if strings.ContainsAny(out.String(), "\x1b\u202e") {
					t.Errorf("%s: the JSON holds control characters", c.name)
				}
			}
		})
	}
}

// --fail-untested fails if a clause was missed. A clause that does not apply to a
// limiter was not missed.
func TestFailUntestedIgnoresClausesThatDoNotApply(t *testing.T) {
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

func TestVerificationWithoutATerminalIsLines(t *testing.T) {
	var out bytes.Buffer
	p := newVerifyProgress(&out)
	p.begin(500)
	p.update(verify.Progress{Sent: 1, Planned: 500, Doing: []string{"leads: in step"}})
	for range 3 { // one wait, reported several times
		p.update(verify.Progress{Sent: 31, Planned: 500, Doing: []string{"leads: waits\x1b[2J", "typing: in step"}, Waiting: 41500 * time.Millisecond})
	}
	p.update(verify.Progress{Sent: 32, Planned: 500, Waiting: time.Second}) // too short
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

func TestTheLinesBelowTheBarShowTheChecksInProgress(t *testing.T) {
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
