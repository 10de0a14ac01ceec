package redis_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
)

// A witness is a caller of one node that remembers the latest reset it received.
type witness struct {
	*node
	who   string
	reset int64
	began int64 // when the current window was first seen
	first int64 // units that remained then
}

// ask sends one request, and checks that the window ends no later than in the last
// answer.
func (w *witness) ask() weir.Decision {
	w.t.Helper()
	d := w.decide(w.who)
	now := d.Binding()
	switch {
	case d.Now >= w.reset:
		w.began, w.first = d.Now, now.Remaining
	case now.Reset > w.reset:
		w.t.Errorf("%s: the window was reported to end at %d, and at %d to end %d s later; outcome %d, allowed %v",
			w.who, w.reset, d.Now, now.Reset-w.reset, d.Outcome, d.Allowed)
	}
	w.reset = now.Reset
	return d
}

// A server hangs for 12 s of windows of 20 s, and resumes. Every reset that a
// caller received before or during the hang holds: no answer has a later reset, and
// after it the whole limit is available.
func TestAHangMovesNoReportedReset(t *testing.T) {
	t.Parallel()
	const limit, per, hang = 500, 20 * time.Second, 12 * time.Second
	for _, c := range []struct {
		name  string
		nodes int
		every time.Duration // between two requests of one caller
	}{
		{"one node, many requests", 1, 10 * time.Millisecond},
		{"one node, few requests", 1, 3 * time.Second}, // too few to open the circuit breaker
		{"two nodes, many requests", 2, 10 * time.Millisecond},
		{"two nodes, few requests", 2, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var nodes []*node
			var before, meanwhile, ended []*witness
			for range c.nodes {
				n := newNode(t, open(t, at(server)), deadline, window(limit, per))
				nodes = append(nodes, n)
				before = append(before, &witness{node: n, who: "before"})
				meanwhile = append(meanwhile, &witness{node: n, who: "meanwhile"})
				// its window ends while the server hangs
				ended = append(ended, &witness{node: n, who: "ended"})
			}
			tick := time.NewTicker(c.every)
			defer tick.Stop()
			during := func(lasts time.Duration, all ...[]*witness) {
				for over := time.After(lasts); ; {
					for _, some := range all {
						for _, w := range some {
							w.ask()
						}
					}
					select {
					case <-tick.C:
					case <-over:
						return
					}
				}
			}
			for _, w := range ended {
				w.ask()
			}
			during(8*time.Second, nil)
			during(time.Second, before)
			server.Pause(t)
			// the second node opens a window of its own, which ends later
			during(hang/4, before, meanwhile[:1])
			during(hang*3/4, before, meanwhile, ended)
			woke := nodes[0].store.Now().Unix()
			server.Resume(t)
			all := [][]*witness{before, meanwhile, ended}
			eventually(t, "the store is ready again, and each window has ended", func() bool {
				during(c.every, all...)
				for _, n := range nodes {
					if n.recovers.Load() == 0 {
						return false
					}
				}
				for _, some := range all {
					for _, w := range some {
						if w.began <= woke {
							return false
						}
					}
				}
				return true
			})
			for _, some := range all {
				for _, w := range some {
					// each node may have sent a request whose answer came late
					if w.first < limit-2*int64(c.nodes) {
						t.Errorf("when the window of %s had ended, its next began with %d of %d left", w.who, w.first, limit)
					}
				}
			}
			t.Logf("%d in common, %d here, %d takes failed; %+v", total(nodes, weir.Counted), total(nodes, weir.CountedLocally), nodes[0].store.failed.Load(), nodes[0].outages())
		})
	}
}
