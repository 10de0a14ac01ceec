package redisstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

// requests sends a request every so often for a time, and returns how long the slowest one waited
// that was sent when the node knew its rate.
func (n *simNode) requests(every, length time.Duration, c weir.Charge) (slowest time.Duration) {
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for time.Since(began) < length {
		sent, counts := time.Now(), time.Since(began) > 5*time.Second
		all.Go(func() {
			n.take([]weir.Charge{c})
			mu.Lock()
			defer mu.Unlock()
			if counts {
				slowest = max(slowest, time.Since(sent))
			}
		})
		time.Sleep(every)
	}
	all.Wait()
	return slowest
}

// refilled runs requests of one node that is far from the store, with a limit and the time between
// two requests.
func refilled(t *testing.T, limit int64, every time.Duration) (slowest time.Duration, s *simStore, left int64) {
	synctest.Test(t, func(t *testing.T) {
		s = &simStore{fault: simSound, keys: make(map[string]*simKey)}
		n := &simNode{store: s, start: time.Now(), delay: 5 * time.Millisecond, even: true}
		n.boot(LeasesAuto)
		c := weir.Charge{Key: []byte("caller"), Limit: limit, Per: 60, Cost: 1}
		slowest = n.requests(every, 50*time.Second, c)
		n.end()
		synctest.Wait()
		left = limit - s.keys["caller"].open.admitted
		for _, text := range s.wrong {
			t.Error(text)
		}
	})
	return slowest, s, left
}

// A pocket is filled before it is empty: no request waits for it.
func TestAPocketIsFilledBeforeItIsEmpty(t *testing.T) {
	slowest, s, _ := refilled(t, 1e6, time.Millisecond)
	if slowest > 0 {
		t.Errorf("a request waited for %v", slowest)
	}
	if s.early == 0 || s.early > 200 {
		t.Errorf("%d refills in 50 s", s.early)
	}
}

// Requests that come seldom have their pockets filled by the one that finds it empty: a refill
// before that would ask the store more often.
func TestAQuietPocketIsFilledWhenItIsEmpty(t *testing.T) {
	if _, s, _ := refilled(t, 600, 100*time.Millisecond); s.early > 0 {
		t.Errorf("%d of %d questions were for a pocket that was not empty", s.early, s.asks)
	}
}

// Near the end of a budget every unit is given out, and refills become no more than answers are.
func TestRefillsEndWithTheBudget(t *testing.T) {
	_, s, left := refilled(t, 20_000, time.Millisecond)
	if left > 0 || s.refused == 0 {
		t.Errorf("%d units are left, and %d requests were refused", left, s.refused)
	}
	if s.early == 0 || s.early > 100 {
		t.Errorf("%d refills", s.early)
	}
}

// settle sends a settlement of a window, which pockets have to wait for.
func (n *simNode) settle(c *weir.Charge) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := &order{changes: []orderedChange{{hash: simHash(c), units: -1}}}
	n.now.Load().leases.settling(ctx, o)
	takes := 2 * n.delay
	if o.tells { // it waits for the batch before
		takes *= 2
	}
	_ = wait.For(ctx, takes)
	if o.leave != nil {
		o.leave()
	}
}

// A request that waits for a pocket, and for settlements, can miss its deadline, and so can all
// that wait behind it. Then the units go back, so that the next ones wait for nothing.
func TestRequestsDoNotMissTheirDeadlinesForLong(t *testing.T) {
	var offered, missed int64
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := &simStore{seed: seed, fault: simSound, keys: make(map[string]*simKey)}
			n := &simNode{store: s, start: time.Now(), delay: 20 * time.Millisecond, even: true}
			n.boot(LeasesAuto)
			c := weir.Charge{Key: []byte("caller"), Limit: 40000, Per: 3600, Cost: 10}
			var settlements sync.WaitGroup
			n.admitted = func() { settlements.Go(func() { n.settle(&c) }) }
			n.requests(time.Duration(2000+100*seed)*time.Microsecond, 8*time.Second, c)
			settlements.Wait()
			n.end()
			synctest.Wait()
			offered, missed = offered+s.offered, missed+s.offered-s.admitted-s.refused
		})
	}
	if missed > offered/20 {
		t.Errorf("%d of %d requests missed their deadline", missed, offered)
	}
}

// While the store does not answer, units that keep requests waiting stay where they are: they would
// not arrive, and on_store_failure: pocket spends them.
func TestSlowUnitsStayInAnOutage(t *testing.T) {
	for name, gone := range map[string]bool{"no answer": false, "no connection": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &simStore{fault: simSound, keys: make(map[string]*simKey)}
				n := &simNode{store: s, start: time.Now(), delay: time.Millisecond, even: true}
				n.boot(LeasesEager)
				c := weir.Charge{Key: []byte("caller"), Limit: 100, Per: 3600, Cost: 1, OnFailure: weir.FailPocket | weir.FailDeny}
				n.take([]weir.Charge{c})
				e := n.now.Load().leases.table.find(simHash(&c))
				before := e.pocket.Units()
				n.away.Store(true)
				if gone {
					n.epoch.Add(1)
				}
				exact := c
				exact.Exact = true // the pocket cannot serve it
				n.take([]weir.Charge{exact})
				time.Sleep(2 * maxReturn)
				if units := e.pocket.Units(); before == 0 || units != before {
					t.Errorf("%d units are left of %d", units, before)
				}
				n.end()
				synctest.Wait()
			})
		})
	}
}

// A refill that is under way when the store is closed leaves nothing spent.
func TestARefillIsOverAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{fault: simSound, keys: make(map[string]*simKey)}
		n := &simNode{store: s, start: time.Now(), delay: 20 * time.Millisecond, even: true}
		n.boot(LeasesEager)
		c := weir.Charge{Key: []byte("caller"), Limit: 100, Per: 3600, Cost: 1}
		n.take([]weir.Charge{c})
		a := n.now.Load().leases
		e := a.table.find(simHash(&c))
		time.Sleep(200*time.Millisecond - time.Since(n.start))
		for e.low.Store(7); e.pocket.Units() > 0; {
			n.take([]weir.Charge{c})
		}
		synctest.Wait()
		a.returnIdle(t.Context()) // forgets the empty pocket
		a.end(t.Context())
		n.end()
		synctest.Wait()
		if w := s.keys["caller"].open; s.early == 0 || w.count != w.admitted {
			t.Errorf("%d refills; %d units are spent, and %d were admitted", s.early, w.count, w.admitted)
		}
	})
}

// What a refill costs is known to be lost if its answer leases nothing.
func TestARefillThatLeasesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender, c, e := leasedOnce(t)
		for e.low.Store(7); e.pocket.Units() > 6; {
			ask(t, a, c)
		}
		lender.unmarked, lender.most["a"] = true, 0
		(<-a.chores)(t.Context())
		w := lender.store.keys["a"].open
		const given = 1 // out of the pocket
		if lost := a.stranded.Load(); lost != 1 || w.count != w.admitted+given+e.pocket.Units()+lost {
			t.Errorf("%d units are spent, %d were admitted, %d are left and %d are lost", w.count, w.admitted, e.pocket.Units(), lost)
		}
	})
}

// A caller whose own limit is reached does not keep the pocket of all from being filled.
func TestARefillThatIsLeftIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		full, other, all := of("a", 8, 1), of("b", 1000, 1), of("z", 1e6, 1)
		lender.most["z"] = 7
		ask(t, a, full, all)
		ask(t, a, other, all)
		e := a.table.find(hashOf(&all))
		e.low.Store(7)
		ask(t, a, full, all)
		(<-a.chores)(t.Context())
		for e.pocket.Units() > 1 {
			ask(t, a, other, all)
		}
		if len(a.chores) == 0 {
			t.Errorf("the pocket of all has %d units, and no refill begins", e.pocket.Units())
		}
	})
}

// Every unit that the lender has charged for later takes is in one of the figures.
func TestAUnitOfARefillIsCountedAsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, c, e := leasedOnce(t)
		for range 3 {
			e.low.Store(100)
			ask(t, a, c)
			(<-a.chores)(t.Context())
		}
		a.giveBack(t.Context(), e)
		if g, became := a.granted.Load(), a.served.Load()+a.returned.Load()+a.stranded.Load()+a.heldBack.Load(); g != became {
			t.Errorf("%d granted: %d served, %d returned, %d stranded, %d held back", g, a.served.Load(), a.returned.Load(), a.stranded.Load(), a.heldBack.Load())
		}
	})
}

// A server that was emptied may have the window again, with the same end. The units of before are
// not part of its count.
func TestUnitsThatTheServerHasLostAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender, c, e := leasedOnce(t)
		w := lender.store.keys["a"].open
		lender.store.keys["a"].open = &simWindow{from: w.from, reset: w.reset, count: 1, admitted: 1}
		e.low.Store(100)
		ask(t, a, c)
		lender.most["a"] = 2
		(<-a.chores)(t.Context())
		if r := ask(t, a, c); !r.Leased || r.Used[0].Count != 2 || a.stranded.Load() != 6 {
			t.Errorf("leased: %t, as number %d, with %d units stranded; want number 2, and the 6 of before", r.Leased, r.Used[0].Count, a.stranded.Load())
		}
	})
}

// A refill that was granted little, as at the end of a budget, is not followed by another.
func TestARefillThatFillsIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, c, e := leasedOnce(t)
		e.low.Store(100)
		ask(t, a, c)
		(<-a.chores)(t.Context())
		if low := e.low.Load(); low != 0 { // no time has passed, so none is due early
			t.Errorf("after a refill the next one is due below %d units, want none", low)
		}
	})
}
