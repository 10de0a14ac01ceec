package lease_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/lease"
)

var minute = lease.Window{Reset: 1_800_000_060}

func TestAPocketGivesOutWhatItHoldsAndNoMore(t *testing.T) {
	var p lease.Pocket
	if p.Spend(1, 0) {
		t.Error("the empty pocket gave out a unit")
	}
	p.Fill(minute, 5, time.Second)
	for _, step := range []struct {
		cost int64
		want bool
	}{{3, true}, {3, false}, {0, false}, {-1, false}, {2, true}, {1, false}} {
		if got := p.Spend(step.cost, 0); got != step.want {
			t.Errorf("spend %d: %t, want %t", step.cost, got, step.want)
		}
	}
}

func TestAPocketIsDeadAtItsDeadline(t *testing.T) {
	var p lease.Pocket
	p.Fill(minute, 5, time.Second)
	if !p.Spend(1, time.Second-1) {
		t.Error("no unit one nanosecond before the deadline")
	}
	if p.Spend(1, time.Second) || p.Units(time.Second) != 0 {
		t.Error("a unit at the deadline")
	}
}

func TestARefillJoinsOnlyUnitsOfTheSameWindow(t *testing.T) {
	for name, other := range map[string]lease.Window{
		"reset":      {Reset: minute.Reset + 60},
		"generation": {Reset: minute.Reset, Generation: 1},
		"epoch":      {Reset: minute.Reset, Epoch: 1},
	} {
		var p lease.Pocket
		p.Fill(minute, 5, time.Second)
		p.Fill(minute, 2, time.Millisecond) // an answer that was slow
		if got := p.Units(time.Second - 1); got != 7 {
			t.Errorf("%d units of one window, want 7", got)
		}
		p.Fill(other, 3, time.Second)
		if w, units := p.Drain(); w != other || units != 3 {
			t.Errorf("another %s: drained %d of %+v, want 3 of %+v", name, units, w, other)
		}
	}
}

func TestADeadlineIsBeforeTheResetOnASlowClock(t *testing.T) {
	for _, ttl := range []time.Duration{1, 999, time.Millisecond, time.Second, time.Hour, 31 * 24 * time.Hour} {
		sent := 7 * time.Second
		lived := lease.Deadline(sent, ttl) - sent
		// A clock that shows lived, with an error at both ends, has run for at most 1/0.999 of it.
		if (lived+2*lease.ClockError)*1000 > ttl*999 {
			t.Errorf("a pocket lives %v of %v", lived, ttl)
		}
	}
}

func TestEachUnitIsSpentOrDrainedOnce(t *testing.T) {
	const fills, each, spenders = 2000, 7, 4
	var p lease.Pocket
	var spent, drained atomic.Int64
	var stop atomic.Bool
	var others, filler sync.WaitGroup
	for range spenders {
		others.Go(func() {
			for !stop.Load() {
				if p.Spend(2, 0) {
					spent.Add(2)
				}
			}
		})
	}
	filler.Go(func() {
		for i := range fills {
			p.Fill(minute, each, time.Second)
			if i%3 == 0 {
				_, units := p.Drain()
				drained.Add(units)
			}
		}
	})
	filler.Wait()
	stop.Store(true)
	others.Wait()
	_, rest := p.Drain()
	if got := spent.Load() + drained.Load() + rest; got != fills*each {
		t.Errorf("%d units spent, %d drained, %d left: %d, want the %d that were filled in", spent.Load(), drained.Load(), rest, got, fills*each)
	}
}

func BenchmarkSpend(b *testing.B) {
	var p lease.Pocket
	p.Fill(minute, 1<<40, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		p.Spend(1, time.Second)
	}
}
