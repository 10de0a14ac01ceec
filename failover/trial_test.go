package failover_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// If the store has lost a window, the window still ends at its promised reset
// (D25). No caller opens it anew before the locally counted units have arrived.
func TestAnEmptiedStoreGetsPendingUnitsBeforeItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		n.ask("l", 0, ip)
		<-time.After(20 * time.Second)
		store.mode.Store(fails)
		n.open(ip)
		<-time.After(time.Second)
		store.empty(t)
		store.mode.Store(answers)
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 100 78 39 0")
		synctest.Wait()
		// 20, 1 and this; the store's own counts are lost.
		n.want(n.outcome(weir.Counted, ip), "allowed 100 78 39 0")
	})
}

// If a ping fails, that is a failure like any other, with the same time bound.
func TestATrialThatFailsKeepsTheBreakerOpen(t *testing.T) {
	for _, failure := range []int32{fails, hangs} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			n := newNode(t, store, limiter("l", "100 per minute by ip"))
			store.mode.Store(fails)
			n.open(ip)
			store.mode.Store(failure)
			for range 3 {
				<-time.After(time.Second)
				before, start := store.asked(), time.Now()
				n.outcome(weir.CountedLocally, ip)
				n.outcome(weir.CountedLocally, ip)
				if asked := store.asked() - before; asked != 1 || time.Since(start) > 100*time.Millisecond {
					t.Errorf("the store was tried %d times in %v", asked, time.Since(start))
				}
			}
			if len(store.windowsGiven()) != 0 || len(n.events()) != 1 {
				t.Errorf("gave %v, events are %+v", store.windowsGiven(), n.events())
			}
		})
	}
}

// Without requests, a probe each second finds out whether the store answers, gives
// the pending units, and reports the recovery. If nothing is pending, it sends
// nothing.
func TestAnIdleProcessRecoversByProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		n.ask("l", 0, ip)
		n.over.Probe(t.Context())
		if store.asked() != 1 {
			t.Error("a store that answers and has nothing pending was asked")
		}
		store.mode.Store(fails)
		n.open(ip)
		probe := func() {
			for range 3 {
				n.over.Probe(t.Context())
			}
			synctest.Wait()
		}
		before := store.asked()
		for range 3 {
			probe()
			<-time.After(time.Second)
		}
		if asked := store.asked() - before; asked != 2 {
			t.Errorf("the store was tried %d times in two seconds", asked)
		}
		store.mode.Store(answers)
		for range 5 {
			probe()
			<-time.After(time.Second)
		}
		if e := n.recovered(); e.Given != 20 || store.units() != 20 {
			t.Errorf("events are %+v", e)
		}
		before = store.asked()
		probe()
		if store.asked() != before {
			t.Error("a store that has recovered was asked")
		}
	})
}

// KeepProbing does what a process with requests does, until its context ends.
func TestProbingRecoversAnIdleProcessUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(fails)
		n.open(ip)
		ctx, cancel := context.WithCancel(t.Context())
		var probing sync.WaitGroup
		probing.Go(func() { n.over.KeepProbing(ctx) })
		store.mode.Store(answers)
		<-time.After(5 * failover.ProbeInterval)
		n.recovered()
		cancel()
		probing.Wait() // or the bubble is deadlocked
	})
}

// A single failure leaves the breaker closed, and a unit pending. That unit is
// given without a request, too.
func TestAProbeGivesTheUnitsOfASingleFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(fails)
		n.ask("l", 0, ip)
		store.mode.Store(answers)
		n.over.Probe(t.Context())
		synctest.Wait()
		if store.units() != 1 {
			t.Errorf("the store has got %d units, want 1", store.units())
		}
	})
}

// Probe has no effect if the store is not shared.
func TestProbeSkipsAnUnsharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weir.FailLocal)
		c.store.mode.Store(fails)
		c.ask("l", 0, ip)
		before := c.store.takes.Load()
		c.over.Probe(t.Context())
		if c.store.takes.Load() != before {
			t.Error("it was asked")
		}
	})
}

// The store gets all pending units before it is used again, however many there are.
// Only the units that are counted meanwhile are bounded.
func TestTheFirstRoundIsGivenInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const windows = 2000
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per hour by ip"))
		store.mode.Store(fails)
		n.open(ip)
		for i := range windows {
			n.ask("l", 0, who(i))
		}
		<-time.After(time.Second)
		store.mode.Store(answers)
		store.slow.Store(int64(900 * time.Millisecond)) // each of 8
		n.ask("l", 0, ip)
		start := time.Now()
		for i := 0; n.ask("l", 0, who(i)).Outcome != weir.Counted; i++ {
			if store.units() < windows && n.over.Health() == (failover.Health{}) {
				t.Error("recovered before it has everything")
			}
			<-time.After(10 * time.Millisecond)
		}
		if got := store.units(); got < windows+20 {
			t.Errorf("the store was asked when it had got %d units of %d", got, windows+20)
		}
		if took := time.Since(start); took < 8*900*time.Millisecond || took > 10*time.Second {
			t.Errorf("the store was asked again after %v", took)
		}
		if err := n.over.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If the store cannot count charges together, they are counted here, and this does
// not count as a failure.
func TestChargesThatCannotBeCountedTogetherAreNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(splits)
		for range 50 {
			n.outcome(weir.CountedLocally, ip)
		}
		if store.asked() != 50 || len(n.events()) != 0 || n.over.Health() != (failover.Health{}) {
			t.Errorf("asked %d times of 50, events are %+v", store.asked(), n.events())
		}
		store.mode.Store(answers)
		n.ask("l", weir.Peek, ip)
		synctest.Wait()
		n.want(n.outcome(weir.Counted, ip), "allowed 100 49 60 0") // it has the pending units
		store.mode.Store(fails)
		for range 20 {
			n.ask("l", weir.Peek, ip)
		}
		<-time.After(time.Second)
		for _, mode := range []int32{splits, answers} { // the probe is passed on
			store.mode.Store(mode)
			n.ask("l", weir.Peek, ip)
		}
		<-time.After(4 * time.Second)
		n.outcome(weir.Counted, ip)
		if e := n.recovered(); e.Local != 20 {
			t.Errorf("events are %+v", e)
		}
	})
}

// If one machine of several is dead, the store fails now and then, and answers in
// between. That is one outage.
func TestAStoreThatKeepsFailingHasNotRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per minute by ip"))
		start := time.Now()
		for i := range 10 {
			store.mode.Store(fails)
			n.ask("l", 0, who(1))
			store.mode.Store(answers)
			for range 1 + 10*(i%3) {
				<-time.After(100 * time.Millisecond)
				n.ask("l", 0, ip)
			}
			if h := n.over.Health(); !h.Failing || h.Since != start {
				t.Fatalf("Health is %+v", h)
			}
		}
		<-time.After(2800 * time.Millisecond)
		n.ask("l", 0, ip)
		if len(n.events()) != 1 {
			t.Errorf("events are %+v", n.events())
		}
		<-time.After(200 * time.Millisecond)
		n.ask("l", 0, ip)
		if e := n.recovered(); e.Local != 10 {
			t.Errorf("events are %+v", e)
		}
	})
}

// While the units of a window are being given, the store is not asked for that
// window, though the breaker is closed.
func TestAWindowBeingGivenIsCountedLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "10 per minute by ip"))
		store.mode.Store(fails)
		n.ask("l", 0, ip)
		store.mode.Store(answers)
		store.slow.Store(int64(400 * time.Millisecond))
		n.over.Probe(t.Context())
		synctest.Wait() // the unit is being sent
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 10 8 60 0")
		n.outcome(weir.Counted, who(1))
		<-time.After(time.Second) // this unit has followed
		n.want(n.outcome(weir.Counted, ip), "allowed 10 7 59 0")
		if got := store.units(); got != 2 {
			t.Errorf("the store was given %d units, want 2", got)
		}
	})
}
