package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// What a take that is answered too late was granted goes back. None of it is given out meanwhile,
// and takes that come wait.
func TestALateAnswerLosesNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender, c, e := leasedOnce(t)
		for e.pocket.Units() > 0 {
			ask(t, a, c)
		}
		w, before := lender.store.keys["a"].open, lender.store.keys["a"].open.count
		began := time.Now()
		lender.answered = func() { time.Sleep(700 * time.Millisecond) } // of the bubble's time
		c.Cost = 3
		if err := askFor(t, a, 100*time.Millisecond, c); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("after %v of 100 ms: %v", time.Since(began), err)
		}
		if err := askFor(t, a, 3*time.Second, c); err != nil || time.Since(began) != 1400*time.Millisecond {
			t.Errorf("one that waits, and asks then, is answered after %v, with %v", time.Since(began), err)
		}
		synctest.Wait()
		if units := e.pocket.Units(); units != 7 || w.count-before != 3+3+7 || a.returned.Load() != 7 || a.stranded.Load() > 0 {
			t.Errorf("of %d units that are charged, with two takes of 3, the pocket has %d; %d went back, and %d are lost",
				w.count-before, units, a.returned.Load(), a.stranded.Load())
		}
	})
}

// So does all that a refill was charged.
func TestALateRefillLosesNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, lender, c, e := leasedOnce(t)
		e.low.Store(100)
		ask(t, a, c)
		lender.answered = func() { time.Sleep(700 * time.Millisecond) } // of the bubble's time
		began := time.Now()
		(<-a.chores)(t.Context())
		if time.Since(began) != maxRefill {
			t.Errorf("it was given up after %v", time.Since(began))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w, granted := lender.store.keys["a"].open, a.granted.Load()
		if units := e.pocket.Units(); granted <= 7 || units != 6 || w.count != w.admitted+1+units || a.stranded.Load() > 0 {
			t.Errorf("%d were granted, %d are spent, %d were admitted, the pocket has %d, and %d are lost", granted, w.count, w.admitted+1, units, a.stranded.Load())
		}
	})
}

// A take that is refused too late, or not answered at all, leaves its turn.
func TestALateRefusalLeavesTheTurn(t *testing.T) {
	for name, answer := range map[string]func(*slowLender){
		"refused":      func(s *slowLender) { s.store.keys["a"].open.count = 100 },
		"not answered": func(s *slowLender) { s.fails = errors.New("the connection has ended") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, lender, c, e := leasedOnce(t)
				for e.pocket.Units() > 0 {
					ask(t, a, c)
				}
				answer(lender)
				began := time.Now()
				// of the bubble's time
				lender.answered = func() { time.Sleep(700*time.Millisecond - time.Since(began)) }
				if err := askFor(t, a, 100*time.Millisecond, c); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				lender.mu.Lock()
				lender.fails = nil
				lender.mu.Unlock()
				lender.store.mu.Lock()
				lender.store.keys["a"].open.count = 8
				lender.store.mu.Unlock()
				if err := askFor(t, a, 2*time.Second, c); err != nil || time.Since(began) != 700*time.Millisecond || e.pocket.Units() != 7 {
					t.Errorf("the next is answered after %v, with %v, and leaves %d units", time.Since(began), err, e.pocket.Units())
				}
			})
		})
	}
}

// askFor is ask with a deadline.
func askFor(t *testing.T, a *leases, within time.Duration, charges ...weir.Charge) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	take := &leaseTake{charges: charges, r: new(weir.Receipt)}
	for i := range charges {
		take.hashes[i] = hashOf(&charges[i])
	}
	if a.spend(charges, &take.hashes, take.r) {
		return nil
	}
	held, wishes := a.look(take)
	return a.take(ctx, take, held, wishes)
}
