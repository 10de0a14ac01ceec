package weir

import (
	"fmt"
	"slices"
)

// A Crossed is a request that brought the count of a window to a percentage of Limiter.Notify.
//
// If the request may be settled, it is what it has cost that counts, so it is reported when its
// window is settled, or when nothing settles it any more. It is reported then if its reservation or
// the settlement brought the count to the percentage, and the count is there after the settlement.
// A store cannot tell what other requests have cost from what they have only reserved, so the count
// includes the reservations of those that have not ended.
type Crossed struct {
	// Standing is the window after the request, or after its settlement. Its Count is the store's,
	// so that of all processes that count one caller in one store, one reports each percentage. If
	// the store did not count the settlement, Count is that of the admission, with the units that
	// were settled if the window has ended since.
	Standing *Standing
	Percent  int64     // of the limit; 100 is the request that spends the last unit
	Decision *Decision // read only; that of the limiter in Shadow mode if Shadow is true
	Shadow   bool      // the limiter is in Shadow mode
	// Who is the caller as the window counts it (see Scratch.Who). It must not be shown.
	Who []byte
	// Keys are those of the request, or its SavedKeys if a store that is not in this process has
	// settled it. They are nil if Shadow is true.
	Keys Keys
}

// A crossing is what a charge of one decision has done to the percentages of its limiter.
type crossing struct {
	watched bool  // they are reported
	reached uint8 // a bit for each that is reached and was not reported; MaxNotify is 8
	count   int64 // of the window, after the take or the settlement
}

// reportCrossed calls Options.OnCrossed for each window whose count a request has brought to a
// percentage, in rising order of these. What may still be settled is reported later. A caller that
// is exempt makes none, because no limit holds for it. The limit in flight makes none either: its
// count goes up and down with every request. keys are nil for a limiter in Shadow mode.
func (d *Decider) reportCrossed(s *Scratch, out *Decision, keys Keys) {
	if d.options.OnCrossed == nil || !out.Allowed || out.Exempt || out.Outcome == StoreUnavailable {
		return
	}
	s.watches, s.sender, s.crossings = true, keys, [MaxCharges]crossing{}
	standings := out.Standings()
	for i := range standings {
		w := &standings[i]
		cost := s.charges[w.charge].Cost
		if s.exempted[w.charge] || cost == 0 || w.InFlight || len(w.Limiter.Notify) == 0 {
			continue
		}
		s.crossings[w.charge] = crossing{watched: true, reached: w.Limiter.reaches(w.Limit, w.Count-cost, w.Count), count: w.Count}
	}
	d.reportReached(s)
	if s.settler == nil {
		s.sender = nil
	}
}

// reaches returns a bit for each percentage that a count reaches if it rises from before to after.
func (l *Limiter) reaches(limit, before, after int64) (bits uint8) {
	for i, percent := range l.Notify {
		if at := percent * limit; 100*before < at && at <= 100*after {
			bits |= 1 << i
		}
	}
	return bits
}

// settle notes a change of the window, which the store has answered with err.
func (x *crossing) settle(l *Limiter, c *Change, err error) {
	after, more := x.count+c.Units, max(c.Units, 0)
	switch {
	case c.Done:
		after = c.Used.Count
	case c.Lost || err != nil: // it stays as it was charged
		after, more = x.count, 0
	}
	x.count = after
	x.reached = (x.reached | l.reaches(c.Limit, after-more, after)) & l.reaches(c.Limit, 0, after)
}

// settleCrossings notes the changes of b, which the store has answered with err.
func (s *Scratch) settleCrossings(b *settlement, err error) {
	if s.watches {
		b.settleCrossings(&s.crossings, &s.limiters, err)
	}
}

func (b *settlement) settleCrossings(of *[MaxCharges]crossing, limiters *[MaxCharges]*limiter, err error) {
	for i := range b.n {
		if x := &of[b.charges[i]]; x.watched {
			x.settle(&limiters[b.charges[i]].Limiter, &b.changes[i], err)
		}
	}
}

// reportReached reports what the last decision with s has reached, in windows that are settled or
// will not be.
func (d *Decider) reportReached(s *Scratch) {
	if !s.watches {
		return
	}
	decided := false
	for i := range s.n {
		x := &s.crossings[i]
		if x.reached == 0 || s.maySettle(i) {
			continue
		}
		if !decided {
			s.decide(&s.live) // not a variable, which would escape to the heap
			decided = true
		}
		d.reportCrossing(&s.live, x, i, &s.charges[i], s.sender)
	}
}

// reportCrossing calls Options.OnCrossed with what a charge has reached. out is its decision.
func (d *Decider) reportCrossing(out *Decision, x *crossing, charge int, c *Charge, keys Keys) {
	w := out.standing(charge)
	w.Count, w.Remaining = x.count, max(w.Limit-x.count, 0)
	out.bind()
	w = out.standing(charge)
	for i, percent := range w.Limiter.Notify {
		if x.reached&(1<<i) != 0 {
			d.options.OnCrossed(Crossed{
				Standing: w, Percent: percent, Decision: out, Shadow: w.Limiter.Mode == Shadow, Who: c.Key[c.Scope:], Keys: keys,
			})
		}
	}
	x.reached = 0
}

// A laterCrossed is what a settlement that outlives the Scratch has to report.
type laterCrossed struct {
	crossings [MaxCharges]crossing
	decision  Decision
	sender    [MaxCharges]Keys
}

// laterCrossed returns what b has to report, which s then leaves to it; nil if that is nothing.
func (s *Scratch) laterCrossed(b *settlement) *laterCrossed {
	if !s.watches {
		return nil
	}
	var later *laterCrossed
	for i := range b.n {
		charge := b.charges[i]
		x := &s.crossings[charge]
		if !x.watched {
			continue
		}
		if later == nil {
			later = new(laterCrossed)
			s.decide(&later.decision)
		}
		later.crossings[charge], x.reached = *x, 0
		if s.sender != nil {
			later.sender[charge] = SaveKeys(&s.limiters[charge].Limiter, s.sender)
		}
	}
	return later
}

// reportLater reports what a settlement has reached that the store has answered with err.
func (d *Decider) reportLater(l *laterSettlement, err error) {
	if l.crossed == nil {
		return
	}
	l.settleCrossings(&l.crossed.crossings, &l.limiters, err)
	for i := range l.n {
		charge := l.charges[i]
		if x := &l.crossed.crossings[charge]; x.reached != 0 {
			d.reportCrossing(&l.crossed.decision, x, charge, &l.changes[i].Charge, l.crossed.sender[charge])
		}
	}
}

func (c *checker) checkNotify(l *Limiter) {
	if len(l.Notify) > MaxNotify {
		c.add("notify", -1, "", "%d percentages: at most %d are allowed", len(l.Notify), MaxNotify)
		return
	}
	for i, percent := range l.Notify {
		value := fmt.Sprint(percent)
		switch {
		case percent < 1 || percent > 100:
			c.add("notify", i, value, "notify %d is out of range: 1 to 100 percent is allowed", percent)
		case slices.Contains(l.Notify[:i], percent):
			c.add("notify", i, value, "notify %d occurs twice: remove one", percent)
		case i > 0 && percent < l.Notify[i-1]:
			c.add("notify", i, value, "notify %d follows %d: write percentages in rising order", percent, l.Notify[i-1])
		}
	}
}
