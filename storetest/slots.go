package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// slotsOf returns a charge of one slot, counted by who.
func slotsOf(who string, limit int64) weir.Charge {
	c := charge(who, limit, 0, 1)
	c.Held = true
	return c
}

func slotsAreHeld(s *settling) {
	slot := slotsOf("a", 2)
	one := s.reserve(slot)
	two := s.reserve(slot)
	s.expect(false, charges{slot}, [2]int64{2, 0})
	s.advance(time.Second)
	s.expect(false, charges{slot}, [2]int64{2, 0})
	if c := one.settle(-1)[0]; !c.Done || c.Lost || c.Used != (weir.Used{Count: 1}) {
		s.Errorf("one of two was given back: %+v", c)
	}
	three := s.reserve(slot)
	s.expect(false, charges{slot}, [2]int64{2, 0})
	two.settle(-1)
	three.settle(-1)
	slot.Cost = 0
	s.expect(true, charges{slot}, [2]int64{0, 0})
	slot.Cost = 1
	for range 5 { // a read holds none
		s.reserve(slot).settle(-1)
	}
}

func slotsAreTheirCallersAlone(s *settling) {
	for i, who := range []string{"", "\x00", "\x00\x00", "a\x00b", "a", "b", "a_b", "\xff\xfe", "{a}"} {
		s.reserve(slotsOf(who, 1))
		if r := s.take(slotsOf(who, 1)); r.Allowed {
			s.Fatalf("key %d, %q, holds two slots of one", i, who)
		}
	}
	one := s.reserve(slotsOf("{a}", 2))
	one.settle(-1)
	s.expect(false, charges{slotsOf("a", 1)}, [2]int64{1, 0})
}

// slotsAmongWindows checks that slots and windows are taken together or not at all, in any order.
func slotsAmongWindows(s *settling) {
	slot, minute, hour := slotsOf("a", 2), charge("a", 3, time.Minute, 1), charge("a", 9, time.Hour, 1)
	one := s.reserve(minute, slot, hour)
	s.expect(true, charges{slot, hour, minute}, [2]int64{2, 0}, [2]int64{2, 3600}, [2]int64{2, 60})
	for range 3 { // no slot: the windows keep their units
		s.expect(false, charges{minute, hour, slot}, [2]int64{2, 60}, [2]int64{2, 3600}, [2]int64{2, 0})
		s.expect(false, charges{slot, minute}, [2]int64{2, 0}, [2]int64{2, 60})
	}
	one.send(one.change(1, -1))
	s.reads(minute, [2]int64{2, 60})
	s.expect(true, charges{minute, slot}, [2]int64{3, 60}, [2]int64{2, 0})
	one = s.reserve(slotsOf("b", 1))
	one.settle(-1)
	free := slotsOf("a", 9)
	for range 3 { // no unit: no slot is held
		s.expect(false, charges{minute, free}, [2]int64{3, 60}, [2]int64{2, 0})
		s.expect(false, charges{free, hour, minute}, [2]int64{2, 0}, [2]int64{2, 3600}, [2]int64{3, 60})
	}
	gate := charge("a", 3, time.Minute, weir.Gate)
	s.expect(false, charges{hour, free, gate}, [2]int64{2, 3600}, [2]int64{2, 0}, [2]int64{3, 60})
	s.advance(time.Minute)
	s.expect(true, charges{hour, free, gate}, [2]int64{3, 3540}, [2]int64{3, 0}, [2]int64{0, 0})
	s.expect(false, charges{hour, slot, gate}, [2]int64{3, 3540}, [2]int64{3, 0}, [2]int64{0, 0})
}

// severalSlots takes slots of several keys together.
func severalSlots(s *settling) {
	a, b, all := slotsOf("a", 2), slotsOf("b", 2), slotsOf("all", 3)
	one, two := s.reserve(a, all), s.reserve(b, all)
	s.reserve(all, a)
	s.expect(false, charges{b, all}, [2]int64{1, 0}, [2]int64{3, 0})
	s.expect(false, charges{a, b}, [2]int64{2, 0}, [2]int64{1, 0})
	one.settle(-1, -1)
	s.expect(true, charges{all, b}, [2]int64{3, 0}, [2]int64{2, 0})
	two.send(two.change(1, -1))
	s.expect(false, charges{all, b}, [2]int64{2, 0}, [2]int64{2, 0})
	two.send(two.change(0, -1))
	s.expect(true, charges{all, b}, [2]int64{3, 0}, [2]int64{2, 0})
}

func changedSlots(s *settling) {
	one, two := s.reserve(slotsOf("a", 2)), s.reserve(slotsOf("a", 2))
	s.expect(false, charges{slotsOf("a", 1)}, [2]int64{2, 0})
	s.expect(true, charges{slotsOf("a", 3)}, [2]int64{3, 0})
	one.settle(-1)
	s.expect(false, charges{slotsOf("a", 2)}, [2]int64{2, 0})
	two.settle(-1)
	s.expect(false, charges{slotsOf("a", 1)}, [2]int64{1, 0})
}

// slotsAtOnce has callers contend for slots: never more are held than the limit, and in the end
// none is.
func slotsAtOnce(s *settling) {
	const callers, takes, limit = 16, 100, 3
	var held [2]atomic.Int64
	var heldInAll, admitted atomic.Int64
	together(callers, func(i int) {
		own, common := i%2, slotsOf("all", limit+1)
		in := charges{slotsOf(fmt.Sprint("own ", own), limit), charge("units", weir.MaxLimit, time.Hour, 1), common}
		for range takes {
			r := s.take(in...)
			if !r.Allowed {
				continue
			}
			admitted.Add(1)
			if n := held[own].Add(1); n > limit {
				s.Errorf("%d slots are held of %d", n, limit)
			}
			if n := heldInAll.Add(1); n > limit+1 {
				s.Errorf("%d slots are held in all, of %d", n, limit+1)
			}
			heldInAll.Add(-1)
			held[own].Add(-1)
			t := &taken{s, in, r}
			t.send(t.change(0, -1), t.change(2, -1))
		}
	})
	for _, who := range []string{"own 0", "own 1", "all"} {
		s.reads(slotsOf(who, limit), [2]int64{0, 0})
	}
	if got := s.take(charge("units", weir.MaxLimit, time.Hour, 0)).Used[0].Count; got != admitted.Load() {
		s.Errorf("%d were admitted, and %d units are spent", admitted.Load(), got)
	}
}
