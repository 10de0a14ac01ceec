package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/redisstore"
)

// leasing opens a store that leases units with each take.
func leasing(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Leases = redisstore.LeasesEager
	return open(t, o)
}

// Whatever nodes lease, together they admit no more than the limit, and in the end all of it.
func TestNodesThatLeaseAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			const limit, callers, each = 5000, 8, 150
			o := start(t)
			var nodes []*redisstore.Store
			for _, how := range []redisstore.Leasing{redisstore.LeasesEager, redisstore.LeasesAuto, redisstore.LeasesEager, redisstore.LeasesOff} {
				o.Leases = how
				nodes = append(nodes, open(t, o))
			}
			var units atomic.Int64
			var done sync.WaitGroup
			for i := range len(nodes) * callers {
				done.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(i)))
					for range each {
						cost := 1 + random.Int64N(3)
						var r weir.Receipt
						if err := nodes[i%len(nodes)].Take(t.Context(), []weir.Charge{charge("a", limit, 3600, cost), charge("a", limit+2, 86400, cost)}, &r); err != nil {
							t.Error(err)
							return
						}
						if r.Used[0].Count < 0 || r.Used[0].Count > limit {
							t.Errorf("the count is %d of %d", r.Used[0].Count, limit)
						}
						if r.Allowed {
							units.Add(cost)
						}
					}
				})
			}
			done.Wait()
			if units.Load() > limit {
				t.Fatalf("%d units of %d were admitted", units.Load(), limit)
			}
			leased := nodes[0].Stats().Leases.Takes
			eventually(t, "the rest is admitted", func() bool {
				for take(t, nodes[3], charge("a", limit, 3600, 1), charge("a", limit+2, 86400, 1)).Allowed {
					units.Add(1)
				}
				return units.Load() >= limit
			})
			if units.Load() != limit || leased == 0 {
				t.Errorf("%d units of %d were admitted, %d takes of a node that leases from its pockets", units.Load(), limit, leased)
			}
		})
	}
}

func TestIdleUnitsGoBack(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			a, b := leasing(t, o), open(t, o)
			minute, read := charge("a", 100, 600, 1), charge("a", 100, 600, 0)
			if used := take(t, a, minute).Used[0]; used.Count != 1 {
				t.Errorf("a node that leases shows a count of %d, want 1", used.Count)
			}
			if used := take(t, b, read).Used[0]; used.Count != 8 {
				t.Fatalf("another node sees a count of %d, want 8: 7 are leased", used.Count)
			}
			quick(t, "idleness", func() {}, func() bool { return take(t, b, read).Used[0].Count == 1 })
			take(t, a, minute)
			if used := take(t, b, read).Used[0]; used.Count != 9 {
				t.Fatalf("another node sees a count of %d, want 9", used.Count)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if used := take(t, b, read).Used[0]; used.Count != 2 {
				t.Errorf("after the node has closed the count is %d, want 2", used.Count)
			}
		})
	}
}

// A node may spend units of a window that was reset at another node until it knows, within two
// seconds. It never gives them back to the window that follows.
func TestAResetElsewhereVoidsPockets(t *testing.T) {
	t.Parallel()
	for name, start := range kinds() {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			a, b := leasing(t, o), open(t, o)
			minute := charge("a", 100, 3600, 1)
			keep := func() { take(t, a, minute) }
			take(t, a, minute)
			quick(t, "a reset", func() { reset(t, b, minute) }, func() bool { return a.Stats().Leases.Stranded == 7 })
			take(t, b, minute)
			keep()
			if used := take(t, b, charge("a", 100, 3600, 0)).Used[0]; used.Count != 9 {
				t.Errorf("the window after the reset has %d, want 9: one, and one with 7 leased", used.Count)
			}
		})
	}
}

// If the server's clock was set back, the mark of all resets is as high as it can be, and no reset
// raises it.
func TestAResetElsewhereIsKnownWhateverTheMark(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := at(server)
	a, b := leasing(t, o), open(t, o)
	c := charge("a", 100, 3600, 1)
	server.Do(t, "SET", "weir:resets", "9007199254740991", "EX", "4194303")
	for n := range 2 {
		take(t, a, c)
		quick(t, "a reset", func() { reset(t, b, c) }, func() bool { return a.Stats().Leases.Stranded == int64(7*(n+1)) })
	}
}

// The node that resets a window drops its units of it at once.
func TestAResetHereVoidsPockets(t *testing.T) {
	a := leasing(t, at(redistest.Start(t)))
	minute := charge("a", 100, 3600, 1)
	take(t, a, minute)
	reset(t, a, minute)
	if used := take(t, a, minute).Used[0]; used.Count != 1 {
		t.Errorf("after the reset the count is %d, want 1", used.Count)
	}
}

// Units that another server may not count are not given out.
func TestPocketsEndWithTheConnection(t *testing.T) {
	server := redistest.Start(t)
	a := leasing(t, at(server))
	minute := charge("a", 100, 3600, 1)
	take(t, a, minute)
	if !take(t, a, minute).Leased {
		t.Fatal("the second take was not leased")
	}
	server.Restart(t)
	eventually(t, "the node counts again", func() bool {
		var r weir.Receipt
		err := a.Take(t.Context(), []weir.Charge{minute}, &r)
		if r.Leased && err == nil && r.Used[0].Count > 2 {
			t.Errorf("a unit that the server has lost was given out: %+v", r)
		}
		return err == nil && r.Allowed
	})
	if n := a.Stats().Leases.Stranded; n == 0 {
		t.Error("nothing was dropped")
	}
}

// What a pocket serves, and what always asks the server.
func TestWhatAPocketServes(t *testing.T) {
	a := leasing(t, at(redistest.Start(t)))
	exact, slot, other := charge("x", 100, 3600, 1), charge("x", 9, 0, 1), charge("x", 99, 3600, 1)
	exact.Exact = true
	slot.Held = true
	for i, c := range []struct {
		name   string
		of     []weir.Charge
		leased bool
	}{
		{"one unit", []weir.Charge{charge("x", 100, 3600, 1)}, true},
		{"several units", []weir.Charge{charge("x", 100, 3600, 3)}, true},
		{"two windows", []weir.Charge{charge("x", 100, 3600, 1), charge("x", 300, 86400, 1)}, true},
		{"more than it has", []weir.Charge{charge("x", 100, 3600, 50)}, false},
		{"a window that it does not know", []weir.Charge{charge("x", 100, 3600, 1), charge("x", 500, 7200, 1)}, false},
		{"another limit", []weir.Charge{other}, false},
		{"a look", []weir.Charge{charge("x", 100, 3600, 0)}, false},
		{"a gate", []weir.Charge{charge("x", 100, 3600, 1), charge("x", 1, 60, weir.Gate)}, false},
		{"an exact count", []weir.Charge{exact}, false},
		{"slots", []weir.Charge{charge("x", 100, 3600, 1), slot}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := fmt.Sprint("caller ", i)
			known := []weir.Charge{charge(who, 100, 3600, 1), charge(who, 300, 86400, 1)}
			take(t, a, known...)
			var of []weir.Charge
			for _, x := range c.of {
				y := charge(who, x.Limit, x.Per, x.Cost)
				y.Exact, y.Held = x.Exact, x.Held
				of = append(of, y)
			}
			r := take(t, a, of...)
			if !r.Allowed || r.Leased != c.leased {
				t.Errorf("allowed %t, leased %t; want it leased: %t", r.Allowed, r.Leased, c.leased)
			}
			if want := 1 + c.of[0].Cost; r.Used[0].Count != want {
				t.Errorf("the count is %d, want %d", r.Used[0].Count, want)
			}
		})
	}
}

// Units of a take that a pocket served go back like those of any other.
func TestALeasedTakeIsSettled(t *testing.T) {
	o := at(redistest.Start(t))
	a := leasing(t, o)
	c := charge("a", 100, 3600, 3)
	take(t, a, c)
	r := take(t, a, c)
	if !r.Leased {
		t.Fatal("the take was not leased")
	}
	changes := []weir.Change{{Charge: c, Reset: r.Used[0].Reset, Units: -2}}
	if err := a.Settle(t.Context(), &r.Ticket, changes); err != nil || !changes[0].Done || changes[0].Used.Count != 4 {
		t.Fatalf("settled %+v (%v), want a count of 4", changes[0], err)
	}
	if used := take(t, a, charge("a", 100, 3600, 1)).Used[0]; used.Count != 5 {
		t.Errorf("the next count is %d, want 5", used.Count)
	}
}

// Takes that wait for their turn while the connection is replaced begin anew on the new one. So
// they lease nothing of the old one, which would be dropped at once, again with each of them, and
// they can be settled.
func TestTakesThatWaitBeginAnewOnANewConnection(t *testing.T) {
	for name, exact := range map[string]bool{"that lease": false, "that need the very count": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			a := leasing(t, redisstore.Options{Addresses: []string{proxy.Addr()}})
			c := charge("a", 1e6, 3600, 1)
			for range 8 {
				take(t, a, c) // the last has the last unit of the 7 that were leased
			}
			proxy.BlackHole()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			sent := a.Stats().Asked
			var all sync.WaitGroup
			all.Go(func() {
				var r weir.Receipt
				_ = a.Take(ctx, []weir.Charge{c}, &r) // it is under way, and fails
			})
			eventually(t, "a take is under way", func() bool { return a.Stats().Asked > sent })
			c.Cost, c.Exact = 2, exact
			var failed, lost atomic.Int64
			for range 50 {
				all.Go(func() {
					k := taken{charges: []weir.Charge{c}}
					if a.Take(ctx, k.charges, &k.receipt) != nil {
						failed.Add(1)
						return
					}
					changes := k.changes(1)
					if _ = a.Settle(ctx, &k.receipt.Ticket, changes); !changes[0].Done {
						lost.Add(1)
					}
				})
			}
			proxy.Cut()
			proxy.Pass(t)
			all.Wait()
			if n := a.Stats().Leases.Stranded; n > 4*7 {
				t.Errorf("%d units were dropped", n)
			}
			// some may be under way when the connection ends
			if lost.Load() > 10 || failed.Load() > 10 {
				t.Errorf("%d takes failed, and %d settlements were lost", failed.Load(), lost.Load())
			}
		})
	}
}

// A window that is spent is refused from memory, also while this process has units of it that are
// too few: takes of it would wait for each other's round trips.
func TestASpentWindowWithLeasedUnitsIsRefusedFromMemory(t *testing.T) {
	t.Parallel()
	a := leasing(t, at(redistest.Start(t)))
	c := charge("a", 10, 3600, 3)
	for range 3 {
		if r := take(t, a, c); !r.Allowed {
			t.Fatalf("refused at %+v", r.Used[0])
		}
	}
	before := a.Stats()
	const refusals = 100
	for range refusals {
		if r := take(t, a, c); r.Allowed || r.Used[0].Count != 9 {
			t.Fatalf("allowed %t at %+v, want a refusal at 9: one unit is left here", r.Allowed, r.Used[0])
		}
	}
	if n := a.Stats().Remembered - before.Remembered; n < refusals/2 {
		t.Errorf("%d of %d takes were refused from memory", n, refusals)
	}
	c.Cost = 1
	if r := take(t, a, c); !r.Allowed || r.Used[0].Count != 10 {
		t.Errorf("the last unit: allowed %t at %+v", r.Allowed, r.Used[0])
	}
}
