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
			if g := &c.groups[i]; g.mode != shadow && g.total > g.limit {
				g.spent = true // no count can admit it
				c.refused = c.refused || g.mode == enforced
			}
		}
		c.refused = c.refused || c.quotasAreSpent()
	}
	for range len(c.groups) + 1 {
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
	c.judge(s.options.CountRefused)
	return nil
}

// take asks the store once.
func (s *Service) take(ctx context.Context, c *call) error {
	c.asks = c.asks[:0]
	for i := range c.groups {
		g := &c.groups[i]
		a := weir.Ask{Limiter: limiterNames[g.unit], Keys: &c.keys[i], Cost: int64(min(g.total, weir.MaxLimit)), Limit: int64(max(g.limit, 1))}
		switch {
		case c.refused || g.spent || g.total == 0:
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
		g.spent = true
		c.refused = c.refused || g.mode == enforced
	}
	c.refused = c.refused || c.quotasAreSpent()
}

func (c *call) spent() (n int) {
	for i := range c.groups {
		if c.groups[i].spent {
			n++
		}
	}
	return n
}

// quotasAreSpent reports whether there are groups in quota mode, and all of them are spent.
func (c *call) quotasAreSpent() bool {
	n, spent := 0, 0
	for i := range c.groups {
		if c.groups[i].mode == quota {
			if n++; c.groups[i].spent {
				spent++
			}
		}
	}
	return n > 0 && n == spent
}

// judge sets the counts of each descriptor, and whether it is over. countRefused means that hits
// were counted whatever they are over.
func (c *call) judge(countRefused bool) {
	var counts [weir.MaxCharges]uint64
	all := c.decision.Standings()
	for i := range all {
		counts[c.scratch.Ask(&all[i])] = uint64(all[i].Count)
	}
	quotas, over := 0, 0
	for i := range c.matches {
		m := &c.matches[i]
		if m.group < 0 {
			continue
		}
		g := &c.groups[m.group]
		base := counts[m.group]
		if charged := c.decision.Allowed && !c.refused && !g.spent; charged {
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
		if countRefused && m.over && m.mode == enforced {
			c.refused = true
		}
	}
	if countRefused && quotas > 0 && quotas == over {
		c.refused = true
	}
}
