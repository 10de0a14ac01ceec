package redis_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
)

// Two nodes count the refusals of a caller together, and both keep its penalty until the same
// second, on one server and on a cluster. Its refusals are remembered.
func TestNodesShareAPenalty(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(testing.TB) (*redistest.Server, *redistest.Clock)
	}{
		{"server", func(t testing.TB) (*redistest.Server, *redistest.Clock) { return redistest.StartWithClock(t) }},
		{"cluster", redistest.StartClusterWithClock},
	} {
		t.Run(kind.name, func(t *testing.T) {
			server, clock := kind.start(t)
			o := at(server)
			o.Now = clock.Now
			l := weir.Limiter{Name: "login", Windows: []weir.Window{window(2, 10*time.Second), hourly(1 << 20)}}
			l.Penalty = weir.Penalty{After: 6, Per: time.Minute, For: 15 * time.Minute}
			one, two := open(t, o), open(t, o)
			var deciders []*weir.Decider
			for _, s := range []weir.Store{one, two} {
				d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{l}}, s, weir.Options{})
				if err != nil {
					t.Fatal(err)
				}
				deciders = append(deciders, d)
			}
			ask := func(node int, who user) weir.Decision {
				t.Helper()
				d, err := deciders[node].Decide(t.Context(), weir.Request{Limiters: []string{"login"}, Keys: who})
				if err != nil || d.Outcome != weir.Counted {
					t.Fatalf("%+v, %v", d, err)
				}
				return d
			}
			for node := range 2 {
				if d := ask(node, "a"); !d.Allowed {
					t.Fatalf("request %d was refused: %+v", node, d.Binding())
				}
			}
			for i := range 5 {
				if d := ask(i%2, "a"); d.Allowed || d.Binding().Penalty || d.RetryAfter() > 10 {
					t.Fatalf("refusal %d: %+v", i+1, d.Binding())
				}
			}
			d := ask(1, "a")
			end := d.Binding().Reset
			if !d.Binding().Penalty || d.RetryAfter() != 900 {
				t.Fatalf("refusal 6: %+v", d.Binding())
			}
			for range 14 {
				clock.Advance(time.Minute)
				for node := range 2 {
					if d := ask(node, "a"); !d.Binding().Penalty || d.Binding().Reset != end || d.RetryAfter() != end-d.Now {
						t.Fatalf("node %d: %+v at %d, want a penalty until %d", node, d.Binding(), d.Now, end)
					}
				}
			}
			asked := one.Stats().Asked
			for range 1000 {
				ask(0, "a")
			}
			if n := one.Stats().Asked - asked; n > 100 {
				t.Errorf("1000 refusals by the penalty asked the server %d times", n)
			}
			if d := ask(0, "b"); !d.Allowed {
				t.Fatalf("another caller was refused: %+v", d.Binding())
			}
			if err := deciders[0].Reset(t.Context(), "login", user("a")); err != nil {
				t.Fatal(err)
			}
			if d := ask(0, "a"); !d.Allowed {
				t.Fatalf("after a reset: %+v", d.Binding())
			}
			clock.Advance(2 * time.Second) // by then the other node asks again
			if d := ask(1, "a"); !d.Allowed {
				t.Fatalf("after a reset, at the other node: %+v", d.Binding())
			}
			counters(t, server) // all expire
		})
	}
}
