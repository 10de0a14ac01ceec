package storetest

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// A settling is a harness whose store is a weir.Settler.
type settling struct {
	*harness
	settler weir.Settler
}

// settled makes a test of settlers a test of stores. A store that is no settler passes.
func settled(run func(*settling)) func(*harness) {
	return func(h *harness) {
		if s, ok := h.store.(weir.Settler); ok {
			h.settles = true
			run(&settling{h, s})
		}
	}
}

// settledAndKept is settled for tests that also need a weir.Keeper.
func settledAndKept(run func(*settling, *keeping)) func(*harness) {
	return settled(func(s *settling) {
		if k, ok := s.store.(weir.Keeper); ok {
			run(s, &keeping{s.harness, k})
		}
	})
}

// A taken is an allowed take that is to be settled.
type taken struct {
	*settling
	charges charges
	receipt weir.Receipt
}

// reserve takes, which must be allowed.
func (s *settling) reserve(charges ...weir.Charge) *taken {
	s.Helper()
	r := s.take(charges...)
	if !r.Allowed {
		s.Fatalf("take of %+v was refused: %+v", charges, r)
	}
	if r.Ticket == (weir.Ticket{}) {
		s.Fatalf("an allowed take of %+v has no ticket", charges)
	}
	return &taken{s, charges, r}
}

// change returns the change of one charge of the take.
func (t *taken) change(charge int, units int64) weir.Change {
	return weir.Change{Charge: t.charges[charge], Reset: t.receipt.Used[charge].Reset, Units: units}
}

// settle changes the charges of the take, from the first, each by as many units.
func (t *taken) settle(units ...int64) []weir.Change {
	t.Helper()
	changes := make([]weir.Change, len(units))
	for i := range units {
		changes[i] = t.change(i, units[i])
	}
	t.send(changes...)
	return changes
}

func (t *taken) send(changes ...weir.Change) {
	t.Helper()
	if err := t.settler.Settle(t.Context(), &t.receipt.Ticket, changes); err != nil {
		t.Fatalf("settle: %v", err)
	}
}

// settleTo settles one charge, and compares its count and the seconds to its reset after that.
func (t *taken) settleTo(units int64, want [2]int64) {
	t.Helper()
	c := t.settle(units)[0]
	now := t.clock.Now().Unix()
	if got := [2]int64{c.Used.Count, c.Used.Reset - now}; !c.Done || c.Lost || got != want {
		t.Fatalf("settled by %d: done %v, lost %v, count and seconds to reset %v, want %v", units, c.Done, c.Lost, got, want)
	}
	t.reads(t.charges[0], want)
}

// reads compares the count of a window and the seconds to its reset.
func (s *settling) reads(c weir.Charge, want [2]int64) {
	s.Helper()
	c.Cost = 0
	s.expect(true, charges{c}, want)
}

func unitsComeBack(s *settling) {
	one := s.reserve(charge("a", 10, time.Minute, 8))
	s.expect(false, charges{charge("a", 10, time.Minute, 3)}, [2]int64{8, 60})
	s.advance(20 * time.Second)
	one.settleTo(-5, [2]int64{3, 40})
	s.expect(true, charges{charge("a", 10, time.Minute, 7)}, [2]int64{10, 40})
	s.expect(false, charges{charge("a", 10, time.Minute, 1)}, [2]int64{10, 40})
	s.advance(40 * time.Second)
	s.expect(true, charges{charge("a", 10, time.Minute, 10)}, [2]int64{10, 60})
}

// allComesBack gives all units back: the window stays open until the reset that callers were told.
func allComesBack(s *settling) {
	for range 3 {
		one := s.reserve(charge("a", 5, time.Minute, 5))
		s.advance(10 * time.Second)
		one.settleTo(-5, [2]int64{0, 50})
		s.advance(20 * time.Second)
		s.reserve(charge("a", 5, time.Minute, 4)).settleTo(-4, [2]int64{0, 30})
		s.expect(true, charges{charge("a", 5, time.Minute, 5)}, [2]int64{5, 30})
		s.expect(false, charges{charge("a", 5, time.Minute, 1)}, [2]int64{5, 30})
		s.advance(30 * time.Second)
		s.expect(true, charges{charge("a", 5, time.Minute, 0)}, [2]int64{0, 0})
	}
}

func overrunIsCharged(s *settling) {
	one := s.reserve(charge("a", 10, time.Minute, 6))
	two := s.reserve(charge("a", 10, time.Minute, 4))
	one.settleTo(9, [2]int64{19, 60})
	s.expect(false, charges{charge("a", 10, time.Minute, 1)}, [2]int64{19, 60})
	two.settleTo(-4, [2]int64{15, 60})
	s.expect(false, charges{charge("a", 15, time.Minute, 1)}, [2]int64{15, 60})
	s.expect(true, charges{charge("a", 16, time.Minute, 1)}, [2]int64{16, 60})
	s.advance(time.Minute)
	s.expect(true, charges{charge("a", 10, time.Minute, 10)}, [2]int64{10, 60})
}

// highestCount adds up to weir.MaxLimit, where a count stays: it may stand for more.
func highestCount(s *settling) {
	one := s.reserve(charge("a", weir.MaxLimit, time.Minute, weir.MaxLimit-9))
	two, three := s.reserve(charge("a", weir.MaxLimit, time.Minute, 5)), s.reserve(charge("a", weir.MaxLimit, time.Minute, 1))
	two.settleTo(weir.MaxLimit, [2]int64{weir.MaxLimit, 60})
	three.settle(-1)
	one.settle(-(weir.MaxLimit - 9))
	s.expect(false, charges{charge("a", weir.MaxLimit, time.Minute, 1)}, [2]int64{weir.MaxLimit, 60})
	s.advance(time.Minute)
	s.expect(true, charges{charge("a", 1, time.Minute, 1)}, [2]int64{1, 60})
}

func endedStaysEnded(s *settling) {
	first := s.reserve(charge("a", 10, time.Minute, 4))
	second := s.reserve(charge("a", 10, time.Minute, 4))
	s.advance(time.Minute)
	first.settle(-4) // before the next window
	s.expect(true, charges{charge("a", 10, time.Minute, 7)}, [2]int64{7, 60})
	if c := second.settle(-4)[0]; c.Done || c.Lost {
		s.Errorf("settled in a window that has ended: %+v", c)
	}
	s.reads(charge("a", 10, time.Minute, 0), [2]int64{7, 60})
	third := s.reserve(charge("a", 10, time.Minute, 3))
	s.advance(time.Minute)
	third.settle(5) // an overrun is not charged to the next window either
	s.expect(true, charges{charge("a", 10, time.Minute, 0)}, [2]int64{0, 0})
	s.expect(true, charges{charge("a", 10, time.Minute, 1)}, [2]int64{1, 60})
}

// resetVoids resets a window, which begins again in the same second: it has the same reset, and
// none of the units that were taken before.
func resetVoids(s *settling, k *keeping) {
	for _, one := range []weir.Charge{
		charge("a", 10, time.Minute, 4), byClock("a", 10, "minute", 4), byClock("a", 10, "calendar month in Europe/Berlin", 4),
	} {
		before, open := s.reserve(one), s.reserve(one)
		before.settleTo(-1, [2]int64{7, before.receipt.Used[0].Reset - before.receipt.Now})
		before = s.reserve(charges{{Key: one.Key, Scope: one.Scope, Subject: one.Subject, Limit: 20, Per: one.Per, Ends: one.Ends, Cost: 2}}...)
		k.reset(one)
		if c := before.settle(-2)[0]; c.Done || c.Lost { // nobody has charged it since
			s.Errorf("settled in a window that was reset: %+v", c)
		}
		after := s.reserve(one)
		if after.receipt.Used[0] != (weir.Used{Count: 4, Reset: open.receipt.Used[0].Reset}) {
			s.Fatalf("after the reset: %+v", after.receipt.Used[0])
		}
		if c := open.settle(-4)[0]; c.Done || c.Lost {
			s.Errorf("settled in the window after a reset: %+v", c)
		}
		toReset := after.receipt.Used[0].Reset - after.receipt.Now
		s.reads(one, [2]int64{4, toReset})
		after.settleTo(-3, [2]int64{1, toReset})
	}
}

func resetOfOthers(s *settling, k *keeping) {
	minute, hour, other := charge("a", 10, time.Minute, 4), charge("a", 10, time.Hour, 4), charge("b", 10, time.Minute, 4)
	one, two := s.reserve(minute, hour), s.reserve(other)
	k.reset(hour)
	k.reset(charge("nobody", 10, time.Minute, 1))
	for _, c := range one.settle(-3, -3)[:1] {
		if !c.Done || c.Used.Count != 1 {
			s.Errorf("another window was reset: %+v", c)
		}
	}
	s.reads(hour, [2]int64{0, 0})
	two.settleTo(-4, [2]int64{0, 60})
}

func severalWindows(s *settling) {
	minute, hour := charge("a", 10, time.Minute, 4), charge("a", 20, time.Hour, 4)
	one := s.reserve(minute, hour)
	changes := one.settle(-1, 3)
	if !changes[0].Done || changes[0].Used.Count != 3 || !changes[1].Done || changes[1].Used.Count != 7 {
		s.Fatalf("two windows were settled: %+v", changes)
	}
	two := s.reserve(hour, minute)
	two.send(two.change(1, -4)) // one at a time
	s.reads(minute, [2]int64{3, 60})
	s.reads(hour, [2]int64{11, 3600})
	two.send(two.change(0, -2))
	s.reads(hour, [2]int64{9, 3600})
	three := s.reserve(minute, hour)
	s.advance(time.Minute)
	three.settle(-4, -4) // the minute has ended
	s.reads(hour, [2]int64{9, 3540})
	s.expect(true, charges{minute}, [2]int64{4, 60})
}

func changedLimit(s *settling) {
	one, two := s.reserve(charge("a", 10, time.Minute, 4)), s.reserve(charge("a", 10, time.Minute, 6))
	s.expect(false, charges{charge("a", 3, time.Minute, 1)}, [2]int64{10, 60})
	one.charges = charges{charge("a", 3, time.Minute, 4)} // another policy has a lower limit now
	one.settleTo(-2, [2]int64{8, 60})
	two.settleTo(-6, [2]int64{2, 60})
	s.expect(true, charges{charge("a", 3, time.Minute, 1)}, [2]int64{3, 60})
	s.expect(false, charges{charge("a", 3, time.Minute, 1)}, [2]int64{3, 60})
}

// settledByTheClock settles across the end of a span.
func settledByTheClock(s *settling) {
	s.restoreClock()
	s.moveTo("2026-10-25T22:59:30Z") // the last half minute of a day of 25 hours
	day := byClock("a", 10, "calendar day in Europe/Berlin", 4)
	s.reads(day, [2]int64{0, 0}) // a take may be void that is the first to see the clock set back
	one, two := s.reserve(day), s.reserve(day)
	one.settleTo(-3, [2]int64{5, 30})
	s.advance(30 * time.Second)
	three := s.reserve(day)
	two.settle(-4)
	s.reads(day, [2]int64{4, 86400})
	three.settleTo(2, [2]int64{6, 86400})
}

// settledAfterSetBack sets the clock back by the length of a window, so that the next window has
// the reset that the first one had: it has none of its units.
func settledAfterSetBack(s *settling) {
	one, five := s.reserve(charge("a", 5, time.Minute, 5)), charges{charge("a", 5, time.Minute, 5)}
	s.advance(-time.Minute)
	s.expect(false, five, [2]int64{5, 60})
	s.advance(time.Minute)
	s.expect(true, five, [2]int64{5, 60})
	one.settle(-5)
	s.expect(false, charges{charge("a", 5, time.Minute, 1)}, [2]int64{5, 60})
}

// settledAtOnce has callers reserve, and settle to less: in the end what they have used is counted,
// and at any time what they have reserved or used.
func settledAtOnce(s *settling) {
	const callers, takes, limit = 16, 120, 60
	var used, usedOfAll, reserved, admitted atomic.Int64
	one, all := charge("a", limit, time.Hour, 5), charge("a", weir.MaxLimit, 24*time.Hour, 5)
	together(callers, func(i int) {
		for n := range takes {
			in := charges{one, all}
			if (i+n)%2 == 0 {
				in = in[:1]
			}
			r := s.take(in...)
			if !r.Allowed {
				continue
			}
			if now := reserved.Add(5); now > limit {
				s.Errorf("%d units are reserved or used of %d", now, limit)
			}
			t, cost := &taken{s, in, r}, int64((i+n)%7/6) // one of seven has used a unit
			admitted.Add(1)
			used.Add(cost)
			reserved.Add(cost - 5)
			if len(in) > 1 {
				usedOfAll.Add(cost)
			}
			for _, c := range t.settle([]int64{cost - 5, cost - 5}[:len(in)]...) {
				if !c.Done {
					s.Errorf("it was not settled: %+v", c)
				}
			}
		}
	})
	one.Cost, all.Cost = 0, 0
	if r := s.take(one, all); r.Used[0].Count != used.Load() || r.Used[1].Count != usedOfAll.Load() {
		s.Errorf("%d and %d units were used, %d and %d are counted", used.Load(), usedOfAll.Load(), r.Used[0].Count, r.Used[1].Count)
	}
	if admitted.Load() <= limit/5 {
		s.Errorf("%d were admitted: nothing that was given back was spent again", admitted.Load())
	}
}
