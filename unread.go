package weir

import "context"

// A bodyUse is how the cost of a request is found that reports it in a body that was not read yet.
type bodyUse uint8

const (
	bodyIsRead     bodyUse = iota
	bodyCostsLeast         // it is not read: the request is charged the least that it can cost
	bodyCostsMost          // it is not read: the request is charged the most that it can cost
)

// reservation returns what a request reserves that leaves its cost to the limiter. The body of one
// that l rejects is not read: it costs the least.
func (s *Scratch) reservation(l *limiter, r *Request) int64 {
	from := l.Reserve.From
	if from == (Reading{}) || r.Reporter == nil {
		return l.cost
	}
	waits := s.body != bodyIsRead && r.Reporter.Waits(from)
	s.unread = s.unread || waits
	switch {
	case waits && s.body == bodyCostsLeast, from.Form == ReadJSON && l.rejects(r.Keys):
		return l.Reserve.Units(0, l.cost)
	case waits:
		return l.cost
	}
	n, ok := r.Reporter.Reported(from)
	if !ok {
		return l.cost
	}
	return l.Reserve.Units(n, l.cost)
}

// wouldRefuse reports whether a take of the charges in s would be refused now. If so, the receipt
// in s is that of the refused take. It spends nothing.
//
// A charge of n units fits if a Gate fits under a limit that is lower by n-1. Gates are asked for,
// and not charges of no units, so that a store may answer for a spent window from its memory.
func (d *Decider) wouldRefuse(ctx context.Context, s *Scratch) bool {
	if s.denied != nil {
		return true
	}
	var costs, limits [MaxCharges]int64
	for i := range s.n {
		c := &s.charges[i]
		costs[i], limits[i] = c.Cost, c.Limit
		switch {
		case c.Held:
			c.Cost = 0
		case c.Cost > 0:
			c.Cost, c.Limit = Gate, c.Limit-c.Cost+1
		}
	}
	d.take(ctx, s)
	fits := true
	for i := range s.n {
		c, used := &s.charges[i], &s.receipt.Used[i]
		if s.receipt.Outcome == StoreUnavailable {
			used.Count = limits[i]
		}
		c.Cost, c.Limit = costs[i], limits[i]
		fits = fits && used.Fits(c.Cost, c.Limit)
	}
	if fits || s.exempt == s.n || s.receipt.Outcome == AllowedUncounted {
		return false
	}
	s.receipt.Allowed, s.receipt.Ticket = false, Ticket{}
	return true
}
