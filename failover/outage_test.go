package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

func who(i int) caller { return caller{"ip": strconv.Itoa(i)} }

// If a window is half spent at the store, it is half spent here, and has the same
// end (D25).
func TestTheLocalCountStartsFromTheStoresCount(t *testing.T) {
	for _, failure := range []int32{fails, hangs} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			n := newNode(t, store, limiter("l", "6 per minute by ip", "100 per hour by ip"))
			for range 3 {
				n.ask("l", 0, ip)
			}
			<-time.After(20 * time.Second)
			store.mode.Store(failure)
			n.want(n.ask("l", weir.Peek, ip), "allowed 6 3 40 0")
			n.want(n.ask("l", 0, ip), "allowed 6 2 40 0")
			n.want(n.ask("l", 0, ip), "allowed 6 1 40 0")
			n.want(n.ask("l", 0, who(1)), "allowed 6 5 60 0") // this caller is unknown
			n.want(n.ask("l", 0, ip), "allowed 6 0 40 0")
			d := n.ask("l", 0, ip)
			if d.Allowed || d.Binding().Remaining != 0 || d.Binding().Reset-d.Now > 40 {
				t.Errorf("with nothing left the decision is %+v", d)
			}
			if s := d.Standings()[1]; s.Remaining != 94 || s.Refused {
				t.Errorf("the hour is %+v, want 94 left", s)
			}
		})
	}
}

// Units that were counted here are given to the store once, before it counts again
// (D25). The event then has their number.
func TestLocalUnitsAreGivenBeforeTheStoreIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		n.want(n.ask("l", 0, ip), "allowed 100 99 60 0")
		<-time.After(5 * time.Second)
		store.mode.Store(fails)
		start := time.Now()
		n.open(ip)
		n.ask("l", 0, who(2))
		if h := n.over.Health(); !h.Failing || h.Since != start || !errors.Is(h.Err, errDown) {
			t.Errorf("Health is %+v", h)
		}
		<-time.After(time.Second)
		store.mode.Store(answers)
		store.slow.Store(int64(400 * time.Millisecond))
		// The request only probes the store.
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 100 78 54 0")
		synctest.Wait()
		for range 3 {
			n.outcome(weir.CountedLocally, ip) // given in the second round
		}
		<-time.After(500 * time.Millisecond)
		n.outcome(weir.CountedLocally, who(2))
		if len(n.events()) != 1 {
			t.Errorf("events are %+v before the store has everything", n.events())
		}
		<-time.After(time.Second)
		n.want(n.outcome(weir.Counted, ip), "allowed 100 74 53 0") // 1, 21, 3 and this
		n.want(n.outcome(weir.Counted, who(2)), "allowed 100 97 58 0")
		if got, want := n.recovered(), (failover.Event{For: 5500 * time.Millisecond, Local: 27, Given: 26}); got != want {
			t.Errorf("events are %+v, want %+v", got, want)
		}
		if got := store.units(); got != 26 {
			t.Errorf("the store was given %d units, want 26", got)
		}
		<-time.After(10 * time.Second)
		n.ask("l", 0, ip)
		if got := len(store.windowsGiven()); got != 3 {
			t.Errorf("there were %d gives, want 3 rounds", got)
		}
	})
}

// Two nodes that were both cut off admit at most their limits together. Once the
// store is back, they admit no more (D25).
func TestTwoNodesAdmitNoUnitTwiceAfterAnOutage(t *testing.T) {
	const limit = 100
	for _, failure := range []int32{fails, hangs, late} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			a := newNode(t, store, limiter("l", strconv.Itoa(limit)+" per hour by ip"))
			b := newNode(t, store, limiter("l", strconv.Itoa(limit)+" per hour by ip"))
			admitted := int64(0)
			ask := func(n *node, times int) {
				for range times {
					if n.ask("l", 0, ip).Allowed {
						admitted++
					}
				}
			}
			ask(a, 20)
			ask(b, 5)
			<-time.After(25 * time.Millisecond) // failures right after an answer are not in a row
			store.mode.Store(failure)
			store.slow.Store(int64(10 * time.Millisecond))
			admitted += a.open(ip) + b.open(ip)
			ask(a, 12)
			<-time.After(2 * time.Second)
			store.mode.Store(answers)
			ask(a, 1)
			<-time.After(time.Second)
			ask(b, 1)
			<-time.After(time.Second)
			for range limit {
				ask(a, 1)
				ask(b, 1)
			}
			left := limit - admitted
			if d := a.outcome(weir.Counted, ip); d.Allowed {
				t.Error("the store has units left")
			}
			if failure != late && left != 0 || left < 0 {
				t.Errorf("%d of %d admitted", admitted, limit)
			}
			lost := a.recovered().Lost + b.recovered().Lost
			if given := a.recovered().Given + b.recovered().Given; lost != 0 || given != store.units() {
				t.Errorf("given %d, lost %d, and the store has got %d", given, lost, store.units())
			}
		})
	}
}

// Single failures leave the breaker closed (D25). Their units are given at the next
// answer.
func TestUnitsOfASingleFailureAreGivenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "10 per minute by ip"))
		n.ask("l", 0, ip)
		store.mode.Store(late) // counted there, and here as well
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 10 8 60 0")
		store.mode.Store(answers)
		// The last unit has not arrived in the store.
		n.want(n.outcome(weir.CountedLocally, ip), "allowed 10 7 60 0")
		// No units of this window are pending.
		n.want(n.outcome(weir.Counted, who(1)), "allowed 10 9 60 0")
		synctest.Wait()
		n.want(n.outcome(weir.Counted, ip), "allowed 10 5 60 0")
		<-time.After(time.Second)
		n.ask("l", weir.Peek, ip)
		if e := n.recovered(); e.Given != 2 || e.Lost != 0 || e.Local != 2 {
			t.Errorf("events are %+v", e)
		}
	})
}

// If a give fails, it is not repeated: its units are lost, and reported. The other
// units wait for the store's next answer.
func TestAGiveThatFailsIsLostAndTheRestWaits(t *testing.T) {
	for _, failure := range []int32{fails, hangs} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			n := newNode(t, store, limiter("l", "1000 per hour by ip"))
			store.mode.Store(fails)
			n.open(ip)
			for i := range 399 {
				n.ask("l", 0, who(i))
			}
			<-time.After(time.Second)
			store.mode.Store(answers)
			store.gives.Store(failure)
			n.outcome(weir.CountedLocally, who(1000))
			if failure == hangs {
				<-time.After(time.Second) // as long as a give may take
			}
			synctest.Wait()
			n.outcome(weir.CountedLocally, ip) // the breaker is open again
			store.gives.Store(answers)
			if len(n.events()) != 1 || !n.over.Health().Failing {
				t.Errorf("events are %+v", n.events())
			}
			<-time.After(time.Second)
			n.outcome(weir.CountedLocally, who(1000))
			synctest.Wait()
			n.outcome(weir.Counted, who(1000))
			e := n.recovered()
			if e.Given+e.Lost != 20+399+3 || e.Lost < 256 || e.Given != store.units() {
				t.Errorf("events are %+v, and the store has got %d", e, store.units())
			}
			calls := store.windowsGiven()
			if fmt.Sprint(calls) != "[256 147]" { // of 401, and two more since
				t.Errorf("gave %v windows", calls)
			}
		})
	}
}

// The number of pending windows is bounded. Units beyond the bound are lost, and
// reported. Ended windows are removed.
func TestPendingWindowsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 18
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per minute by ip"))
		store.mode.Store(fails)
		n.open(ip)
		for i := range most + 9 {
			n.ask("l", 0, who(i))
		}
		n.ask("l", 0, who(3)) // it has a place already
		<-time.After(time.Minute)
		for i := range 1000 { // so have these: the others' windows have ended
			n.ask("l", 0, who(most+9+i))
		}
		n.ask("l", 0, who(3))
		store.mode.Store(answers)
		<-time.After(time.Second)
		n.outcome(weir.CountedLocally, ip)
		<-time.After(2 * time.Second)
		n.outcome(weir.Counted, ip)
		// Ip's window is one of the maximum.
		if e := n.recovered(); e.Lost != 10 || e.Given != 1002 || store.units() != 1002 {
			t.Errorf("events are %+v, and the store has got %d units", e, store.units())
		}
	})
}

// The bytes of their keys are bounded, too.
func TestTheBytesOfPendingWindowsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000 per minute by a+b+c+d"))
		long := strings.Repeat("x", 250)
		at := func(i int) caller { return caller{"a": strconv.Itoa(i), "b": long, "c": long, "d": long} }
		store.mode.Store(fails)
		n.open(at(0))
		const keys = 50_000
		for i := range keys {
			n.ask("l", 0, at(i))
		}
		if err := n.over.Close(t.Context()); err != nil {
			t.Error(err)
		}
		store.mode.Store(answers)
		<-time.After(time.Second)
		n.outcome(weir.Counted, at(0))
		if e := n.recovered(); e.Given+e.Lost != keys+20 || e.Given > 32<<20/750 || e.Given < 32<<20/850 {
			t.Errorf("events are %+v", e)
		}
	})
}

// A remembered answer does not close the breaker; the next request is the probe
// instead.
func TestARememberedAnswerDoesNotCloseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(fails)
		for range 20 {
			n.ask("l", weir.Peek, ip) // nothing is pending: the request is a probe
		}
		<-time.After(time.Second)
		store.mode.Store(remembers)
		for range 3 {
			if d := n.outcome(weir.Counted, ip); d.Allowed {
				t.Error("the remembered answer was a refusal")
			}
		}
		if !n.over.Health().Failing || len(n.events()) != 1 {
			t.Errorf("a remembered answer caused the events %+v", n.events())
		}
		store.mode.Store(fails)
		n.outcome(weir.CountedLocally, ip)
		before := store.asked()
		n.outcome(weir.CountedLocally, ip)
		if store.asked() != before {
			t.Error("the breaker closed without an answer")
		}
		<-time.After(time.Second)
		store.mode.Store(answers)
		n.outcome(weir.CountedLocally, ip)
		synctest.Wait()
		n.outcome(weir.Counted, ip)
		n.recovered()
	})
}

// Allow admits every request, and the units that the local count admitted are
// pending. A peek or a refusal adds none.
func TestOnlyLocallyAdmittedUnitsArePending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		allow, deny := limiter("l", "3 per minute by ip", "5 per hour by ip"), limiter("deny", "9 per minute by ip")
		allow.OnStoreFailure, deny.OnStoreFailure = weir.FailAllow, weir.FailDeny
		local := limiter("local", "2 per minute by everyone")
		n := newNode(t, store, allow, deny, local)
		store.mode.Store(fails)
		for range 20 {
			if d := n.outcome(weir.AllowedUncounted, ip); !d.Allowed {
				t.Error("allow refused")
			}
			n.ask("l", weir.Peek, who(1))
			n.want(n.ask("deny", 0, ip), "refused 9 0 1 1")
			n.ask("local", 0, ip)
		}
		<-time.After(time.Second)
		store.mode.Store(answers)
		n.ask("l", weir.Peek, who(2))
		synctest.Wait()
		if e := n.recovered(); e.Given != 3+3+2 || e.Local != 81 {
			t.Errorf("events are %+v", e)
		}
		if got := len(store.given); got != 3 {
			t.Errorf("%d windows were given, want 3", got)
		}
		for _, s := range store.given {
			if !strings.Contains(string(s.Key[:s.Scope]), "l") || s.Per == 0 || s.Subject < s.Scope || s.Used.Reset <= time.Now().Unix() {
				t.Errorf("given %+v", s)
			}
		}
	})
}

// Under load there are always more units to give. The breaker still closes, and the
// rest is given in parallel to requests.
func TestGivingEndsUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "1000000 per hour by ip"))
		store.mode.Store(fails)
		n.open(ip)
		<-time.After(time.Second)
		store.mode.Store(answers)
		store.slow.Store(int64(90 * time.Millisecond))
		start, counted := time.Now(), 0
		for time.Since(start) < 3*time.Second {
			if n.ask("l", 0, who(counted)).Outcome == weir.Counted {
				counted++
			}
			if counted > 1 {
				break
			}
			<-time.After(time.Millisecond)
		}
		if took := time.Since(start); took > 1100*time.Millisecond || counted != 2 {
			t.Errorf("the store was asked again after %v", took)
		}
		<-time.After(time.Second)
		n.ask("l", weir.Peek, ip)
		// The peek of open.
		if e := n.recovered(); e.Lost != 0 || e.Given != store.units() || e.Local-e.Given != 1 {
			t.Errorf("events are %+v, and the store has got %d units", e, store.units())
		}
	})
}

// Close gives the pending units and waits for that. The Store still works.
func TestCloseGivesPendingUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		n := newNode(t, store, limiter("l", "100 per minute by ip"))
		store.mode.Store(fails)
		store.slow.Store(int64(300 * time.Millisecond))
		n.open(ip)
		start := time.Now()
		if err := n.over.Close(t.Context()); err != nil || time.Since(start) != 300*time.Millisecond || store.units() != 20 {
			t.Errorf("closed after %v with %v, and the store has got %d units", time.Since(start), err, store.units())
		}
		n.outcome(weir.CountedLocally, ip)
		if err := n.over.Close(t.Context()); err != nil {
			t.Errorf("closing again: %v", err)
		}
		<-time.After(time.Second)
		store.mode.Store(answers)
		n.outcome(weir.Counted, ip)
		n.outcome(weir.Counted, ip)
		if e := n.recovered(); e.Given != 20 || e.Lost != 1 || len(store.windowsGiven()) != 1 {
			t.Errorf("events are %+v", e)
		}
	})
}

// Close ends with its context, even if a give has started before, and
// reports the lost units.
func TestCloseEndsWithItsContext(t *testing.T) {
	for _, giving := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			n := newNode(t, store, limiter("l", "100 per minute by ip"))
			store.mode.Store(fails)
			store.gives.Store(hangs)
			n.open(ip)
			if giving {
				<-time.After(time.Second)
				store.mode.Store(answers)
				n.ask("l", weir.Peek, ip)
				synctest.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := n.over.Close(ctx)
			if err == nil || !strings.Contains(err.Error(), "20 units") || !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("closing gave %v", err)
			}
			if waited := time.Since(start); waited != 50*time.Millisecond {
				t.Errorf("waited %v", waited)
			}
			// The end of our wait is not a failure of the store.
			if h := n.over.Health(); !errors.Is(h.Err, errDown) {
				t.Errorf("Health is %+v", h)
			}
		})
	}
}
