package storetest

import (
	"context"
	"fmt"
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

// twoWindowsAtOnce lets callers with a window each and one in common contend, through two boundaries: what the common
// window admitted is exactly what the callers were told.
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

// followsArithmetic draws sequences of takes and steps of the clock and compares every receipt.
func followsArithmetic(h *harness) {
	serial := 0
	rapid.Check(h.T, func(t *rapid.T) {
		serial++ // each sequence has keys of its own: the store is not emptied between them
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
		in = append(in, charge(who, rapid.Int64Range(1, 6).Draw(t, "limit"), per, rapid.Int64Range(0, 1).Draw(t, "cost")))
	}
	return in
}
