package watch

import (
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// What is counted of the reservations of a limiter.
const (
	reserved   = iota // units
	givenBack         // units
	overrun           // units
	stranded          // units
	unreported        // requests
	slots             // in flight, now
	settlements
)

// Settled counts what became of a reservation: it is for weir.Options.OnSettled. Limiters in Shadow
// mode are left out.
func (r *Recorder) Settled(v weir.Settled) {
	if v.Shadow || v.Limiter == nil {
		return
	}
	s := r.lock()
	defer r.unlock(s)
	c := s.cell(r, v.Limiter.Name)
	if c == nil {
		return
	}
	if !v.Limiter.SettlesUnits() { // the handler has reported
		c.settled[reserved] += v.Reserved
	}
	switch {
	case v.Unreported:
		c.settled[unreported]++
	case v.Lost > 0:
		c.settled[stranded] += v.Lost
	case v.Used < v.Reserved:
		c.settled[givenBack] += v.Reserved - v.Used
	default:
		c.settled[overrun] += v.Used - v.Reserved
	}
}

// Spent counts for the top callers what a request has cost, in place of what was charged for it: it
// is for answer.Options.Spent.
func (r *Recorder) Spent(o answer.Spending) {
	if len(o.Who) == 0 || o.Decision == nil || o.Used == o.Reserved {
		return
	}
	now := r.second(r.latest.Load())
	s := r.lock()
	defer r.unlock(s)
	c := s.cell(r, o.Limiter)
	if c == nil {
		return
	}
	if s.waiting > 0 { // perhaps with this request
		s.flushPending(r)
	}
	if weight := s.weight(now); weight > 0 {
		t := touch{hash: r.hash(o.Who), second: o.Decision.Now, weight: weight, settles: true, change: o.Used - o.Reserved}
		s.count(r, c.limiter, &t, nil)
	}
}

// Held counts the slots that requests take and give back: it is for weir.Options.OnHeld.
func (r *Recorder) Held(l *weir.Limiter, n int64) {
	s := r.lock()
	defer r.unlock(s)
	if c := s.cell(r, l.Name); c != nil {
		c.settled[slots] += n
	}
}

// reserve counts what was charged for a request, if its answer can change that.
func (c *cell) reserve(d *weir.Decision) {
	if l := d.Limiter(); d.Allowed && d.Cost > 0 && l != nil && l.SettlesUnits() {
		c.settled[reserved] += d.Cost
	}
}

// flushSettled adds the cell's settlements to those of the limiter.
func (c *cell) flushSettled() {
	if c.settled == [settlements]int64{} {
		return
	}
	for i, n := range c.settled {
		c.limiter.settled[i].Add(n)
	}
	c.settled = [settlements]int64{}
}

// Settled is what became of the reservations of a limiter since the start, and the slots that
// requests of this process hold now.
type Settled struct {
	Reserved   int64 `json:"reserved"`   // units charged before their requests were served
	GivenBack  int64 `json:"given_back"` // units of those that requests have not cost
	Overrun    int64 `json:"overrun"`    // units beyond those that requests have cost
	Stranded   int64 `json:"stranded"`   // units that the store may not have settled
	Unreported int64 `json:"unreported"` // requests whose answer did not report their cost
	Slots      int64 `json:"slots"`      // of in_flight, in use
}

// settlement returns what is shown of the limiter's reservations; nil if it never had any.
func (l *limiter) settlement(settles bool) *Settled {
	of := func(i int) int64 { return max(l.settled[i].Load(), 0) }
	out := Settled{of(reserved), of(givenBack), of(overrun), of(stranded), of(unreported), of(slots)}
	if !settles && out == (Settled{}) {
		return nil
	}
	return &out
}
