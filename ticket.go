package weir

import (
	"fmt"
	"time"
)

// A Scratch is the working memory of a decision, opaque and ready when zero. It keeps nothing alive but its buffer, and must
// not be copied once it was used.
type Scratch struct{ ticket ticket }

// Who returns the bytes that the window of a standing counts its caller by: the same for the same caller, another for any
// other of the same limiter and window, and never to be parsed or shown. Only the standings of the last decision that was made
// with this Scratch have them, until it is used again; the bytes must not be changed.
func (s *Scratch) Who(of *Standing) []byte {
	return s.ticket.who(of)
}

func (t *ticket) who(of *Standing) []byte {
	if int(of.charge) >= t.n {
		return nil
	}
	c := &t.charges[of.charge]
	return c.Key[c.Scope:]
}

// A ticket is the working memory of one decision.
type ticket struct {
	n        int
	charges  [MaxCharges]Charge
	limiters [MaxCharges]*limiter
	windows  [MaxCharges]*Window
	ends     [MaxCharges]int   // where each key ends in keys
	keys     []byte            // begins in room; longer ones move out
	room     [192]byte         // for the keys of nearly every request
	limits   [MaxCharges]int64 // what holds for the caller; of one who is exempt the store is asked for less
	exempted [MaxCharges]bool  // charges that refuse nobody
	exempt   int               // how many of them
	dear     bool              // a cost is above its limit, as far as that is known
	grants   [MaxCharges]Grant // in force; written only where there are any
	receipt  Receipt
	cost     int64
	beside   *beside // of the request's match

	would, decided Decision // what is shown of a request that is only evaluated, and of the one beside it
}

func (t *ticket) reset() {
	if t.keys == nil {
		t.keys = t.room[:0]
	}
	t.n, t.cost, t.exempt, t.dear, t.beside, t.keys = 0, 0, 0, false, nil, t.keys[:0]
	t.receipt.Outcome = Counted
}

// fill writes the charges of r.
func (d *Decider) fill(t *ticket, r *Request) error {
	if r.Cost < Peek || r.Cost > MaxLimit {
		return fmt.Errorf("decide: cost %d is out of range: 1 to %d, 0 for the limiter's own and Peek are allowed", r.Cost, MaxLimit)
	}
	if len(r.Limiters) > 0 {
		if err := t.addNamed(d.compiled.Load(), r); err != nil {
			return err
		}
		if c := d.candidate.Load(); c != nil {
			t.beside = Match{beside: t.beside}.with(c, Match{}).beside
		}
		return d.complete(t)
	}
	m := r.Match
	if m.limiter == nil && m.beside == nil {
		m = d.Match(r.Method, r.Path)
	}
	t.beside = m.beside
	if m.limiter == nil {
		return nil
	}
	if err := t.add(m.limiter, r); err != nil {
		return err
	}
	return d.complete(t)
}

// complete brings the keys of a ticket into place, and the limits that an operator granted.
func (d *Decider) complete(t *ticket) error {
	t.sliceKeys()
	if d.keeper != nil {
		d.applyGrants(t)
	}
	return t.checkCosts()
}

// checkCosts refuses what could never be served.
func (t *ticket) checkCosts() error {
	if !t.dear {
		return nil
	}
	for i := range t.n {
		if c := &t.charges[i]; c.Cost > c.Limit {
			return fmt.Errorf("decide: cost %d exceeds the limit of %q of limiter %q, which is %d here: it could never be served",
				c.Cost, t.windows[i], t.limiters[i].Name, c.Limit)
		}
	}
	return nil
}

// applyGrants has limits that were granted hold in place of the policy's.
func (d *Decider) applyGrants(t *ticket) {
	if !d.keeper.Granted(t.charges[:t.n], t.grants[:t.n]) {
		return
	}
	for i := range t.n {
		if limit := t.granted(i); limit > 0 {
			t.limits[i] = limit
			if !t.exempted[i] {
				t.charges[i].Limit = limit
				t.dear = t.dear || t.charges[i].Cost > limit
			}
		}
	}
}

// granted returns the limit that was granted for a charge; 0 where none was. It is never less than one request of the limiter costs,
// which a later policy may have raised: that would turn the caller into an error.
func (t *ticket) granted(i int) int64 {
	if t.grants[i].Limit == 0 {
		return 0
	}
	return max(t.grants[i].Limit, t.limiters[i].cost)
}

func (t *ticket) addNamed(c *compiled, r *Request) error {
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
			t.beside = t.beside.shadow(l)
			continue
		}
		if err := t.add(l, r); err != nil {
			return err
		}
	}
	return nil
}

// add charges every window of l. The keys share one buffer that may still move, so they are sliced afterwards.
func (t *ticket) add(l *limiter, r *Request) error {
	if t.n+len(l.Windows) > MaxCharges {
		return fmt.Errorf("decide: the named limiters have more than %d windows together", MaxCharges)
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
		exempt, limits = l.special.find(r.Keys, t.keys)
	}
	for i := range l.Windows {
		w := &l.Windows[i]
		c := &t.charges[t.n]
		c.Limit, c.Per, c.Cost, c.OnFailure = w.Limit, int64(w.Per/time.Second), cost, l.OnStoreFailure
		if limits[i] > 0 {
			c.Limit = limits[i]
		}
		t.limits[t.n], t.exempted[t.n] = c.Limit, exempt
		if exempt {
			c.Limit = MaxLimit
			t.exempt++
		}
		t.dear = t.dear || cost > c.Limit
		c.Scope = len(l.scopes[i])
		start := len(t.keys)
		t.keys = append(t.keys, l.scopes[i]...)
		for j, part := range w.Key {
			t.keys = appendPart(t.keys, part, r.Keys)
			if j == 0 {
				c.Subject = len(t.keys) - start
			}
		}
		t.ends[t.n] = len(t.keys)
		t.limiters[t.n], t.windows[t.n] = l, w
		t.n++
	}
	t.cost = max(t.cost, cost)
	return nil
}

func (t *ticket) sliceKeys() {
	start := 0
	for i := range t.n {
		t.charges[i].Key = t.keys[start:t.ends[i]:t.ends[i]]
		start = t.ends[i]
	}
}

// decide reads the receipt: one standing a window, the binding one first.
func (t *ticket) decide(d *Decision) {
	outcome := t.receipt.Outcome
	d.Exempt = t.exempt == t.n
	if d.Exempt && !t.receipt.Allowed { // nobody counts it, or it counts no further
		t.receipt.Allowed = true
		if outcome == StoreUnavailable {
			outcome = AllowedUncounted
		}
	}
	d.Allowed, d.Outcome, d.Now, d.Cost, d.n = t.receipt.Allowed, outcome, t.receipt.Now, t.cost, t.n
	d.many = nil
	if t.n > len(d.few) {
		d.many = make([]Standing, t.n)
	}
	standings, best := d.Standings(), 0
	for i := range t.n {
		c, used := &t.charges[i], t.receipt.Used[i]
		s := &standings[i]
		s.Limiter, s.Window = &t.limiters[i].Limiter, t.windows[i]
		s.Limit, s.Count, s.charge = t.limits[i], used.Count, uint8(i)
		s.Remaining, s.Refused = max(s.Limit-used.Count, 0), false
		if t.exempted[i] {
			s.Remaining = s.Limit
		}
		s.Reset = used.Reset
		if s.Reset == 0 {
			s.Reset = d.Now + c.Per
		}
		if !d.Allowed && !used.Fits(c.Cost, c.Limit) {
			s.Refused, s.Remaining = true, 0
		}
		if i > 0 && s.binds(&standings[best]) {
			best = i
		}
	}
	if best > 0 {
		standings[0], standings[best] = standings[best], standings[0]
	}
}

// binds reports whether s, rather than o, is the window that the headers describe (D4). The order of a policy's windows
// makes no difference.
func (s *Standing) binds(o *Standing) bool {
	if s.Refused != o.Refused {
		return s.Refused
	}
	if !s.Refused && s.Remaining != o.Remaining {
		return s.Remaining < o.Remaining
	}
	if s.Reset != o.Reset {
		return s.Reset > o.Reset
	}
	return s.Limit < o.Limit
}
