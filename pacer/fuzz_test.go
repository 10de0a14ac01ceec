package pacer

import (
	"testing"

	"github.com/weirlimit/weir/headers"
)

// For any state in a shared view and any response, the arithmetic terminates, and a
// call gets a time for its next attempt.
func FuzzState(f *testing.F) {
	for _, b := range []budget{{}, {phase: known, limit: 60, remaining: 3, reset: 1_800_000_060, ends: 1_800_000_061 * second, length: 60, seen: 1_800_000_000 * second,
		flights: []flight{{process: 7, units: 2, waiting: 3, taken: 1, at: 1_800_000_000 * second}}}, {phase: silent}} {
		f.Add(encode(&b), int64(60), int64(59), int64(1_800_000_060), int64(1_800_000_000), int64(0), true)
		f.Add(encode(&b), int64(60), int64(0), int64(0), int64(1_800_000_000), 59*second, false)
	}
	f.Fuzz(func(t *testing.T, state []byte, limit, remaining, reset, date, after int64, refused bool) {
		const now = 1_800_000_000 * second
		b, ok := decode(state)
		if !ok {
			b = budget{}
		}
		a := ask{cost: 1, threshold: Threshold, process: 1}
		if v := b.canStart(a, now); !v.start && v.until <= now {
			t.Errorf("%+v waits until %d, which is past", b, v.until)
		}
		b.setFlight(1, 1, 0, now)
		s := sent{cost: 1, place: b.begin(a, now), at: now, now: now + second/100, length: 60}
		b.setFlight(1, 0, 0, s.now)
		b.observe(s, report{Fields: headers.Fields{Limit: max(limit, 0), Remaining: max(remaining, 0), Reset: max(reset, 0), Date: max(date, 0)}, after: max(after, 0)}, refused)
		if v := b.canStart(a, s.now); !v.start && v.until <= s.now {
			t.Errorf("%+v waits until %d, which is past", b, v.until)
		}
		if n := b.capacity(a, s.now, s.now+3600*second); n < 0 {
			t.Errorf("%+v has a capacity of %d", b, n)
		}
		again, ok := decode(encode(&b))
		if ok && again.remaining != b.remaining {
			t.Errorf("%d units are left after a state of %d", again.remaining, b.remaining)
		}
	})
}
