package failover_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// A remote is a store on another machine: a memstore that can fail or hang on
// demand.
type remote struct {
	inner weir.Store
	mode  atomic.Int32
	takes atomic.Int32
}

const (
	answers = iota
	fails
	hangs
)

var errDown = errors.New("connection refused")

func (r *remote) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	r.takes.Add(1)
	switch r.mode.Load() {
	case fails:
		return errDown
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.inner.Take(ctx, charges, receipt)
}

// A cluster is a Decider with a remote store, and the events it received.
type cluster struct {
	*bench
	store  *remote
	events []bool
}

// newCluster must be called in a synctest bubble: its clock is the bubble's.
func newCluster(t *testing.T, mode weir.FailureMode) *cluster {
	t.Helper()
	c := &cluster{store: &remote{inner: newMem(t, time.Now)}}
	l := limiter("l", "3 per minute by ip")
	l.OnStoreFailure = mode
	c.bench = newBench(t, policyOf(l), c.store, newMem(t, time.Now), failover.Options{
		OnEvent: func(e failover.Event) { c.events = append(c.events, e.Failing) },
	})
	return c
}

// Each mode's answers while the store fails (D25). There is never an error, or a
// wait beyond the deadline.
func TestEachFailureModeWhileTheStoreFails(t *testing.T) {
	for _, failure := range []int32{fails, hangs} {
		synctest.Test(t, func(t *testing.T) {
			local := newCluster(t, weir.FailLocal)
			local.want(local.ask("l", 0, ip), "allowed 3 2 60 0")
			local.store.mode.Store(failure)
			start := time.Now()
			// Counted here, starting from 0.
			local.want(local.ask("l", 0, ip), "allowed 3 2 60 0")
			if waited := time.Since(start); waited > 100*time.Millisecond {
				t.Errorf("waited %v for the store, over the deadline", waited)
			}
			local.want(local.ask("l", 0, ip), "allowed 3 1 60 0")
			local.want(local.ask("l", 0, ip), "allowed 3 0 60 0")
			d := local.ask("l", 0, ip)
			local.want(d, "refused 3 0 60 60")
			if d.Outcome != weir.CountedLocally {
				t.Errorf("outcome %v, want CountedLocally", d.Outcome)
			}

			allow := newCluster(t, weir.FailAllow)
			allow.store.mode.Store(failure)
			for _, want := range []string{"allowed 3 2 60 0", "allowed 3 1 60 0", "allowed 3 0 60 0", "allowed 3 0 60 0"} {
				allow.want(allow.ask("l", 0, ip), want)
			}

			deny := newCluster(t, weir.FailDeny)
			deny.store.mode.Store(failure)
			d = deny.ask("l", 0, ip)
			deny.want(d, "refused 3 0 1 1")
			if d.Outcome != weir.StoreUnavailable {
				t.Errorf("outcome %v, want StoreUnavailable", d.Outcome)
			}
		})
	}
}

// After 20 failures the breaker opens and requests wait no longer. One request a
// second is a probe, and recovery is automatic (D25).
func TestTheBreakerOpensAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weir.FailAllow)
		c.store.mode.Store(hangs)
		for range 20 {
			c.ask("l", 0, ip)
		}
		asked, start := c.store.takes.Load(), time.Now()
		for range 1000 {
			c.ask("l", 0, ip)
		}
		if n := c.store.takes.Load() - asked; n != 0 || time.Since(start) != 0 {
			t.Errorf("an open breaker asked the store %d times and waited %v", n, time.Since(start))
		}
		<-time.After(time.Second)
		for range 50 {
			c.ask("l", 0, ip)
		}
		if n := c.store.takes.Load() - asked; n != 1 {
			t.Errorf("%d requests tried the store after a second, want 1", n)
		}
		c.store.mode.Store(answers)
		<-time.After(3 * time.Second)
		c.want(c.ask("l", 0, ip), "allowed 3 2 60 0")
		if d := c.ask("l", 0, ip); d.Outcome != weir.Counted {
			t.Errorf("outcome %v after recovery, want Counted", d.Outcome)
		}
		if len(c.events) != 2 || !c.events[0] || c.events[1] {
			t.Errorf("events are %v, want failing once and recovered once", c.events)
		}
	})
}

// The breaker opens if over half of a second's takes fail, too (D25).
func TestTheBreakerOpensIfMostTakesOfASecondFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weir.FailAllow)
		for i := range 30 {
			c.store.mode.Store(fails)
			if i%5 < 2 {
				c.store.mode.Store(answers)
			}
			c.ask("l", 0, ip)
		}
		if n := c.store.takes.Load(); n >= 30 || n < 20 {
			t.Errorf("the store was asked %d times of 30 with three in five failing, want the breaker open from about the 20th", n)
		}
		c.store.mode.Store(fails)
		<-time.After(time.Second)
		before := c.store.takes.Load()
		for range 10 {
			c.ask("l", 0, ip)
		}
		if n := c.store.takes.Load() - before; n != 1 {
			t.Errorf("%d requests tried the store that failed again, want 1: a failed probe keeps the breaker open", n)
		}
		<-time.After(time.Second)
		c.ask("l", 0, ip)
		if n := c.store.takes.Load() - before; n != 2 {
			t.Errorf("the store was tried %d times in two seconds, want 2: a failed probe is not the last one", n)
		}
	})
}

// Takes that wait for one dead machine of several all fail at the same moment. They
// count as one failure, not as several in a row (D25).
func TestFailuresOfOneMomentLeaveTheBreakerClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weir.FailAllow)
		for range 30 { // more than the failures of this second
			c.ask("l", weir.Peek, ip)
		}
		c.store.mode.Store(fails)
		for range 20 {
			c.ask("l", weir.Peek, ip)
		}
		before := c.store.takes.Load()
		c.ask("l", weir.Peek, ip)
		if c.store.takes.Load() == before {
			t.Error("the breaker is open at the moment of the last answer")
		}
		<-time.After(25 * time.Millisecond)
		c.ask("l", weir.Peek, ip)
		before = c.store.takes.Load()
		c.ask("l", weir.Peek, ip)
		if c.store.takes.Load() != before {
			t.Error("the breaker is closed after 25 ms without an answer")
		}
	})
}

// Without a fallback nothing can be counted, so every request is refused.
func TestWithoutAFallbackAFailingStoreRefuses(t *testing.T) {
	store := &remote{}
	store.mode.Store(fails)
	for mode := weir.FailLocal; mode <= weir.FailDeny; mode++ {
		l := limiter("l", "3 per minute by ip")
		l.OnStoreFailure = mode
		got, err := newBench(t, policyOf(l), store, nil, failover.Options{}).d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: ip})
		if err != nil || got.Allowed || got.Outcome != weir.StoreUnavailable {
			t.Errorf("%v without a fallback gave %+v, %v", mode, got, err)
		}
	}
}

func TestAFallbackThatCanFailIsRefused(t *testing.T) {
	store := &remote{}
	if _, err := failover.New(store, store, failover.Options{}); err == nil {
		t.Error("a remote store was accepted as the fallback")
	}
}

// If a caller goes away, its request is counted, and the store does not seem to
// fail (D5).
func TestACallerThatGoesAwayIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, weir.FailDeny)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.d.Decide(ctx, weir.Request{Limiters: []string{"l"}, Keys: ip}); err != nil {
			t.Fatal(err)
		}
		c.want(c.ask("l", 0, ip), "allowed 3 1 60 0")
	})
}
