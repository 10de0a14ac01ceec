package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// A window that the store has forgotten ends there when callers were told, whoever asks first
// (D25): nobody opens it anew before what was counted here has arrived.
func TestAStoreThatWasEmptiedIsGivenWhatItIsOwedBeforeItIsAsked(t *testing.T) {
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
		// 20, 1 and this; what it had counted itself is gone.
		n.want(n.outcome(weir.Counted, ip), "allowed 100 78 39 0")
	})
}

// A ping that fails is a failure like any other, and as bounded.
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
				t.Errorf("gave %v, told of %+v", store.windowsGiven(), n.events())
			}
		})
	}
}

// Without any request a probe each second finds out that the store answers, gives it what it is
// owed, and tells so; where there is nothing to do it does not ask.
func TestAnIdleProcessRecoversByItsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		n.ask("l", 0, ip)
		n.over.Probe(t.Context())
		if store.asked() != 1 {
			t.Error("a store that answers and is owed nothing was asked")
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
			t.Errorf("told of %+v", e)
		}
		before = store.asked()
		probe()
		if store.asked() != before {
			t.Error("a store that has recovered was asked")
		}
	})
}

// A single failure leaves the breaker closed, and a unit that is owed: that is given without a
// request, too.
func TestAProbeGivesWhatASingleFailureCounted(t *testing.T) {
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

// Probing takes nothing from who has no shared store.
func TestProbeAsksNoStoreOfOnesOwn(t *testing.T) {
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

// However much an outage has left, the store has all of it before it is asked again; only what
// comes meanwhile is bounded.
func TestTheFirstRoundIsGivenWholeHoweverLongItTakes(t *testing.T) {
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
				t.Error("good before it has everything")
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

// Charges that the store cannot count together are counted here, and say nothing about whether it
// answers.
func TestChargesThatCannotBeCountedTogetherAreNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(splits)
		for range 50 {
			n.outcome(weir.CountedLocally, ip)
		}
		if store.asked() != 50 || len(n.events()) != 0 || n.over.Health() != (failover.Health{}) {
			t.Errorf("asked %d times of 50, told of %+v", store.asked(), n.events())
		}
		store.mode.Store(answers)
		n.ask("l", weir.Peek, ip)
		synctest.Wait()
		n.want(n.outcome(weir.Counted, ip), "allowed 100 49 60 0") // it has got them
		store.mode.Store(fails)
		for range 20 {
			n.ask("l", weir.Peek, ip)
		}
		<-time.After(time.Second)
		for _, mode := range []int32{splits, answers} { // the trial passes on
			store.mode.Store(mode)
			n.ask("l", weir.Peek, ip)
		}
		<-time.After(4 * time.Second)
		n.outcome(weir.Counted, ip)
		if e := n.recovered(); e.Local != 20 {
			t.Errorf("told of %+v", e)
		}
	})
}

// A store of which one machine of several is dead fails every now and then, and answers in between:
// that is one outage.
func TestAStoreThatFailsEverySecondOrTwoHasNotRecovered(t *testing.T) {
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
				t.Fatalf("Health says %+v", h)
			}
		}
		<-time.After(2800 * time.Millisecond)
		n.ask("l", 0, ip)
		if len(n.events()) != 1 {
			t.Errorf("told of %+v", n.events())
		}
		<-time.After(200 * time.Millisecond)
		n.ask("l", 0, ip)
		if e := n.recovered(); e.Local != 10 {
			t.Errorf("told of %+v", e)
		}
	})
}

// A window whose units are on their way to the store is not asked about before they have arrived,
// though the breaker is closed.
func TestAWindowOnItsWayToTheStoreIsCountedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "10 per minute by ip"))
		store.mode.Store(fails)
		n.ask("l", 0, ip)
		store.mode.Store(answers)
		store.slow.Store(int64(400 * time.Millisecond))
		n.over.Probe(t.Context())
		synctest.Wait() // the unit is on its way
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 10 8 60 0")
		n.outcome(weir.Counted, who(1))
		<-time.After(time.Second) // this unit has followed
		n.want(n.outcome(weir.Counted, ip), "allowed 10 7 59 0")
		if got := store.units(); got != 2 {
			t.Errorf("the store was given %d units, want 2", got)
		}
	})
}
