package storetest_test

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

const (
	thousand    = "a thousand at once on a limit of ten"
	allOrNone   = "two windows at once are all or none"
	histories   = "concurrent takes are linearizable"
	growing     = "concurrent takes are linearizable while the store grows"
	manyKeys    = "thousands of keys at once are exact while windows end"
	jumps       = "totals are bounded while the clock is set back"
	forwardOnly = "the clock never runs backwards from take to take"
)

// A fault is a wrong store, and the subtests that detect it.
type fault struct {
	store func(*plain) weir.Store
	found []string
}

// faults are wrong stores. Each has one error of a real limiter, and the subtests
// that detect it.
var faults = map[string]fault{
	"checks, unlocks, then adds": {
		func(s *plain) weir.Store { return take(s.checkThenAdd) },
		[]string{thousand, allOrNone, histories, growing, manyKeys},
	},
	"charges the first windows of a refused take": {
		func(s *plain) weir.Store { return take(s.chargeAsFarAsItFits) },
		[]string{"a refused hour leaves the minute alone", "the order of charges makes no difference", "random takes follow the arithmetic", allOrNone, growing},
	},
	"takes back what others have seen": {
		func(s *plain) weir.Store { return take(s.rollBack) },
		[]string{histories, growing, manyKeys},
	},
	"ignores gates": {
		func(s *plain) weir.Store { return take(s.ignoreGates) },
		[]string{
			"a gate spends nothing, and refuses while its window is full", "a gate is judged in the same step as the other charges",
			"random takes follow the arithmetic", growing,
		},
	},
	"charges for a gate": {
		func(s *plain) weir.Store { return take(s.chargeForGates) },
		[]string{"a gate spends nothing, and refuses while its window is full", "random takes follow the arithmetic", growing},
	},
	"asks a gate before its turn": {
		func(s *plain) weir.Store { return take(s.askGatesEarly) },
		[]string{"a gate is judged in the same step as the other charges"},
	},
	"counts refusals": {
		func(s *plain) weir.Store { return take(s.countRefusals) },
		[]string{"a refused take spends nothing", "random takes follow the arithmetic", growing},
	},
	"loses counts where a window ends": {
		func(s *plain) weir.Store { return take(s.endWindowInTwoSteps) },
		[]string{histories, growing, manyKeys},
	},
	"reads the clock before its turn": {
		func(s *plain) weir.Store { return take(s.readClockEarly) },
		[]string{histories, growing, manyKeys},
	},
	"reads the clock for some": {
		func(s *plain) weir.Store { return take(s.readClockForSome(new(atomic.Int64))) },
		[]string{"the reset stays put through a window", forwardOnly},
	},
	"starts anew when the clock was set back": {
		func(s *plain) weir.Store { return take(s.startAnewWhenSetBack) },
		[]string{"a clock that was set back keeps the count", jumps},
	},
	"keeps a window that the clock left behind": {
		func(s *plain) weir.Store { return take(s.keepFarReset) },
		[]string{"a clock that was set back does not keep a spent window waiting", jumps},
	},
	"ends every window one length after its first unit": {
		func(s *plain) weir.Store { return take(s.ignoreEnds) },
		[]string{
			"a window aligned to the clock ends at a multiple of its length", "a window of a calendar ends when a local day begins",
			"random takes of windows by the clock follow the arithmetic", "at once and across a boundary, each span admits exactly the limit",
		},
	},
	"keeps a reset of another span when the clock was set back": {
		func(s *plain) weir.Store { return take(s.keepOtherSpan) },
		[]string{"a clock that was set back keeps the count of a window by the clock"},
	},
	"loses counts while it grows": {
		func(s *plain) weir.Store { return take(s.copyWhileCounting()) },
		[]string{growing, manyKeys},
	},
	"opens a key twice": {
		func(s *plain) weir.Store { return take(s.openInTwoSteps) },
		[]string{growing, manyKeys},
	},
	"remembers a refusal beyond its reset": {
		func(s *plain) weir.Store {
			return s.remember(func(u weir.Used, now int64) bool { return u.Reset+1 > now })
		},
		[]string{"a window starts at its first unit and is restored exactly at reset", manyKeys},
	},
	"remembers a refusal whatever is asked": {
		func(s *plain) weir.Store {
			return s.remember(func(u weir.Used, now int64) bool { return u.Reset > now })
		},
		[]string{"a raised limit takes effect at once", growing},
	},
	"sweeps what was opened again": {
		func(s *plain) weir.Store { return take(s.sweepInTwoSteps(new(atomic.Int64))) },
		[]string{growing, manyKeys},
	},
}

// A take is a store with only the Take method.
type take func([]weir.Charge, *weir.Receipt)

func (f take) Take(_ context.Context, charges []weir.Charge, r *weir.Receipt) error {
	f(charges, r)
	return nil
}

func (s *plain) ignoreGates(charges []weir.Charge, r *weir.Receipt) {
	_ = s.Take(context.Background(), withGates(charges, 0), r)
}

func (s *plain) chargeForGates(charges []weir.Charge, r *weir.Receipt) {
	_ = s.Take(context.Background(), withGates(charges, 1), r)
}

// askGatesEarly reads the windows of gates in a take of its own, and the rest later.
func (s *plain) askGatesEarly(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	before := s.judge(charges, s.now())
	s.mu.Unlock()
	yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(withGates(charges, 0), s.now())
	for i, c := range charges {
		if c.Cost == weir.Gate && !before.Used[i].Fits(weir.Gate, c.Limit) {
			r.Allowed = false
		}
	}
	s.spend(withGates(charges, 0), r)
}

// withGates returns a copy of charges in which each gate has another cost.
func withGates(charges []weir.Charge, cost int64) []weir.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		if charges[i].Cost == weir.Gate {
			charges[i].Cost = cost
		}
	}
	return charges
}

func (s *plain) ignoreEnds(charges []weir.Charge, r *weir.Receipt) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Ends = nil
	}
	_ = s.Take(context.Background(), charges, r)
}

// keepOtherSpan believes every reset that is no further away than the longest span.
func (s *plain) keepOtherSpan(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(charges, s.now())
	for i, c := range charges {
		if was := s.told[string(c.Key)]; was > r.Now && was <= r.Now+c.Per && r.Used[i].Reset != 0 {
			r.Used[i].Reset = was
			s.used[string(c.Key)] = r.Used[i]
		}
	}
	s.spend(charges, r)
	for i, c := range charges {
		s.told[string(c.Key)] = r.Used[i].Reset
	}
}

func (s *plain) now() int64 { return s.clock.Now().Unix() }

func (s *plain) checkThenAdd(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	*r = s.judge(charges, s.now())
	s.mu.Unlock()
	yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spend(charges, r)
}

func (s *plain) chargeAsFarAsItFits(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(charges, s.now())
	for i, c := range charges {
		if !r.Used[i].Fits(c.Cost, c.Limit) {
			return
		}
		r.Used[i] = r.Used[i].Spend(c.Cost, c.End(r.Now))
		s.used[string(c.Key)] = r.Used[i]
	}
}

func (s *plain) rollBack(charges []weir.Charge, r *weir.Receipt) {
	for i := range charges {
		s.mu.Lock()
		one := s.judge(charges[i:i+1], s.now())
		s.spend(charges[i:i+1], &one)
		s.mu.Unlock()
		yield()
		r.Allowed, r.Now, r.Used[i] = one.Allowed, one.Now, one.Used[0]
		if !one.Allowed {
			s.giveBack(charges[:i], r)
			return
		}
	}
}

func (s *plain) giveBack(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range charges {
		u := s.used[string(c.Key)]
		if u.Count -= c.Cost; u.Count <= 0 {
			u = weir.Used{}
		}
		s.used[string(c.Key)], r.Used[i] = u, u
	}
}

func (s *plain) countRefusals(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(charges, s.now())
	allowed := r.Allowed
	r.Allowed = true
	s.spend(charges, r)
	r.Allowed = allowed
}

func (s *plain) endWindowInTwoSteps(charges []weir.Charge, r *weir.Receipt) {
	s.inTwoSteps(charges, r, func(u weir.Used, known bool, now int64) bool { return known && u.Reset <= now })
}

func (s *plain) openInTwoSteps(charges []weir.Charge, r *weir.Receipt) {
	s.inTwoSteps(charges, r, func(_ weir.Used, known bool, _ int64) bool { return !known })
}

// inTwoSteps finds the windows that have to begin, and begins them later, when
// another take may have done so.
func (s *plain) inTwoSteps(charges []weir.Charge, r *weir.Receipt, begins func(u weir.Used, known bool, now int64) bool) {
	var begin []string
	s.mu.Lock()
	for _, c := range charges {
		if u, known := s.used[string(c.Key)]; begins(u, known, s.now()) {
			begin = append(begin, string(c.Key))
		}
	}
	if len(begin) > 0 {
		s.mu.Unlock()
		yield()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	for _, key := range begin {
		s.used[key] = weir.Used{}
	}
	*r = s.judge(charges, s.now())
	s.spend(charges, r)
}

func (s *plain) readClockEarly(charges []weir.Charge, r *weir.Receipt) {
	now := s.now()
	yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	*r = s.judge(charges, now)
	s.spend(charges, r)
}

// readClockForSome makes every other take read a clock that is up to eight takes
// old.
func (s *plain) readClockForSome(takes *atomic.Int64) take {
	read := s.now()
	return func(charges []weir.Charge, r *weir.Receipt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := s.now()
		switch n := takes.Add(1); {
		case n%8 == 0:
			read = now
		case n%2 == 0:
			now = read
		}
		*r = s.judge(charges, now)
		s.spend(charges, r)
	}
}

func (s *plain) startAnewWhenSetBack(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range charges {
		if s.used[string(c.Key)].Reset > s.now()+c.Per {
			delete(s.used, string(c.Key))
		}
	}
	*r = s.judge(charges, s.now())
	s.spend(charges, r)
}

func (s *plain) keepFarReset(charges []weir.Charge, r *weir.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := maps.Clone(s.used)
	*r = s.judge(charges, s.now())
	for i, c := range charges {
		if r.Used[i].Reset != 0 {
			r.Used[i] = before[string(c.Key)]
			s.used[string(c.Key)] = r.Used[i]
		}
	}
	s.spend(charges, r)
}

// copyWhileCounting moves to a larger table after every 64 new keys, and counts in
// the old one meanwhile.
func (s *plain) copyWhileCounting() take {
	held := 0
	return func(charges []weir.Charge, r *weir.Receipt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.used) >= held+64 {
			held = len(s.used)
			larger := maps.Clone(s.used)
			s.mu.Unlock()
			yield()
			s.mu.Lock()
			s.used = larger
		}
		*r = s.judge(charges, s.now())
		s.spend(charges, r)
	}
}

// sweepInTwoSteps lists the windows that have ended at every 16th take, and drops
// them later, when another take may have begun them again.
func (s *plain) sweepInTwoSteps(takes *atomic.Int64) take {
	return func(charges []weir.Charge, r *weir.Receipt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if takes.Add(1)%16 == 0 {
			var ended []string
			for key, u := range s.used {
				if u.Reset <= s.now() {
					ended = append(ended, key)
				}
			}
			s.mu.Unlock()
			yield()
			s.mu.Lock()
			for _, key := range ended {
				delete(s.used, key)
			}
		}
		*r = s.judge(charges, s.now())
		s.spend(charges, r)
	}
}

// remember answers from an earlier refusal, without reading the window, while still
// returns true.
func (s *plain) remember(still func(u weir.Used, now int64) bool) take {
	refused := map[string]weir.Used{}
	return func(charges []weir.Charge, r *weir.Receipt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := s.now()
		for i, c := range charges {
			if u, ok := refused[string(c.Key)]; ok && still(u, now) {
				*r = weir.Receipt{Now: now, Remembered: true}
				r.Used[i] = u
				return
			}
		}
		*r = s.judge(charges, now)
		s.spend(charges, r)
		for i, c := range charges {
			if !r.Allowed && !r.Used[i].Fits(c.Cost, c.Limit) {
				refused[string(c.Key)] = r.Used[i]
			}
		}
	}
}
