package replay

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
)

// from sends a request with an agent. "?" is an agent that the log does not have, "" one that the
// client has not sent.
func from(t rapid.TB, r *Replay, second float64, peer, agent string) {
	t.Helper()
	l := lineAt(second, peer)
	switch agent {
	case "?":
		l.HasAgent = false
	case "":
	default:
		l.UserAgent = []byte(agent)
	}
	if err := r.Add(l); err != nil {
		t.Fatal(err)
	}
}

func TestAWindowWhoseAgentTheLogDoesNotHaveIsUnknown(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "2 per minute by ip+agent", "4 per hour by ip"))
	r := start(t, Options{Policy: p, Touch: 1})
	for i := range 6 {
		from(t, r, float64(i), "192.0.2.7", "?")
	}
	o := report(t, r).Policy
	l := o.Limiters[0]
	if o.Refused != 2 || o.Unknown != 4 || l.Refused != 2 || l.Unknown != 4 {
		t.Errorf("refused %d and %d, unknown %d and %d: four fit into the hour, of which the minute may have refused some", o.Refused, l.Refused, o.Unknown, l.Unknown)
	}
	if w := l.Windows[0]; w.Unknown != 6 || w.Callers.N != 0 || w.Peak != 0 || w.Recommend != nil {
		t.Errorf("%+v: nothing is known of it", w)
	}
	if w := l.Windows[1]; w.Unknown != 0 || w.Callers.N != 1 || w.Peak != 6 || w.Touched.N != 1 || w.Recommend == nil {
		t.Errorf("%+v: it counts by address", w)
	}
	if !l.Doubt.Unknown || o.Touched.N != 1 {
		t.Errorf("%+v, touched %+v", l.Doubt, o.Touched)
	}
}

func TestNoAgentIsNotAnUnknownOne(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "2 per minute by ip+agent"))
	r := start(t, Options{Policy: p})
	for i := range 5 {
		from(t, r, float64(i), "192.0.2.7", "")
	}
	out := report(t, r)
	if o := out.Policy; o.Refused != 3 || o.Unknown != 0 || o.Limiters[0].Windows[0].Unknown != 0 {
		t.Errorf("%+v", o)
	}
	for _, lack := range out.Log.Lacks {
		if lack.Instead == "" {
			t.Errorf("%+v", lack)
		}
	}
}

func TestALogWithSomeAgentsIsUnknownForTheOthers(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "1 per minute by agent"))
	r := start(t, Options{Policy: p, Against: &p})
	for i, agent := range []string{"a", "a", "?", "b", "?", ""} {
		from(t, r, float64(i), "192.0.2.7", agent)
	}
	out := report(t, r)
	if o := out.Policy; o.Refused != 1 || o.Unknown != 2 || o.Limiters[0].Windows[0].Callers.N != 3 || o.Limiters[0].Windows[0].Unknown != 2 {
		t.Errorf("%+v", o)
	}
	if d := out.Difference; d.NewlyRefused+d.NewlyAdmitted != 0 || d.Unknown != 2 || len(d.Limiters) != 1 || d.Limiters[0].Unknown != 2 {
		t.Errorf("%+v", d)
	}
	found := false
	for _, lack := range out.Log.Lacks {
		found = found || lack.Source == "agent" && lack.Instead == "" && lack.Requests == 2 && lack.Limiters[0] == "all"
	}
	if !found {
		t.Errorf("%+v", out.Log.Lacks)
	}
}

func TestWhatDoesNotDependOnTheAgentIsKnown(t *testing.T) {
	query := func(l *accesslog.Line) { l.Target = []byte("/a?agent_id=demo") }
	field := func(l *accesslog.Line) {}
	for name, test := range map[string]struct {
		change  func(*accesslog.Line)
		limiter func(*weir.Limiter)
		window  string
		unknown int64
	}{
		"the query says it":      {change: query, window: "2 per minute by agent"},
		"no window counts by it": {window: "2 per minute by ip"},
		"who is exempt":          {window: "2 per minute by ip+agent", limiter: func(l *weir.Limiter) { l.Exempt = []weir.Who{{Network: netip.MustParsePrefix("192.0.2.0/24")}} }},
		"else it is unknown":     {change: field, window: "2 per minute by session or agent", unknown: 4},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiterOf(t, "all", test.window)
			if test.limiter != nil {
				test.limiter(&l)
			}
			r := start(t, Options{Policy: policyOf(l)})
			for i := range 4 {
				line := lineAt(float64(i), "192.0.2.7")
				line.HasAgent = false
				if test.change != nil {
					test.change(line)
				}
				if err := r.Add(line); err != nil {
					t.Fatal(err)
				}
			}
			if o := report(t, r).Policy; o.Unknown != test.unknown || o.Limiters[0].Windows[0].Unknown != test.unknown {
				t.Errorf("%s: %+v", name, o)
			}
		})
	}
}

func TestAShadowByAnUnknownAgentIsUnknown(t *testing.T) {
	shadow := limiterOf(t, "tried", "1 per minute by agent")
	shadow.Mode = weir.Shadow
	r := start(t, Options{Policy: policyOf(limiterOf(t, "all", "3 per minute by ip"), shadow)})
	for i := range 5 {
		from(t, r, float64(i), "192.0.2.7", "?")
	}
	o := report(t, r).Policy
	if o.Refused != 2 || o.Unknown != 0 || o.Shadow.Unknown != o.Shadow.Requests || o.Shadow.Refused != 0 || o.Limiters[1].Unknown == 0 {
		t.Errorf("%+v", o)
	}
}

func TestAWaitForAnotherWindowOfAnUnknownAgentEndsInTime(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "1 per minute by agent", "2 per hour by ip"))
	r := start(t, Options{Policy: p, Paced: true, Patience: 2 * time.Hour})
	for i := range 3 {
		from(t, r, float64(i), "192.0.2.7", "?")
	}
	o := report(t, r).Policy
	if o.Refused != 1 || o.Unknown != 2 || o.Delay.Delayed != 1 || o.Delay.Max != 3598 {
		t.Errorf("%+v, %+v", o, o.Delay)
	}
}

// However a log mixes lines with and without the agent, the windows that do not name it are as if
// the others did not exist.
func TestAnUnknownAgentChangesNothingOfTheOtherWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := []string{"3 per minute by ip", "5 per hour by everyone"}
		whole := policyOf(limiterOf(t, "all", append([]string{"2 per minute by ip+agent"}, windows...)...))
		rest := policyOf(limiterOf(t, "all", windows...))
		a, b := start(t, Options{Policy: whole}), start(t, Options{Policy: rest})
		for i := range rapid.IntRange(1, 60).Draw(t, "requests") {
			peer := rapid.SampledFrom([]string{"192.0.2.7", "192.0.2.8"}).Draw(t, "peer")
			for _, r := range []*Replay{a, b} {
				from(t, r, float64(i*20), peer, "?")
			}
		}
		got, want := report(t, a).Policy, report(t, b).Policy
		if got.Refused != want.Refused || got.Unknown != got.Requests-want.Refused {
			t.Fatalf("refused %d, unknown %d; without the window %d of %d", got.Refused, got.Unknown, want.Refused, want.Requests)
		}
		for i, w := range want.Limiters[0].Windows {
			if g := got.Limiters[0].Windows[i+1]; g != w {
				t.Fatalf("%+v, without the window %+v", g, w)
			}
		}
	})
}
