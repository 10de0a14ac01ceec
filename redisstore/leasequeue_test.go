package redisstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// Takes that need no units go to the server at the same time, although they have waited for the
// turn of another.
func TestTakesThatNeedNoUnitsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		a.eager = false // so that one is not wished for
		c := of("a", 10, 1)
		for range 10 {
			ask(t, a, c)
		}
		e := a.table.find(hashOf(&c))
		if err := e.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		lender.answered = func() { time.Sleep(time.Millisecond) } // of the bubble's time
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if r := ask(t, a, c); r.Allowed {
					t.Errorf("admitted at %d of 10", r.Used[0].Count)
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		e.release()
		all.Wait()
		if took := time.Since(begun); took > 2*time.Millisecond {
			t.Errorf("100 answers of a millisecond took %v", took)
		}
	})
}

// A gate passes by the units that this process has, if they are what it looks for by themselves:
// what else is left may have gone to others.
func TestAGatePassesByLeasedUnits(t *testing.T) {
	a, lender := newSlowLeases()
	now, _ := a.clock()
	a.ahead.learn(time.Now().UnixNano(), now, now)
	ask(t, a, of("a", 100, 1)) // 7 are left
	passes := func(limit int64) bool {
		c, r := of("a", limit, weir.Gate), weir.Receipt{}
		hashes := [weir.MaxCharges]hash{hashOf(&c)}
		return a.pass([]weir.Charge{c}, &hashes, false, &r)
	}
	if !passes(100) {
		t.Error("a gate does not pass although there are units")
	}
	if !passes(94) { // it looks for 7
		t.Error("a gate that looks for 7 units of 7 does not pass")
	}
	if passes(93) {
		t.Error("a gate that looks for 8 units passes by 7")
	}
	lender.gone = true
	if passes(100) {
		t.Error("a gate passes by units of an ended connection")
	}
}

// On a cluster what is known of a machine's clock may be older for one window than for another:
// what units of both serve shows a time at which both are open.
func TestATakeOfTwoWindowsIsBeforeTheOpeningOfNeither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newSlowLeases()
		first, second := of("a", 100, 1), of("b", 100, 1)
		now, _ := a.clock()
		a.ahead.learn(time.Now().UnixNano(), now, now)
		ask(t, a, first, second)
		at := time.Now().Add(10 * time.Second)
		for c, late := range map[*weir.Charge]time.Duration{&first: 2 * time.Second, &second: 0} {
			e := a.table.find(hashOf(c))
			e.place.Store(&leasedPlace{name: string(c.Key), slot: 1})
			e.ahead.learn(at.UnixNano(), now, now+late) // the answer was under way for so long
		}
		for _, in := range [][]weir.Charge{{first, second}, {second, first}} {
			if r := ask(t, a, in...); !r.Leased || r.Now != at.Unix() {
				t.Errorf("leased: %t, at %d; want %d", r.Leased, r.Now, at.Unix())
			}
		}
		if r := ask(t, a, first); !r.Leased || r.Now != at.Unix() {
			t.Errorf("the first window afterwards: leased: %t, at %d; want %d", r.Leased, r.Now, at.Unix())
		}
	})
}

// Requests under another limit, such as exempt ones, leave units to those for which they were
// leased.
func TestRequestsUnderAnotherLimitLeaveUnits(t *testing.T) {
	a, _ := newSlowLeases()
	c, exempt := of("a", 100, 1), of("a", 1<<30, 1)
	exempt.Exact = true
	ask(t, a, c)
	ask(t, a, exempt)
	if r := ask(t, a, c); !r.Leased || r.Used[0].Count != 3 {
		t.Errorf("after an exempt request: %+v", r)
	}
}

// If more than a few requests cannot be served by units, none are leased, and what is there goes
// back: such requests would wait for each other.
func TestAWindowOfOtherRequestsIsNotLeased(t *testing.T) {
	a, lender := newSlowLeases()
	a.eager = false
	lender.most["a"] = 1000
	c, exempt := of("a", 1e6, 1), of("a", 1<<30, 1)
	exempt.Exact = true
	for range 1000 {
		ask(t, a, c)
	}
	e := a.table.find(hashOf(&c))
	if e.pocket.Units() == 0 {
		t.Fatal("nothing is leased")
	}
	for range 1000 {
		ask(t, a, exempt)
		if e.pocket.Units() == 0 {
			return
		}
	}
	t.Errorf("%d units are leased after 1000 requests that they cannot serve", e.pocket.Units())
}

// A limit by caller beside one for everybody: units of a busy caller and of everybody are leased,
// and requests of other callers, who have none, do not wait for each other because of these.
func TestCallersWithoutUnitsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 3 * time.Millisecond
		a, lender := newSlowLeases()
		a.eager = false
		lender.most["h"], lender.most["e"] = 1e6, 1e6
		lender.answered = func() { time.Sleep(trip) }
		everybody, busy := of("e", 1e6, 1), of("h", 1e6, 1)
		for range 2000 { // 20 seconds
			ask(t, a, busy, everybody)
			time.Sleep(10 * time.Millisecond)
		}
		if a.served.Load() == 0 {
			t.Fatal("nothing is served from units")
		}
		var all sync.WaitGroup
		var slowest atomic.Int64
		for i := range 4000 { // 2 seconds
			caller := of(fmt.Sprint(i), 1e6, 1)
			if i%20 == 0 {
				caller = busy
			}
			all.Go(func() {
				began := time.Now()
				ask(t, a, caller, everybody)
				took := int64(time.Since(began))
				for was := slowest.Load(); took > was && !slowest.CompareAndSwap(was, took); was = slowest.Load() {
				}
			})
			time.Sleep(time.Second / 2000)
		}
		all.Wait()
		if most := time.Duration(slowest.Load()); most > 10*trip {
			t.Errorf("one of 2000 requests a second took %v, and an answer of the store takes %v", most, trip)
		}
	})
}

// A process that closes while it has requests leaves no units leased.
func TestNoUnitsAreLeasedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender := newSlowLeases()
		lender.answered = func() { time.Sleep(time.Millisecond) }
		var all sync.WaitGroup
		done := make(chan struct{})
		lender.most["c"], lender.most["d"] = 7, 7
		for _, key := range []string{"a", "b", "c", "d"} {
			all.Go(func() {
				for {
					ask(t, a, of(key, 1e6, 1))
					time.Sleep(time.Millisecond / 4)
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for range 20 {
			time.Sleep(10300 * time.Microsecond)
			a.end(t.Context())
			if a.active.holds() {
				t.Error("units are leased after the end")
			}
			a.ending.Store(false)
		}
		a.end(t.Context())
		time.Sleep(10 * time.Millisecond)
		close(done)
		all.Wait()
		if a.active.holds() {
			t.Error("units were leased after the end")
		}
		if a.served.Load() == 0 || a.returned.Load() == 0 {
			t.Errorf("%d takes were served from units, and %d units went back", a.served.Load(), a.returned.Load())
		}
	})
}
