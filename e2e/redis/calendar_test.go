package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
)

// The server's clock decides when a month ends, even for nodes whose own clocks are hours and
// months away from it: each month admits exactly the limit, and all nodes report the same reset
// (ADR 29).
func TestNodesWithWrongClocksAgreeOnTheEndOfAMonth(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	boundary := time.Date(2026, 10, 31, 23, 0, 0, 0, time.UTC) // midnight in Berlin
	clock.Advance(boundary.Add(-2 * time.Second).Sub(clock.Now()))
	next := time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)

	const limit = 200
	w, err := weir.ParseWindow("200 per calendar month in Europe/Berlin by user")
	if err != nil {
		t.Fatal(err)
	}
	var deciders []*weir.Decider
	for _, off := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour, 40 * 24 * time.Hour, -70 * 24 * time.Hour} {
		o := at(server)
		o.Now = func() time.Time { return clock.Now().Add(off) }
		d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{Name: "plan", Windows: []weir.Window{w, hourly(1 << 20)}}}}, open(t, o), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		deciders = append(deciders, d)
	}
	admitted := map[int64]*atomic.Int64{boundary.Unix(): {}, next.Unix(): {}}
	flood := func(takes int, between func(n int)) {
		var all sync.WaitGroup
		for i, d := range deciders {
			all.Go(func() {
				for n := range takes {
					decision, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"plan"}, Keys: user("a")})
					if err != nil || decision.Outcome != weir.Counted {
						t.Errorf("node %d: %+v, %v", i, decision, err)
						return
					}
					for _, s := range decision.Standings() {
						if s.Window.Calendar.Unit == 0 {
							continue
						}
						if want := admitted[s.Reset]; want == nil || (s.Reset == boundary.Unix()) != (decision.Now < boundary.Unix()) {
							t.Errorf("node %d: at %d the reset is %d, want %d before itself, then %d", i, decision.Now, s.Reset, boundary.Unix(), next.Unix())
						} else if decision.Allowed {
							want.Add(1)
						}
					}
					if i == 0 {
						between(n)
					}
				}
			})
		}
		all.Wait()
	}
	flood(100, func(int) {}) // 500 requests in the last seconds of October
	if n := admitted[boundary.Unix()].Load(); n != limit {
		t.Errorf("October admitted %d, the limit is %d", n, limit)
	}
	flood(100, func(n int) {
		if n == 20 || n == 40 {
			clock.Advance(time.Second) // the second one ends October
		}
	})
	flood(100, func(int) {}) // what others had not asked for when October ended
	if a, b := admitted[boundary.Unix()].Load(), admitted[next.Unix()].Load(); a != limit || b != limit {
		t.Errorf("October admitted %d and November %d, the limit is %d", a, b, limit)
	}
	counters(t, server) // all expire
}
