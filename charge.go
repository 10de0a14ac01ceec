package weir

import "fmt"

// A Scratch is the working memory of one decision. The zero value is ready. Its fields are not for
// callers. It must not be copied after its first use.
type Scratch struct {
	n        int // charges
	gates    int // those of them that are gates: their windows[i] is nil
	charges  [MaxCharges]Charge
	limiters [MaxCharges]*limiter
	windows  [MaxCharges]*Window
	limits   [MaxCharges]int64 // the limit for the caller, also if it is exempt
	exempted [MaxCharges]bool  // charges that never refuse
	exempt   int               // the number of those
	grants   [MaxCharges]Grant // the grants in force; only written if there are any
	cost     int64             // the largest cost of a charge
	receipt  Receipt
	more     [1]Charge // of a refused request that may begin a penalty

	ends        [MaxCharges]int // the end of each key in keys
	keys        []byte          // starts in room; longer ones are allocated
	room        [192]byte       // enough for the keys of nearly every request
	costTooHigh bool            // a cost may be above its limit

	trials *trials // what the request is tried out under; nil: nothing

	// The decisions that a trial reports: its own, and the one that is in force.
	trial, live Decision
}

// Who returns the bytes by which a standing's window counts its caller. Two callers of one window
// have the same bytes only if the window counts them together. The bytes must not be changed,
// parsed or shown. They are valid for the standings of the last decision with this Scratch, until
// its next use.
func (s *Scratch) Who(of *Standing) []byte {
	if int(of.charge) >= s.n {
		return nil
	}
	c := &s.charges[of.charge]
	return c.Key[c.Scope:]
}

// charge writes the charges of r: those of the limiters that it names, or of the limiter that m
// found.
func (d *Decider) charge(s *Scratch, m Match, r *Request) error {
	s.reset()
	if r.Cost < Peek || r.Cost > MaxLimit {
		return fmt.Errorf("decide: cost %d is out of range: 1 to %d, 0 for the limiter's own and Peek are allowed", r.Cost, MaxLimit)
	}
	if len(r.Limiters) > 0 {
		if err := s.addNamed(d.compiled.Load(), r); err != nil {
			return err
		}
		if c := d.candidate.Load(); c != nil {
			s.trials = Match{trials: s.trials}.with(c, Match{}).trials
		}
		return s.complete(d.keeper)
	}
	s.trials = m.trials
	if m.limiter == nil {
		return nil
	}
	if err := s.add(m.limiter, r); err != nil {
		return err
	}
	return s.complete(d.keeper)
}

func (s *Scratch) reset() {
	if s.keys == nil {
		s.keys = s.room[:0]
	}
	s.n, s.gates, s.cost, s.exempt, s.costTooHigh, s.trials, s.keys = 0, 0, 0, 0, false, nil, s.keys[:0]
	s.receipt.Outcome = Counted
}

func (s *Scratch) addNamed(c *compiled, r *Request) error {
	for i, name := range r.Limiters {
		l, err := c.limiterFor(name)
		if err != nil {
			return err
		}
		for _, before := range r.Limiters[:i] {
			if before == name {
				return fmt.Errorf("decide: limiter %q is named twice", name)
			}
		}
		if l.Mode == Shadow {
			s.trials = s.trials.shadow(l)
			continue
		}
		if err := s.add(l, r); err != nil {
			return err
		}
	}
	return nil
}

// add charges every window of l. The keys share a buffer that may still move, so complete slices
// them.
func (s *Scratch) add(l *limiter, r *Request) error {
	first, charges := s.n, len(l.Windows)
	if l.gate != nil {
		charges++
	}
	if s.n+charges > MaxCharges {
		return fmt.Errorf("decide: the named limiters have more than %d windows and penalties together", MaxCharges)
	}
	cost := r.Cost
	switch cost {
	case 0:
		cost = l.cost
	case Peek:
		cost = 0
	}
	var exempt bool
	var limits [MaxWindows]int64
	if l.special != nil {
		exempt, limits = l.special.find(r.Keys, s.keys)
	}
	for i := range l.Windows {
		w := &l.Windows[i]
		c := &s.charges[s.n]
		c.Limit, c.Per, c.Ends, c.Cost, c.OnFailure = w.Limit, l.lengths[i], l.ends[i], cost, l.OnStoreFailure
		if limits[i] > 0 {
			c.Limit = limits[i]
		}
		s.limits[s.n], s.exempted[s.n] = c.Limit, exempt
		if exempt {
			c.Limit = MaxLimit
			s.exempt++
		}
		s.costTooHigh = s.costTooHigh || cost > c.Limit
		c.Scope = len(l.scopes[i])
		start := len(s.keys)
		s.keys = append(s.keys, l.scopes[i]...)
		for j, part := range w.Key {
			s.keys = appendPart(s.keys, part, r.Keys)
			if j == 0 {
				c.Subject = len(s.keys) - start
			}
		}
		s.ends[s.n] = len(s.keys)
		s.limiters[s.n], s.windows[s.n] = l, w
		s.n++
	}
	if l.gate != nil && !exempt {
		s.addGate(l, first, cost)
	}
	s.cost = max(s.cost, cost)
	return nil
}

// complete slices the keys, applies the grants of a keeper, which may be nil, and checks the costs.
func (s *Scratch) complete(k Keeper) error {
	s.sliceKeys()
	if k != nil {
		s.applyGrants(k)
	}
	return s.checkCosts()
}

func (s *Scratch) sliceKeys() {
	start := 0
	for i := range s.n {
		s.charges[i].Key = s.keys[start:s.ends[i]:s.ends[i]]
		start = s.ends[i]
	}
}

// applyGrants replaces the policy's limits by those that an operator granted.
func (s *Scratch) applyGrants(k Keeper) {
	if !k.Granted(s.charges[:s.n], s.grants[:s.n]) {
		return
	}
	for i := range s.n {
		if limit := s.granted(i); limit > 0 {
			s.limits[i] = limit
			if !s.exempted[i] {
				s.charges[i].Limit = limit
				s.costTooHigh = s.costTooHigh || s.charges[i].Cost > limit
			}
		}
	}
}

// granted returns the granted limit of a charge, or 0 without a grant. A later policy may raise a
// limiter's cost above a grant. Such a grant counts as one request's cost, so that the caller does
// not get an error.
func (s *Scratch) granted(i int) int64 {
	if s.grants[i].Limit == 0 {
		return 0
	}
	return max(s.grants[i].Limit, s.limiters[i].cost)
}

// checkCosts returns an error for a charge that could never be served.
func (s *Scratch) checkCosts() error {
	if !s.costTooHigh {
		return nil
	}
	for i := range s.n {
		if c := &s.charges[i]; c.Cost > c.Limit {
			return fmt.Errorf("decide: cost %d exceeds the limit of %q of limiter %q, which is %d here: it could never be served",
				c.Cost, s.windows[i], s.limiters[i].Name, c.Limit)
		}
	}
	return nil
}
