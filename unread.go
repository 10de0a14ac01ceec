package weir

import "context"

// A bodyUse is how the cost of a request is found that reports it in a body that was not read yet.
type bodyUse uint8

const (
	bodyIsRead     bodyUse = iota
	bodyCostsLeast         // it is not read: the request is charged the least that it can cost
	bodyCostsMost          // it is not read: the request is charged the most that it can cost
)

// reservation returns what a request reserves that leaves its cost to the limiter.
func (s *Scratch) reservation(l *limiter, r Reporter) int64 {
	from := l.Reserve.From
	if from == (Reading{}) || r == nil {
		return l.cost
	}
	if s.body != bodyIsRead && r.Waits(from) {
		if s.unread = true; s.body == bodyCostsLeast {
			return l.Reserve.Units(0, l.cost)
		}
		return l.cost
	}
	n, ok := r.Reported(from)
	if !ok {
		return l.cost
	}
	return l.Reserve.Units(n, l.cost)
}

// refusesUnread reports whether a take of the charges in s would be refused now. If so, the receipt
// in s is that of the refused take. It spends nothing.
func (d *Decider) refusesUnread(ctx context.Context, s *Scratch) bool {
	if s.denied != nil {
		return true
	}
	var costs [MaxCharges]int64
	for i := range s.n {
		costs[i], s.charges[i].Cost = s.charges[i].Cost, 0
	}
	d.take(ctx, s)
	fits := true
	for i := range s.n {
		c := &s.charges[i]
		c.Cost = costs[i]
		fits = fits && s.receipt.Used[i].Fits(c.Cost, c.Limit)
	}
	if fits || s.exempt == s.n || s.receipt.Outcome == AllowedUncounted {
		return false
	}
	s.receipt.Allowed, s.receipt.Ticket = false, Ticket{}
	return true
}
