package storetest_test

import (
	"context"
	"slices"

	"github.com/weirlimit/weir"
)

var _ weir.Settler = (*plain)(nil)

// identify gives each window that an allowed take has opened a number, and returns
// the take's ticket. before is what was spent of each window before the take.
func (s *plain) identify(charges []weir.Charge, before []weir.Used) weir.Ticket {
	s.takes++
	windows := map[string]uint64{}
	for i, c := range charges {
		if before[i].Reset == 0 && c.Cost > 0 && !c.Held {
			s.opened++
			s.windows[string(c.Key)] = s.opened
		}
		windows[string(c.Key)] = s.windows[string(c.Key)]
	}
	s.tickets[s.takes] = windows
	return weir.Ticket{Epoch: s.takes}
}

// Settle implements weir.Settler.
func (s *plain) Settle(_ context.Context, t *weir.Ticket, changes []weir.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		switch key := string(c.Key); {
		case c.Units == 0:
		case c.Held:
			c.Done, c.Used = true, weir.Used{Count: s.used[key].Count + c.Units}
			s.used[key] = c.Used
		case s.used[key].Reset > s.now() && s.windows[key] == s.tickets[t.Epoch][key]:
			c.Done, c.Used = true, s.used[key].Settle(c.Units)
			s.used[key] = c.Used
		}
	}
	return nil
}

// A settler is a plain store with another Settle, or another Take.
type settler struct {
	*plain
	take   func([]weir.Charge, *weir.Receipt)
	settle func(*weir.Ticket, []weir.Change)
}

func (s settler) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if s.take == nil {
		return s.plain.Take(ctx, charges, r)
	}
	s.take(charges, r)
	return nil
}

func (s settler) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	if s.settle == nil {
		return s.plain.Settle(ctx, t, changes)
	}
	s.settle(t, changes)
	return nil
}

// settleEach settles each change with f, under the lock, if it is not of slots.
func (s *plain) settleEach(f func(t *weir.Ticket, c *weir.Change)) weir.Store {
	return settler{plain: s, settle: func(t *weir.Ticket, changes []weir.Change) {
		for i := range changes {
			c := &changes[i]
			if c.Held || c.Units == 0 {
				_ = s.Settle(context.Background(), t, changes[i:i+1])
				continue
			}
			s.mu.Lock()
			f(t, c)
			s.mu.Unlock()
		}
	}}
}

// change changes the window that a key has now.
func (s *plain) change(c *weir.Change, used weir.Used) {
	c.Done, c.Used = true, used
	s.used[string(c.Key)] = used
}

// isTakes reports whether a window is still the one that the take was charged to.
func (s *plain) isTakes(t *weir.Ticket, c *weir.Change) bool {
	return s.used[string(c.Key)].Reset > s.now() && s.windows[string(c.Key)] == s.tickets[t.Epoch][string(c.Key)]
}

const (
	comesBack      = "units that are given back can be spent again"
	staysOpen      = "a window that got all its units back stays open"
	overrun        = "an overrun is charged beyond the limit"
	ended          = "a window that has ended is not settled, nor is the next"
	beforeReset    = "a take before a reset is not settled after it"
	eachWindow     = "each window of a take is settled on its own"
	backGivesNone  = "a clock that was set back gives nothing to a later window"
	toTheUnit      = "at once, what was used is counted to the unit"
	slotsHeld      = "slots are held until they are given back"
	slotsWhole     = "slots and windows are all or none"
	slotsAtOnce    = "at once, no slot too many is held"
	randomSettling = "random settlements follow the arithmetic"
	settleHistory  = "concurrent takes, settlements and resets are linearizable"
)

// settlerFaults are wrong settlers. Each has one error, and the subtests that
// detect it.
var settlerFaults = map[string]fault{
	"gives nothing back": {func(s *plain) weir.Store {
		return s.settleEach(func(_ *weir.Ticket, c *weir.Change) { s.change(c, s.used[string(c.Key)]) })
	}, []string{comesBack, randomSettling, toTheUnit}},
	"gives twice": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if s.isTakes(t, c) {
				s.change(c, s.used[string(c.Key)].Settle(2*c.Units))
			}
		})
	}, []string{comesBack, overrun, eachWindow, randomSettling, settleHistory, toTheUnit}},
	"gives to any window of the key": {func(s *plain) weir.Store {
		return s.settleEach(func(_ *weir.Ticket, c *weir.Change) { s.change(c, s.used[string(c.Key)].Settle(c.Units)) })
	}, []string{ended, beforeReset, backGivesNone, randomSettling, settleHistory}},
	"tells windows by their reset alone": {func(s *plain) weir.Store {
		return s.settleEach(func(_ *weir.Ticket, c *weir.Change) {
			if u := s.used[string(c.Key)]; u.Reset == c.Reset && u.Reset > s.now() {
				s.change(c, u.Settle(c.Units))
			}
		})
	}, []string{beforeReset, backGivesNone, randomSettling, settleHistory}},
	"tells windows by their reset, and by resets of an operator": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if u := s.used[string(c.Key)]; u.Reset == c.Reset && u.Reset > s.now() && t.Epoch > s.reset[string(c.Key)] {
				s.change(c, u.Settle(c.Units))
			}
		})
	}, []string{backGivesNone}},
	"checks the window, unlocks, then changes it": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if s.isTakes(t, c) {
				s.mu.Unlock()
				yield()
				s.mu.Lock()
				s.change(c, s.used[string(c.Key)].Settle(c.Units))
			}
		})
	}, []string{settleHistory}},
	"changes a count that it read before": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if u := s.used[string(c.Key)]; s.isTakes(t, c) {
				s.mu.Unlock()
				yield()
				s.mu.Lock()
				s.change(c, u.Settle(c.Units))
			}
		})
	}, []string{toTheUnit, settleHistory}},
	"closes a window that is empty": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if !s.isTakes(t, c) {
				return
			}
			if s.change(c, s.used[string(c.Key)].Settle(c.Units)); c.Used.Count == 0 {
				delete(s.used, string(c.Key))
			}
		})
	}, []string{staysOpen, randomSettling, settleHistory}},
	"charges an overrun up to the limit": {func(s *plain) weir.Store {
		return s.settleEach(func(t *weir.Ticket, c *weir.Change) {
			if s.isTakes(t, c) {
				u := s.used[string(c.Key)].Settle(c.Units)
				u.Count = min(u.Count, c.Limit)
				s.change(c, u)
			}
		})
	}, []string{overrun, randomSettling}},
	"settles the first window of a take": {func(s *plain) weir.Store {
		return settler{plain: s, settle: func(t *weir.Ticket, changes []weir.Change) {
			_ = s.Settle(context.Background(), t, changes[:1])
		}}
	}, []string{eachWindow, toTheUnit}},
	"ends slots with time": {func(s *plain) weir.Store {
		return settler{plain: s, take: func(charges []weir.Charge, r *weir.Receipt) {
			s.mu.Lock()
			for _, c := range charges {
				if c.Held && s.told[string(c.Key)] < s.now() {
					delete(s.used, string(c.Key))
				}
				s.told[string(c.Key)] = s.now()
			}
			s.mu.Unlock()
			_ = s.Take(context.Background(), charges, r)
		}}
	}, []string{slotsHeld, randomSettling, settleHistory}},
	"holds slots of a refused take": {func(s *plain) weir.Store {
		return settler{plain: s, take: func(charges []weir.Charge, r *weir.Receipt) {
			if _ = s.Take(context.Background(), charges, r); !r.Allowed {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, c := range charges {
					if u := s.used[string(c.Key)]; c.Held && u.Fits(c.Cost, c.Limit) {
						s.used[string(c.Key)] = weir.Used{Count: u.Count + c.Cost}
					}
				}
			}
		}}
	}, []string{slotsWhole, randomSettling, settleHistory, slotsAtOnce}},
	"charges windows for a refused slot": {func(s *plain) weir.Store {
		return settler{plain: s, take: func(charges []weir.Charge, r *weir.Receipt) {
			if _ = s.Take(context.Background(), charges, r); !r.Allowed {
				windows := slices.DeleteFunc(slices.Clone(charges), func(c weir.Charge) bool { return c.Held })
				_ = s.Take(context.Background(), windows, new(weir.Receipt))
			}
		}}
	}, []string{slotsWhole, randomSettling, settleHistory, slotsAtOnce}},
	"counts slots in two steps": {func(s *plain) weir.Store {
		return settler{plain: s, take: func(charges []weir.Charge, r *weir.Receipt) {
			free := slices.Clone(charges)
			s.mu.Lock()
			for i := range free {
				if c := &free[i]; c.Held && s.used[string(c.Key)].Fits(c.Cost, c.Limit) {
					c.Limit = weir.MaxLimit
				}
			}
			s.mu.Unlock()
			yield()
			_ = s.Take(context.Background(), free, r)
		}}
	}, []string{slotsAtOnce, settleHistory}},
	"gives one slot back for all": {func(s *plain) weir.Store {
		return settler{plain: s, settle: func(t *weir.Ticket, changes []weir.Change) {
			for i := range changes {
				if i == 0 || !changes[i-1].Held {
					_ = s.Settle(context.Background(), t, changes[i:i+1])
				}
			}
		}}
	}, []string{"slots of several callers are all or none", slotsAtOnce}},
	"counts slots by the first of the key": {func(s *plain) weir.Store {
		cut := func(c *weir.Charge) {
			if c.Held {
				c.Key = c.Key[:min(len(c.Key), c.Subject+2)]
			}
		}
		return settler{plain: s, take: func(charges []weir.Charge, r *weir.Receipt) {
			charges = slices.Clone(charges)
			for i := range charges {
				cut(&charges[i])
			}
			_ = s.Take(context.Background(), charges, r)
		}, settle: func(t *weir.Ticket, changes []weir.Change) {
			for i := range changes {
				cut(&changes[i].Charge)
			}
			_ = s.Settle(context.Background(), t, changes)
		}}
	}, []string{"slots are their caller's alone"}},
}
