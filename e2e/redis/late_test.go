package redis_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/redisstore"
)

// A suspended server runs the commands that have arrived meanwhile when it resumes.
// If a take's caller had already given up, the take spends nothing and opens no
// window, because that window would end later than the reset its caller received.
func TestAnAbandonedTakeSpendsNothingLater(t *testing.T) {
	for _, c := range []struct {
		name  string
		open  bool  // whether the windows are open when the server stops
		units int64 // units of each take
		step  time.Duration
		want  int64 // final count of the first window
	}{
		{"no window is open", false, 1, 12 * time.Second, 0},
		{"the windows are open", true, 1, 12 * time.Second, 1},
		{"the windows are open, a higher cost", true, 3, 12 * time.Second, 3},
		{"the windows ended meanwhile", true, 1, 2 * time.Minute, 0},
		{"the clock was set forward by a week", false, 1, 7 * 24 * time.Hour, 0},
	} {
		for _, windows := range [][]int64{{20}, {20, 60}, {20, 60, 3600}} {
			t.Run(c.name, func(t *testing.T) {
				server, clock := redistest.StartWithClock(t)
				s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Now: clock.Now})
				var in, look []weir.Charge
				for _, per := range windows {
					in = append(in, charge("a", 100, per, c.units))
					look = append(look, charge("a", 100, per, 0))
				}
				if c.open {
					take(t, s, in...)
				}
				server.Pause(t)
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
						defer cancel()
						var r weir.Receipt
						if err := s.Take(ctx, in, &r); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("a server that has stopped answered %+v, %v", r, err)
						}
					})
				}
				all.Wait()
				clock.Advance(c.step)
				server.Resume(t)
				eventually(t, "the server has run all", func() bool { return server.Commands(t) >= 20 })
				if r := take(t, s, look...); r.Used[0].Count != c.want {
					t.Errorf("the windows are %+v, want a count of %d in the first", r.Used[:len(look)], c.want)
				}
			})
		}
	}
}

// A take that is answered in time counts, even if this process is wrong about the
// server's clock: it is sent again with the time from the reply.
func TestATakeInTimeCountsWithAnyServerClock(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	s := open(t, redisstore.Options{Addresses: []string{server.Addr()}}) // with a clock of its own
	const limit = 100
	var before int64
	for i, step := range []time.Duration{
		0, time.Millisecond, time.Second, 10 * time.Second, -5 * time.Second, 300 * time.Millisecond, 24 * time.Hour, -48 * time.Hour, time.Minute,
	} {
		clock.Advance(step)
		ctx, cancel := context.WithTimeout(t.Context(), lenient)
		defer cancel()
		var r weir.Receipt
		if err := s.Take(ctx, []weir.Charge{charge("a", limit, 20, 1), charge("a", limit, 7*86400, 1)}, &r); err != nil || !r.Allowed {
			t.Fatalf("step %d, of %v: %+v, %v", i, step, r, err)
		}
		if now := clock.Now().Unix(); r.Now != now {
			t.Errorf("step %d, of %v: the take was judged at %d, the server's clock is at %d", i, step, r.Now, now)
		}
		if week := r.Used[1]; week.Count != before+1 {
			t.Errorf("step %d, of %v: the week has %d units, want %d", i, step, week.Count, before+1)
		}
		before = r.Used[1].Count
	}
}

// Units that were counted locally open no window that ends later than the reset
// their callers received. If two nodes counted a window locally, the earlier reset
// wins, in either order. If a take has opened the window here, it keeps its own
// reset.
func TestAGivenWindowKeepsItsReportedReset(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes bool            // whether a take opens the window first; it then ends in 60 s
		given []time.Duration // when the given windows end, from now; each has two units
		late  time.Duration   // how long each give takes to arrive
		left  time.Duration   // how long the window lasts after the last give; 0 if there is none
		count int64
	}{
		{"one", false, []time.Duration{40 * time.Second}, 0, 40 * time.Second, 2},
		{"one that is late", false, []time.Duration{40 * time.Second}, 12 * time.Second, 28 * time.Second, 2},
		{"one that is too late", false, []time.Duration{10 * time.Second}, 12 * time.Second, 0, 0},
		{"a later one", false, []time.Duration{40 * time.Second, 43 * time.Second}, 0, 40 * time.Second, 4},
		{"an earlier one", false, []time.Duration{43 * time.Second, 40 * time.Second}, 0, 40 * time.Second, 4},
		{"an earlier one again", false, []time.Duration{43 * time.Second, 40 * time.Second, 50 * time.Second, 38 * time.Second}, 0, 38 * time.Second, 8},
		{"a later one than the take's", true, []time.Duration{70 * time.Second}, 0, 60 * time.Second, 3},
		{"an earlier one than the take's", true, []time.Duration{40 * time.Second}, 0, 60 * time.Second, 3},
		{"one that ended before the take's", true, []time.Duration{10 * time.Second}, 12 * time.Second, 48 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, clock := redistest.StartWithClock(t)
			s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Now: clock.Now})
			w := charge("a", 100, 60, 1)
			if c.takes {
				take(t, s, w)
			}
			for _, ends := range c.given {
				reset := clock.Now().Add(ends).Unix()
				clock.Advance(c.late)
				lost, err := s.Give(t.Context(), []weir.Spent{{Key: w.Key, Scope: w.Scope, Subject: w.Subject, Per: w.Per, Used: weir.Used{Count: 2, Reset: reset}}})
				if lost != 0 || err != nil {
					t.Fatalf("give: %d lost, %v", lost, err)
				}
			}
			w.Cost = 0
			r := take(t, s, w)
			want := weir.Used{Count: c.count}
			if c.left > 0 {
				want.Reset = clock.Now().Add(c.left).Unix()
			}
			if r.Used[0] != want {
				t.Errorf("the window is %+v, want %+v; now is %d", r.Used[0], want, r.Now)
			}
			keys, err := server.Try("KEYS", "weir:{*").AsStrSlice()
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				if left, err := server.Try("TTL", key).AsInt64(); err != nil || left < 0 || left > 60 {
					t.Errorf("%s expires in %d s (%v)", key, left, err)
				}
			}
			clock.Advance(c.left)
			if r := take(t, s, w); r.Used[0] != (weir.Used{}) {
				t.Errorf("at its reset the window is %+v", r.Used[0])
			}
		})
	}
}

// Milliseconds are written modulo 48 days. At the wrap, as at any other time, takes
// in time count and late ones do not.
func TestTheMillisecondsWrapAround(t *testing.T) {
	const modulus = 1000 * (1<<22 - 1) * int64(time.Millisecond)
	for _, before := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		for _, first := range []bool{true, false} { // whether the late take would open the window
			server, clock := redistest.StartWithClock(t)
			s := open(t, redisstore.Options{Addresses: []string{server.Addr()}, Now: clock.Now})
			clock.Advance(time.Duration(modulus-clock.Now().UnixNano()%modulus) - before)
			w := charge("a", 100, 60, 1)
			want := int64(1)
			if !first {
				take(t, s, w)
				want = 2
			}
			server.Pause(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			var r weir.Receipt
			if err := s.Take(ctx, []weir.Charge{w}, &r); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a server that has stopped answered %+v, %v", r, err)
			}
			cancel()
			clock.Advance(12 * time.Second)
			server.Resume(t)
			if r := take(t, s, w); !r.Allowed || r.Used[0].Count != want {
				t.Errorf("%v before, the window is %+v, want a count of %d", before, r.Used[0], want)
			}
		}
	}
}

// A command that reads the server's clock hangs because the server is suspended. If
// a take is abandoned during the next suspension, it spends nothing when the server
// resumes.
func TestAHangMovesNoDeadlineOfTheNextOne(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := open(t, redisstore.Options{Addresses: []string{proxy.Addr()}, Now: clock.Now})
	server.Pause(t)
	asked, _ := proxy.Bytes()
	eventually(t, "it asks what time it is", func() bool {
		sent, _ := proxy.Bytes()
		return sent > asked
	})
	clock.Advance(900 * time.Millisecond)
	before, _ := proxy.Bytes()
	server.Resume(t)
	eventually(t, "it has the answer, and asks for something else", func() bool {
		sent, _ := proxy.Bytes()
		return sent > before
	})
	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var r weir.Receipt
	if err := s.Take(ctx, []weir.Charge{charge("a", 100, 60, 1)}, &r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that has stopped answered %+v, %v", r, err)
	}
	clock.Advance(300 * time.Millisecond)
	server.Resume(t)
	if r := take(t, s, charge("a", 100, 60, 0)); r.Used[0].Count != 0 {
		t.Errorf("a take that was abandoned 280 ms before has spent %d units", r.Used[0].Count)
	}
}

// An answer that comes after its take was given up costs what it does without leases: what was
// leased with the take goes back.
func TestALateAnswerCostsNoLeasedUnits(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a, direct := leasing(t, redisstore.Options{Addresses: []string{proxy.Addr()}}), open(t, at(server))
	look := charge("a", 100, 3600, 0)
	proxy.Delay(300 * time.Millisecond)
	eventually(t, "a take is counted, and not answered in time", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var r weir.Receipt
		err := a.Take(ctx, []weir.Charge{charge("a", 100, 3600, 3)}, &r)
		return errors.Is(err, context.DeadlineExceeded) && spent(t, direct, look) == 3+7
	})
	if r := take(t, a, charge("a", 100, 3600, 1)); r.Used[0].Count != 3+1 {
		t.Errorf("the next take: %+v; want it to be unit 4", r)
	}
	proxy.Pass(t)
	if err := a.Close(); err != nil || spent(t, direct, look) != 3+1 {
		t.Errorf("at the end %d units are spent, want those of the two takes; %v", spent(t, direct, look), err)
	}
}

// While an answer is late, this process counts by itself, from a count without what was leased by
// then. So that is not given out in addition.
func TestALateAnswerIsNotSpentBesideALocalCount(t *testing.T) {
	t.Parallel()
	const limit = 20
	for _, mode := range []weir.FailureMode{weir.FailLocal, weir.FailPocket} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr())
			s := leasing(t, redisstore.Options{Addresses: []string{proxy.Addr()}})
			over := bridge(t, s, s, failover.Options{Deadline: deadline})
			c := charge("a", limit, 3600, 1)
			c.OnFailure = mode
			var admitted atomic.Int64
			ask := func() (r weir.Receipt) {
				if over.Take(t.Context(), []weir.Charge{c}, &r) == nil && r.Allowed {
					admitted.Add(1)
				}
				return r
			}
			proxy.Delay(4 * deadline)
			var all sync.WaitGroup
			for range limit + limit/2 {
				all.Go(func() { ask() })
			}
			all.Wait()
			eventually(t, "the answer is there", func() bool { return s.Stats().Leases.Granted > 0 })
			proxy.Pass(t)
			eventually(t, "the store refuses", func() bool {
				over.Probe(t.Context())
				r := ask()
				return !r.Allowed && r.Outcome == weir.Counted
			})
			if n := admitted.Load(); n > limit {
				t.Errorf("%d of %d were admitted", n, limit)
			}
		})
	}
}
