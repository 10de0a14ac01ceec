package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

func gateRefusesWhileFull(h *harness) {
	gate := charge("a", 2, time.Minute, weir.Gate)
	one, gated := charge("a", 10, time.Hour, 1), charges{charge("a", 10, time.Hour, 1), gate}
	h.expect(true, charges{gate}, [2]int64{0, 0})
	h.expect(true, gated, [2]int64{1, 3600}, [2]int64{0, 0})
	h.expect(true, charges{gate, one}, [2]int64{0, 0}, [2]int64{2, 3600})
	fill := charges{charge("a", 2, time.Minute, 1)}
	h.expect(true, fill, [2]int64{1, 60})
	h.expect(true, gated, [2]int64{3, 3600}, [2]int64{1, 60}) // one unit is left
	h.expect(true, fill, [2]int64{2, 60})
	for range 3 { // the open window of the other charge stays as it is, in any order
		h.expect(false, charges{gate}, [2]int64{2, 60})
		h.expect(false, gated, [2]int64{3, 3600}, [2]int64{2, 60})
		h.expect(false, charges{gate, one}, [2]int64{2, 60}, [2]int64{3, 3600})
	}
	other := charges{charge("b", 10, time.Hour, 1), charge("b", 2, time.Minute, weir.Gate)}
	h.expect(true, other, [2]int64{1, 3600}, [2]int64{0, 0})
	h.advance(time.Minute)
	h.expect(true, gated, [2]int64{4, 3540}, [2]int64{0, 0})
	h.expect(true, gated, [2]int64{5, 3540}, [2]int64{0, 0})
}

// gateAmongOthers has callers charge a window behind a gate, while one of them fills the gate's
// window and reads the other: it must not grow after that.
func gateAmongOthers(h *harness) {
	const callers, takes = 6, 20
	for round := range 30 {
		who := fmt.Sprint("gate ", round)
		var closed atomic.Int64
		closed.Store(-1)
		together(callers, func(i int) {
			for n := range takes {
				if i == 0 && n == takes/2 {
					r := h.take(charge(who, 1, time.Minute, 1), charge(who, 1000, time.Hour, 0))
					closed.Store(r.Used[1].Count)
				}
				h.take(charge(who, 1000, time.Hour, 1), charge(who, 1, time.Minute, weir.Gate))
			}
		})
		if used := h.take(charge(who, 1000, time.Hour, 0)).Used[0]; used.Count != closed.Load() {
			h.Fatalf("round %d: %d units were spent when the gate's window was filled, and %d are now", round, closed.Load(), used.Count)
		}
	}
}
