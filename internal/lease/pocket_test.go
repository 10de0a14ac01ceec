package lease_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/lease"
)

var minute = lease.Window{Reset: 1_800_000_060}

const limit = 100

// lot is n units of a window, of which the store counts others beside them.
func lot(w lease.Window, n, others int64, deadline time.Duration) lease.Lot {
	return lease.Lot{Window: w, Units: n, Count: n + others, Limit: limit, Deadline: deadline}
}

func spend(p *lease.Pocket, cost int64, now time.Duration) bool {
	_, _, ok := p.Spend(cost, limit, now)
	return ok
}

func TestAPocketGivesOutWhatItHoldsAndNoMore(t *testing.T) {
	var p lease.Pocket
	if spend(&p, 1, 0) {
		t.Error("the empty pocket gave out a unit")
	}
	p.Fill(lot(minute, 5, 0, time.Second), 0)
	for _, step := range []struct {
		cost int64
		want bool
	}{{3, true}, {3, false}, {0, false}, {-1, false}, {2, true}, {1, false}} {
		if got := spend(&p, step.cost, 0); got != step.want {
			t.Errorf("spend %d: %t, want %t", step.cost, got, step.want)
		}
	}
}

func TestAPocketIsDeadAtItsDeadlineAndBeforeItsQuestion(t *testing.T) {
	var p lease.Pocket
	l := lot(minute, 5, 0, time.Second)
	l.Sent = 10
	p.Fill(l, 10)
	if !spend(&p, 1, time.Second-1) {
		t.Error("no unit one nanosecond before the deadline")
	}
	if spend(&p, 1, time.Second) {
		t.Error("a unit at the deadline")
	}
	if spend(&p, 1, 9) {
		t.Error("a unit although the clock was set back")
	}
}

func TestUnitsAreOnlyForTheLimitUnderWhichTheyWereCharged(t *testing.T) {
	var p lease.Pocket
	p.Fill(lot(minute, 5, 0, time.Second), 0)
	for _, other := range []int64{limit - 1, limit + 1} {
		if _, _, ok := p.Spend(1, other, 0); ok {
			t.Errorf("a unit under a limit of %d", other)
		}
	}
}

func TestThePocketsCountLeavesOutWhatIsInIt(t *testing.T) {
	var p lease.Pocket
	p.Fill(lot(minute, 5, 20, time.Second), 0)
	if l, _, _ := p.Spend(2, limit, 0); l.Count != 22 {
		t.Errorf("the count is %d, want 22", l.Count)
	}
	// others have spent 3, and 3 are in the pocket
	if f := p.Fill(lot(minute, 4, 23+3, time.Second), 0); f.Units != 7 {
		t.Errorf("%d units, want 7", f.Units)
	}
	if l, _, _ := p.Spend(1, limit, 0); l.Count != 24 {
		t.Errorf("the count is %d, want 24", l.Count)
	}
	if units, dropped := p.Recount(minute.Reset, 40); units != 6 || dropped != 0 {
		t.Errorf("%d units at a recount, want 6", units)
	}
	if l, _, _ := p.Spend(1, limit, 0); l.Count != 35 {
		t.Errorf("the count is %d, want 35", l.Count)
	}
}

func TestTimeInAPocketNeverRunsBackwards(t *testing.T) {
	var p lease.Pocket
	p.Fill(lot(minute, 5, 0, time.Second), 10)
	for _, step := range []struct{ now, at time.Duration }{{9, 10}, {20, 20}, {15, 20}} {
		if _, at, ok := p.Spend(1, limit, step.now); !ok || at != step.at {
			t.Errorf("a take at %d is at %d (%t), want %d", step.now, at, ok, step.at)
		}
	}
	if f := p.Fill(lot(minute, 5, 5, time.Second), 18); f.Since != 20 {
		t.Errorf("filled since %d, want 20", f.Since)
	}
}

func TestARefillJoinsOnlyUnitsOfTheSameWindow(t *testing.T) {
	for name, other := range map[string]lease.Window{
		"reset":      {Reset: minute.Reset + 60},
		"generation": {Reset: minute.Reset, Generation: 1},
		"epoch":      {Reset: minute.Reset, Epoch: 1},
	} {
		var p lease.Pocket
		p.Fill(lot(minute, 5, 0, time.Second), 0)
		// an answer that was slow
		if f := p.Fill(lot(minute, 2, 5, time.Millisecond), 0); f.Units != 7 || f.Dropped != 0 {
			t.Errorf("%d units of one window and %d dropped, want 7 and 0", f.Units, f.Dropped)
		}
		if !spend(&p, 1, time.Second-1) {
			t.Error("the earlier deadline holds")
		}
		if f := p.Fill(lot(other, 3, 0, time.Second), 0); f.Units != 3 || f.Dropped != 6 {
			t.Errorf("another %s: %d units and %d dropped, want 3 and 6", name, f.Units, f.Dropped)
		}
		if l := p.Drain(); l.Window != other || l.Units != 3 {
			t.Errorf("another %s: drained %+v, want 3 of %+v", name, l, other)
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
	const far = 2 * fills * each // limit
	var p lease.Pocket
	var spent, drained atomic.Int64
	var stop atomic.Bool
	var others, filler sync.WaitGroup
	for range spenders {
		others.Go(func() {
			for !stop.Load() {
				if _, _, ok := p.Spend(2, far, 0); ok {
					spent.Add(2)
				}
			}
		})
	}
	filler.Go(func() {
		for i := range fills {
			l := lot(minute, each, int64(i)*each, time.Second)
			l.Limit = far
			p.Lock()
			p.Fill(l, 0)
			p.Unlock()
			if i%3 == 0 {
				drained.Add(p.Drain().Units)
			}
		}
	})
	filler.Wait()
	stop.Store(true)
	others.Wait()
	rest := p.Drain().Units
	if got := spent.Load() + drained.Load() + rest; got != fills*each {
		t.Errorf("%d units spent, %d drained, %d left: %d, want the %d that were filled in", spent.Load(), drained.Load(), rest, got, fills*each)
	}
}

func BenchmarkSpend(b *testing.B) {
	var p lease.Pocket
	p.Fill(lot(minute, 1<<40, limit-1<<40, time.Hour), 0)
	b.ReportAllocs()
	for b.Loop() {
		spend(&p, 1, time.Second)
	}
}
