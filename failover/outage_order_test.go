package failover_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// A refusal that is not counted has the store's time, as far as it is known.
func TestDenyUsesTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		deny := limiter("l", "9 per minute by ip")
		deny.OnStoreFailure = weir.FailDeny
		n := newNode(t, store, deny)
		store.ahead.Store(int64(5 * time.Minute))
		store.mode.Store(fails)
		d := n.outcome(weir.StoreUnavailable, ip)
		n.want(d, "refused 9 0 1 1")
		if want := time.Now().Unix() + 300; d.Now != want {
			t.Errorf("it is %d, want %d", d.Now, want)
		}
	})
}

// If a give fails, the next one follows after a second.
func TestAFailedGivePausesGiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per hour by ip"))
		store.gives.Store(fails)
		for i := range 5 {
			store.mode.Store(fails)
			n.outcome(weir.CountedLocally, who(i))
			store.mode.Store(answers)
			n.outcome(weir.Counted, ip)
			synctest.Wait()
		}
		if calls := store.windowsGiven(); len(calls) != 1 {
			t.Errorf("gave %v windows at once", calls)
		}
		store.gives.Store(answers)
		<-time.After(time.Second)
		n.outcome(weir.Counted, ip)
		synctest.Wait()
		<-time.After(time.Second)
		n.outcome(weir.Counted, ip)
		if e := n.recovered(); e.Given != 4 || e.Lost != 1 {
			t.Errorf("events are %+v", e)
		}
	})
}

// A give that hangs and fails, while takes fail as well, does not keep the breaker
// open after the store's answer.
func TestAnAnswerInThePauseOfGivingClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per hour by ip"))
		store.mode.Store(fails)
		n.outcome(weir.CountedLocally, ip)
		store.mode.Store(answers)
		store.gives.Store(hangs)
		n.outcome(weir.CountedLocally, ip) // and the give hangs for a second
		<-time.After(500 * time.Millisecond)
		store.mode.Store(fails)
		n.openByMany()
		<-time.After(time.Second)
		store.mode.Store(answers)
		store.gives.Store(answers)
		n.outcome(weir.CountedLocally, ip)
		synctest.Wait()
		n.outcome(weir.Counted, ip)
		<-time.After(time.Second)
		n.outcome(weir.Counted, ip)
		if e := n.recovered(); e.Lost != 2 || e.Given != 21 {
			t.Errorf("events are %+v", e)
		}
	})
}

// If takes have opened the breaker, a successful give does not close it.
func TestAGiveDoesNotCloseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per hour by ip"))
		store.mode.Store(fails)
		n.outcome(weir.CountedLocally, ip)
		store.mode.Store(answers)
		store.slow.Store(int64(200 * time.Millisecond))
		n.outcome(weir.CountedLocally, ip)
		synctest.Wait() // the store was asked whether it answers, and the give takes 200 ms
		store.mode.Store(fails)
		n.openByMany()
		<-time.After(500 * time.Millisecond)
		if got := store.units(); got != 2 {
			t.Errorf("the store was given %d units, want 2", got)
		}
		before := store.asked()
		n.outcome(weir.CountedLocally, ip)
		if store.asked() != before {
			t.Error("the breaker is closed")
		}
	})
}

// While pending units are given to the store, no request probes it, however long
// that takes. The same holds while a probe is running.
func TestOnlyOneRequestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNodeWithin(t, 500*time.Millisecond, store, limiter("l", "1000 per hour by ip"))
		store.mode.Store(fails)
		n.open(ip)
		<-time.After(time.Second)
		store.mode.Store(hangs)
		var trying sync.WaitGroup
		trying.Go(func() { n.ask("l", 0, ip) })
		synctest.Wait()
		before := store.asked()
		n.outcome(weir.CountedLocally, ip)
		if store.asked() != before {
			t.Error("two requests probed at once")
		}
		trying.Wait()
		<-time.After(time.Second)

		store.mode.Store(answers)
		store.slow.Store(int64(4 * time.Second))
		n.outcome(weir.CountedLocally, ip)
		for range 3 {
			<-time.After(time.Second)
			n.outcome(weir.CountedLocally, ip)
		}
		<-time.After(10 * time.Second)
		n.outcome(weir.Counted, ip)
		n.recovered()
	})
}

// Events are delivered one at a time, in the order in which they happened.
func TestEventsAreDeliveredOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per hour by ip"))
		n.slow.Store(int64(5 * time.Second))
		store.mode.Store(fails)
		var telling sync.WaitGroup
		telling.Go(func() { n.ask("l", 0, ip) })
		<-time.After(3 * time.Second)
		store.mode.Store(answers)
		n.slow.Store(0)
		n.outcome(weir.Counted, ip)
		synctest.Wait()
		if e := n.events(); len(e) != 0 {
			t.Errorf("events are %+v while the first is being delivered", e)
		}
		telling.Wait()
		n.recovered()
	})
}

// Close does not report that the store has recovered.
func TestCloseIsNotReportedAsARecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per second by ip"))
		store.mode.Store(fails)
		n.open(ip)
		<-time.After(4 * time.Second) // the pending windows have ended
		if err := n.over.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if !n.over.Health().Failing || len(n.events()) != 1 {
			t.Errorf("events are %+v", n.events())
		}
	})
}

// OnEvent may call the Decider and the Store.
func TestOnEventMayCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		var seen []bool
		store := newCommon(t)
		store.mode.Store(fails)
		b = newBench(t, policyOf(limiter("l", "3 per minute by ip")), &link{common: store}, nil, failover.Options{OnEvent: func(e failover.Event) {
			seen = append(seen, e.Failing, b.over.Health().Failing)
			b.ask("l", 0, ip)
		}})
		b.ask("l", 0, ip)
		<-time.After(3 * time.Second)
		store.mode.Store(answers)
		b.ask("l", 0, ip)
		if fmt.Sprint(seen) != "[true true false false]" {
			t.Errorf("events and health are %v", seen)
		}
	})
}
