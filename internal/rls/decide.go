package rls

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
)

// decide charges all groups, or none. If quotas are spent, it charges the others and reads those,
// in another take, until all that is charged fits.
func (s *Service) decide(ctx context.Context, c *call) error {
	if len(c.groups) == 0 {
		return nil
	}
	if !s.options.CountRefused {
		for i := range c.groups {
			if g := &c.groups[i]; g.mode != shadow && g.exceed(0) { // no count can admit it
				c.refused = true
			}
		}
		c.refused = c.refused || c.quotasAreSpent()
	}
	if err := s.lookFirst(ctx, c); err != nil {
		return err
	}
	for range 2*len(c.groups) + 1 {
		if err := s.take(ctx, c); err != nil {
			return err
		}
		if c.decision.Allowed {
			break
		}
		before := c.spent()
		s.readRefusal(c)
		if c.refused || c.spent() == before {
			c.refused = true
			break
		}
	}
	c.judge()
	return nil
}

// lookFirst reads the counts of a request in which some descriptors only look, and others spend. A
// take never refuses those that only look. If one of them is over its limit, which a lower limit
// makes possible, the others must not be charged.
func (s *Service) lookFirst(ctx context.Context, c *call) error {
	looks, spends := 0, 0
	for i := range c.groups {
		if c.groups[i].total == 0 {
			looks++
		} else {
			spends++
		}
	}
	if c.refused || looks == 0 || spends == 0 || s.options.CountRefused {
		return nil
	}
	c.looking = true
	err := s.take(ctx, c)
	c.looking = false
	if err != nil {
		return err
	}
	all := c.decision.Standings()
	for i := range all {
		g := &c.groups[c.scratch.Ask(&all[i])]
		if g.total == 0 && g.exceed(uint64(all[i].Count)) {
			c.refused = true
		}
	}
	c.refused = c.refused || c.quotasAreSpent()
	return nil
}

// take asks the store once.
func (s *Service) take(ctx context.Context, c *call) error {
	c.asks = c.asks[:0]
	for i := range c.groups {
		g := &c.groups[i]
		a := weir.Ask{Limiter: limiterNames[g.unit], Keys: &c.keys[i], Cost: int64(min(g.total, weir.MaxLimit)), Limit: int64(max(g.bound(), 1))}
		switch {
		case c.looking || c.refused || g.spent || g.total == 0:
			a.Cost = weir.Peek
		case g.mode == shadow || s.options.CountRefused:
			a.Exempt = true
		}
		c.asks = append(c.asks, a)
	}
	r := weir.Request{Asks: c.asks, Scratch: &c.scratch}
	if err := s.decider.DecideInto(ctx, &r, &c.decision); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if c.decision.Outcome == weir.StoreUnavailable {
		return errStore
	}
	return nil
}

// readRefusal notes which groups have refused a take.
func (s *Service) readRefusal(c *call) {
	all := c.decision.Standings()
	for i := range all {
		g := &c.groups[c.scratch.Ask(&all[i])]
		if !all[i].Refused && !(g.mode == shadow && all[i].Count+int64(min(g.total, weir.MaxLimit)) > weir.MaxLimit) {
			continue
		}
		if g.mode == shadow {
			g.spent = true
		} else if g.exceed(uint64(all[i].Count)) {
			c.refused = true
		}
	}
	c.refused = c.refused || c.quotasAreSpent()
}

func (c *call) spent() (n int) {
	for i := range c.groups {
		if c.groups[i].spent {
			n++
		}
		if c.groups[i].quotaSpent {
			n++
		}
	}
	return n
}

// quotasAreSpent reports whether there are quotas, and all of them are over.
func (c *call) quotasAreSpent() bool {
	n, spent := 0, 0
	for i := range c.groups {
		if c.groups[i].quotas {
			if n++; c.groups[i].quotaSpent {
				spent++
			}
		}
	}
	return n > 0 && n == spent
}

// judge sets the counts of each descriptor, whether it is over, and whether that refuses the
// request.
func (c *call) judge() {
	var counts [weir.MaxCharges]uint64
	all := c.decision.Standings()
	for i := range all {
		counts[c.scratch.Ask(&all[i])] = uint64(all[i].Count)
	}
	quotas, over, charged := 0, 0, c.decision.Allowed && !c.refused
	for i := range c.matches {
		m := &c.matches[i]
		if m.group < 0 {
			continue
		}
		g := &c.groups[m.group]
		base := counts[m.group]
		if charged && !g.spent {
			base -= min(base, min(g.total, weir.MaxLimit))
		}
		m.before = base + m.upTo - m.hits
		m.after = base + m.upTo
		m.over = m.after > m.limit
		if m.mode == quota {
			quotas++
			if m.over {
				over++
			}
		}
		if m.over && m.mode == enforced {
			c.refused = true
		}
	}
	if quotas > 0 && quotas == over {
		c.refused = true
	}
}
