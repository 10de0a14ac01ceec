package weir

import (
	"bytes"
	"fmt"
)

// An Ask charges a request to one limiter in a way of its own: for another caller, at another cost
// or under another limit than the other Asks of the request. It is for front doors whose requests
// count several things at once, such as the descriptors of a rate limit service.
type Ask struct {
	Limiter string // the name of a limiter that is enforced
	Keys    Keys   // the caller; nil means Request.Keys

	// Cost is the number of units to spend. 0 means the limiter's own cost, and Peek reads without
	// spending.
	Cost int64

	// Limit replaces the limit of each window of the limiter, 1 to MaxLimit. 0 means the limit that
	// the policy gives to the caller. A grant of an operator replaces this one, too.
	Limit int64

	// Exempt means that the units are counted and never refused, as for Limiter.Exempt.
	Exempt bool
}

// addAsks charges the limiters of r.Asks.
func (s *Scratch) addAsks(c *compiled, r *Request) error {
	for i := range r.Asks {
		a := &r.Asks[i]
		l, err := c.limiterFor(a.Limiter)
		switch {
		case err != nil:
			return err
		case l.Mode == Shadow:
			return fmt.Errorf("decide: limiter %q is in mode shadow: an Ask needs an enforced one, and Ask.Exempt to refuse nothing", a.Limiter)
		case a.Cost < Peek || a.Cost > MaxLimit:
			return fmt.Errorf("decide: cost %d of limiter %q is out of range: 1 to %d, 0 for the limiter's own and Peek are allowed", a.Cost, a.Limiter, MaxLimit)
		case a.Limit < 0 || a.Limit > MaxLimit:
			return fmt.Errorf("decide: limit %d of limiter %q is out of range: 1 to %d, and 0 for the policy's are allowed", a.Limit, a.Limiter, MaxLimit)
		}
		s.one = Request{Keys: a.Keys, Cost: a.Cost, Reporter: r.Reporter}
		if a.Keys == nil {
			s.one.Keys = r.Keys
		}
		first := s.n
		err = s.addAsk(&l.named, &s.one, a)
		s.one = Request{}
		if err != nil {
			return err
		}
		for charge := first; charge < s.n; charge++ {
			s.asked[charge] = uint8(i)
		}
	}
	return nil
}

// addAsk charges every window of the limiter of by, unless it denies the caller.
func (s *Scratch) addAsk(by *cover, r *Request, a *Ask) error {
	var holds exception
	if special := by.limiter.special; special != nil {
		if holds = special.find(r.Keys, s.keys); holds.denied {
			s.denied = by.limiter
		}
	}
	if s.denied != nil {
		return nil
	}
	if a.Limit > 0 {
		for i := range holds.limits {
			holds.limits[i] = a.Limit
		}
	}
	holds.exempt = holds.exempt || a.Exempt
	return s.addWindows(by, "", r, &holds)
}

// checkDistinct returns an error if two charges count in the same window of the same caller, which
// no store can charge in one take.
func (s *Scratch) checkDistinct() error {
	for i := range s.n {
		for j := range i {
			if bytes.Equal(s.charges[i].Key, s.charges[j].Key) {
				return fmt.Errorf("decide: limiter %q is asked twice for one caller: ask once, for the sum of the costs", s.limiters[i].Name)
			}
		}
	}
	return nil
}

// Ask returns the index in Request.Asks of the one that charged the window of a standing. It is
// valid for the standings of the last decision with this Scratch.
func (s *Scratch) Ask(of *Standing) int {
	if int(of.charge) >= s.n {
		return 0
	}
	return int(s.asked[of.charge])
}
