package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// together runs f in n goroutines that start at once, and waits for them.
func together(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

func thousandAtOnce(h *harness) {
	var admitted atomic.Int64
	together(1000, func(int) {
		if h.take(charge("a", 10, time.Minute, 1)).Allowed {
			admitted.Add(1)
		}
	})
	if n := admitted.Load(); n != 10 {
		h.Errorf("%d of 1000 concurrent takes were admitted on a limit of 10", n)
	}
}

// twoWindowsAtOnce has callers contend, through two boundaries, for a window each and a common one:
// the common window admits exactly as many takes as the callers' windows together.
func twoWindowsAtOnce(h *harness) {
	const callers, limit, common = 8, 20, 100
	for round := range 3 {
		var admitted, own atomic.Int64
		together(callers, func(i int) {
			var mine int64
			for range 40 {
				if h.take(charge(fmt.Sprint(i), limit, time.Minute, 1), charge("common", common, time.Minute, 1)).Allowed {
					mine++
				}
			}
			admitted.Add(mine)
			own.Add(h.take(charge(fmt.Sprint(i), limit, time.Minute, 0)).Used[0].Count)
		})
		if n := admitted.Load(); n != common || own.Load() != common {
			h.Fatalf("round %d: %d admitted and %d in the callers' own windows, want %d of both", round, n, own.Load(), common)
		}
		h.advance(time.Minute)
	}
}

func cancelledTakeReturns(h *harness) {
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	var r weir.Receipt
	one := charges{charge("a", 5, time.Minute, 1)}
	if err := h.store.Take(ctx, one, &r); err == nil && !r.Allowed {
		h.Error("a cancelled take without an error was refused under a limit of 5")
	}
}

// nothingAfterTheDeadline gives takes so little time that many are given up in flight, and moves
// the clock as soon as all have returned. A take may only have spent from a window that began
// before that.
func nothingAfterTheDeadline(h *harness) {
	const callers = 200
	for round := range 10 {
		who := fmt.Sprint("deadline ", round)
		began := h.clock.Now().Unix()
		var answered atomic.Int64
		together(callers, func(i int) {
			ctx, cancel := context.WithTimeout(h.Context(), time.Duration(i)*5*time.Microsecond)
			defer cancel()
			var r weir.Receipt
			if err := h.store.Take(ctx, charges{charge(who, callers, time.Minute, 1)}, &r); err == nil {
				answered.Add(1)
			}
		})
		h.advance(30 * time.Second)
		for range 3 {
			used := h.take(charge(who, callers, time.Minute, 0)).Used[0]
			if used.Reset > began+60 {
				h.Fatalf("round %d: the takes were given up at %d, and their window of 60 s ends at %d", round, began, used.Reset)
			}
			if used.Count < answered.Load() || used.Count > callers {
				h.Fatalf("round %d: %d of %d takes were answered, and the window has %d units", round, answered.Load(), callers, used.Count)
			}
		}
		h.advance(30 * time.Second)
		if used := h.take(charge(who, callers, time.Minute, 0)).Used[0]; used.Reset > h.clock.Now().Unix() {
			h.Fatalf("round %d: at the reset the window stands at %+v", round, used)
		}
	}
}

// toldResetHolds has callers take while the clock moves, some with so little time that they give
// up. No receipt shows a later reset of a window than an earlier one did, unless that reset has
// come; then the whole limit is available.
func toldResetHolds(h *harness) {
	const callers, takes, limit = 6, 300, 1_000_000
	var mu sync.Mutex
	last := map[string]weir.Used{} // the last standing in a receipt
	together(callers, func(i int) {
		random := rand.New(rand.NewPCG(7, uint64(i)))
		for range takes {
			who := fmt.Sprint("told ", random.IntN(3))
			ctx, cancel := context.WithCancel(h.Context())
			if random.IntN(3) == 0 {
				ctx, cancel = context.WithTimeout(h.Context(), time.Duration(random.IntN(300))*time.Microsecond)
			}
			var r weir.Receipt
			mu.Lock()
			before := last[who]
			mu.Unlock()
			err := h.store.Take(ctx, charges{charge(who, limit, 5*time.Second, 1)}, &r)
			cancel()
			if err == nil {
				mu.Lock()
				now := r.Used[0]
				if r.Now < before.Reset && now.Reset > before.Reset {
					h.Errorf("at %d a window of %s ends at %d, before it ended at %d", r.Now, who, now.Reset, before.Reset)
				}
				if now.Reset > last[who].Reset {
					last[who] = now
				}
				mu.Unlock()
			}
			if random.IntN(10) == 0 {
				h.advance(time.Second)
			}
		}
	})
	h.advance(5 * time.Second)
	for who := range last {
		if r := h.take(charge(who, limit, 5*time.Second, 1)); r.Used[0].Count != 1 {
			h.Errorf("at its reset the window of %s has %d units", who, r.Used[0].Count)
		}
	}
}

// followsArithmetic draws sequences of takes and clock steps, and compares every receipt with the
// arithmetic.
func followsArithmetic(h *harness) {
	serial := 0
	rapid.Check(h.T, func(t *rapid.T) {
		serial++ // each sequence has its own keys, because the store is not emptied in between
		m := model{used: map[string]weir.Used{}}
		for range rapid.IntRange(1, 40).Draw(t, "takes") {
			h.advance(time.Duration(rapid.IntRange(0, 7000).Draw(t, "milliseconds")) * time.Millisecond)
			in := drawCharges(t, serial)
			out := h.take(in...)
			ok, next := m.step(in, out)
			if !ok {
				t.Fatalf("take of %+v answered %+v, which the arithmetic does not give from %+v", in, out, m)
			}
			m = next
		}
	})
}

func drawCharges(t *rapid.T, serial int) []weir.Charge {
	n := rapid.IntRange(1, 3).Draw(t, "charges")
	pers := rapid.Permutation([]time.Duration{5 * time.Second, 20 * time.Second, time.Minute}).Draw(t, "lengths")
	var in []weir.Charge
	for _, per := range pers[:n] {
		who := fmt.Sprintf("%d/%s", serial, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"))
		in = append(in, charge(who, rapid.Int64Range(1, 6).Draw(t, "limit"), per, rapid.Int64Range(weir.Gate, 1).Draw(t, "cost")))
	}
	return in
}
