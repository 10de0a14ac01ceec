package weir_test

import (
	"testing"

	"github.com/weirlimit/weir"
)

// A reused Decision or Scratch contains nothing of its last use.
func TestReusedMemoryIsCleared(t *testing.T) {
	b := newBench(t, policyOf(
		limiter("one", "1 per minute by ip"),
		limiter("four", "9 per second by ip", "8 per minute by ip", "7 per hour by ip", "6 per day by ip"),
		limiter("two", "5 per minute by ip+agent", "9 per hour by ip"),
	))
	var out weir.Decision
	scratch := new(weir.Scratch)
	ask := func(name string) error {
		return b.d.DecideInto(t.Context(), &weir.Request{Limiters: []string{name}, Keys: ip, Scratch: scratch}, &out)
	}
	for range 2 {
		if err := ask("one"); err != nil {
			t.Fatal(err)
		}
	}
	b.want(out, "refused 1 0 60 60")
	for _, step := range []struct {
		name string
		want string
		n    int
	}{{"four", "allowed 6 5 86400 0", 4}, {"two", "allowed 5 4 60 0", 2}, {"one", "refused 1 0 60 60", 1}, {"two", "allowed 5 3 60 0", 2}} {
		t.Run(step.name, func(t *testing.T) {
			if err := ask(step.name); err != nil {
				t.Fatal(err)
			}
			b.want(out, step.want)
			if n := len(out.Standings()); n != step.n {
				t.Errorf("%s: %d standings, want %d", step.name, n, step.n)
			}
			for _, s := range out.Standings() {
				if s.Refused != (step.name == "one") {
					t.Errorf("%s: a standing of %q has refused %v", step.name, s.Window, s.Refused)
				}
			}
		})
	}
	if err := ask("unknown"); err == nil || len(out.Standings()) != 0 || out.Allowed {
		t.Errorf("after the error %v the decision is %+v", err, out)
	}
	err := b.d.DecideInto(t.Context(), &weir.Request{Method: "GET", Path: "/", Keys: ip, Scratch: scratch}, &out)
	if err != nil || !out.Allowed || len(out.Standings()) != 0 {
		t.Errorf("an uncovered request gave %+v, %v", out, err)
	}
}
