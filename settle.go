package weir

import (
	"context"
	"errors"
)

// Awaits is what a decision still awaits of its request (see Scratch.Awaits).
type Awaits uint8

const (
	// AwaitsStatus: a limiter counts by outcome. Call Decider.Answered.
	AwaitsStatus Awaits = 1 << iota
	// AwaitsCost: the answer reports what the request has cost. Call Decider.Spent.
	AwaitsCost
	// AwaitsEnd: the request holds a slot until it has ended. Call Decider.End, and Decider.Served
	// before it, if the answer is complete.
	AwaitsEnd
)

// Awaits returns what the last decision with this Scratch still awaits, for its own
// limiters and for those that it is tried out under. It is 0 if they settle nothing, and for a
// refused request: then no call is needed.
func (s *Scratch) Awaits() Awaits { return s.awaits | s.trialsAwait }

// CanSettle reports whether Spent can change what the last decision with this Scratch has charged:
// it charged something, its store can give units back, and the request has not ended.
func (s *Scratch) CanSettle() bool { return s.settler != nil }

// Reading returns where the answer reports what the request of the last decision with this Scratch
// has cost. It is that of the first limiter whose cost is not known yet, also of one that the
// request is only tried out under, and zero if there is none. Report the number by SpentFrom.
func (s *Scratch) Reading() Reading {
	if r := s.ReadingInForce(); r != (Reading{}) {
		return r
	}
	return s.trialsRead
}

// ReadingInForce is Reading without the trials: that of the limiters that are enforced.
func (s *Scratch) ReadingInForce() Reading {
	if s.awaits&AwaitsCost == 0 {
		return Reading{}
	}
	return s.wouldRead()
}

// wouldRead is ReadingInForce for charges that may be taken.
func (s *Scratch) wouldRead() Reading {
	for i := range s.n {
		if s.awaitsCost(i) {
			return s.limiters[i].Actual
		}
	}
	return Reading{}
}

// A Settled is what became of the reservation of one request in the windows of one limiter.
type Settled struct {
	Limiter  *Limiter // read only
	Reserved int64    // units that were charged before the request was served
	Used     int64    // units that it has cost
	// Lost is the number of units that were to be given back or charged, and that the store may not
	// have counted: it did not answer, or it has lost sight of the window. They stay as they were
	// charged until the window ends.
	Lost int64
	// Unreported means that the answer did not report its cost (Limiter.Actual), so that what was
	// reserved stays charged.
	Unreported bool
	// Shadow means that the limiter is in Shadow mode.
	Shadow bool
}

// awaiting sets what the decision in s awaits. by is the store of the take, or nil.
// atOnce means that by is in this process. A take that spent nothing needs nothing.
func (s *Scratch) awaiting(by Settler, atOnce bool) {
	if by == nil || !s.receipt.Allowed || s.cost == 0 || s.receipt.Ticket == (Ticket{}) {
		return
	}
	s.settler, s.settlesAtOnce, s.charged = by, atOnce, true
	if s.canAwait != 0 {
		s.awaits = s.wouldAwait()
	}
}

// Cost returns the units that a limiter of the last decision with s has charged for the request
// before it was served, and those that it has cost there. used is -1 as long as the answer has not
// reported a cost that the limiter reads there: what was reserved then stays charged. ok is false
// for a request that was refused, for one whose cost cannot change and has not, and for a limiter
// that did not decide. It is valid after End too, until the next use of s. The store may not have
// counted the difference (Settled.Lost).
//
// A window can be charged less, because it counts requests, or the caller's limit of it is lower:
// the cost is that of the window that is charged the most.
func (s *Scratch) Cost(of *Limiter) (reserved, used int64, ok bool) {
	for i := range s.n {
		l, c, w := s.limiters[i], &s.charges[i], s.windows[i]
		if &l.Limiter != of || w == nil || c.Held {
			continue
		}
		settled := s.settled&(1<<i) != 0
		ok = ok || settled || l.awaits&(AwaitsStatus|AwaitsCost) != 0
		if c.Cost < reserved || c.Cost == reserved && w.Requests {
			continue
		}
		reserved, used = c.Cost, c.Cost
		switch {
		case settled:
			used = s.used[i]
		case s.awaitsCost(i):
			used = -1
		}
	}
	if !s.charged {
		return reserved, 0, false
	}
	return reserved, used, ok
}

// wouldAwait returns what the charges await if they are taken.
func (s *Scratch) wouldAwait() (all Awaits) {
	for i := range s.n {
		a := s.limiters[i].awaits
		switch {
		case s.charges[i].Cost <= 0:
			a = 0
		case s.charges[i].Held:
			a &= AwaitsEnd
		case s.windows[i].Requests:
			a &= AwaitsStatus
		default:
			a &^= AwaitsEnd
		}
		all |= a
	}
	return all
}

// Answered reports the status of the answer to the request of the last decision with s: the windows
// of a limiter that does not count this status (Limiter.Count) get their units back. It updates the
// standings of out, the decision; out may be nil. It does nothing if it was called before, or if
// nothing awaits it. If the store is in this process, it has settled when Answered returns.
// Otherwise Answered does not wait, and the standings are as they will be.
func (d *Decider) Answered(ctx context.Context, s *Scratch, status int, out *Decision) {
	if s.waiting != nil {
		d.reportToTrials(ctx, s, report{what: AwaitsStatus, status: status})
	}
	if s.awaits&AwaitsStatus == 0 {
		return
	}
	s.awaits &^= AwaitsStatus
	b := s.settlement()
	for i := range s.n {
		if l := s.limiters[i]; !l.Count.Counts(status) {
			s.settle(b, i, 0)
		}
	}
	s.dropCost()
	d.send(ctx, s, b, out)
	d.reportReached(s)
}

// Spent reports what the request of the last decision with s has cost, in units: 0 or more, beyond
// what was reserved too. It settles each window that counts units, of the limiters whose answer
// reports a cost (Limiter.Actual), or of all if there is none: a handler that knows what it has
// spent may call it without being awaited. Windows that count requests, and what the status has
// settled, stay as they are. Otherwise it is as Answered.
func (d *Decider) Spent(ctx context.Context, s *Scratch, units int64, out *Decision) {
	d.SpentFrom(ctx, s, Reading{}, units, out)
}

// SpentFrom is Spent for a number that the answer reports at from: only limiters that read their
// cost there are settled.
func (d *Decider) SpentFrom(ctx context.Context, s *Scratch, from Reading, units int64, out *Decision) {
	if units < 0 {
		return
	}
	if s.waiting != nil {
		d.reportToTrials(ctx, s, report{what: AwaitsCost, from: from, units: units})
	}
	if s.settler == nil {
		return
	}
	actual := from != (Reading{}) || s.canAwait&AwaitsCost != 0
	b := s.settlement()
	for i := range s.n {
		l, w := s.limiters[i], s.windows[i]
		switch {
		case w == nil, w.Requests:
		case actual && l.Actual == (Reading{}), from != (Reading{}) && l.Actual != from:
		default:
			s.settle(b, i, min(units, MaxLimit))
		}
	}
	s.dropCost()
	d.send(ctx, s, b, out)
	d.reportReached(s)
}

// KeepReserved ends the wait for the cost of the last decision's request: no answer will report it,
// so what was reserved is the cost. It is for a request that is answered without being served.
func (d *Decider) KeepReserved(s *Scratch) {
	s.awaits &^= AwaitsCost
	d.reportReached(s)
}

// maySettle reports whether what a charge awaits can still settle it.
func (s *Scratch) maySettle(i int) bool {
	if s.settled&(1<<i) != 0 {
		return false
	}
	return s.awaits&s.limiters[i].awaits&AwaitsStatus != 0 || s.awaits&AwaitsCost != 0 && s.awaitsCost(i)
}

// awaitsCost reports whether the answer is to report the cost of a charge.
func (s *Scratch) awaitsCost(i int) bool {
	c := &s.charges[i]
	return s.limiters[i].Actual != (Reading{}) && c.Cost > 0 && !c.Held && !s.windows[i].Requests && s.settled&(1<<i) == 0
}

// dropCost drops AwaitsCost if no charge is left whose cost the answer is to report.
func (s *Scratch) dropCost() {
	if s.awaits&AwaitsCost != 0 && s.wouldRead() == (Reading{}) {
		s.awaits &^= AwaitsCost
	}
}

// Served reports that the request of the last decision with s has been served, and the end of its
// answer is about to be sent: the slots that it held are given back, so that a caller who has the
// answer finds them free. Spent may follow, and End must. It does nothing if it was called before.
func (d *Decider) Served(ctx context.Context, s *Scratch) {
	if s.waiting != nil {
		d.reportToTrials(ctx, s, report{what: isServed})
	}
	d.giveBack(ctx, s)
}

// giveBack gives back the slots that the request holds.
func (d *Decider) giveBack(ctx context.Context, s *Scratch) {
	if s.awaits&AwaitsEnd == 0 {
		return
	}
	s.awaits &^= AwaitsEnd
	b := s.settlement()
	for i := range s.n {
		if c := &s.charges[i]; c.Held && c.Cost > 0 {
			b.add(s, i, -c.Cost)
		}
	}
	d.send(ctx, s, b, nil)
	d.reportHeld(s, -1)
}

// End reports that the request of the last decision with s has ended, whatever became of it. It
// gives back the slots that it held. What is not settled by then stays as it was reserved. The
// next use of s ends the request too.
func (d *Decider) End(ctx context.Context, s *Scratch) {
	if s.waiting != nil {
		d.reportToTrials(ctx, s, report{what: AwaitsEnd})
	}
	d.giveBack(ctx, s)
	if s.awaits&AwaitsCost != 0 {
		d.reportUnreported(s)
	}
	s.settler, s.awaits = nil, 0
	d.reportReached(s)
	s.sender = nil
}

// A settlement is what one step settles: a change for each of some charges.
type settlement struct {
	n       int
	changes [MaxCharges]Change
	charges [MaxCharges]int // the index of each in the take
}

// settlement returns an empty settlement in the memory of s.
func (s *Scratch) settlement() *settlement {
	s.pending.n = 0
	return &s.pending
}

func (b *settlement) add(s *Scratch, charge int, units int64) {
	c := &s.charges[charge]
	b.changes[b.n] = Change{Charge: *c, Reset: s.receipt.Used[charge].Reset, Units: units}
	b.charges[b.n] = charge
	b.n++
}

// settle adds the change of a charge to the units that its window is to count, once.
func (s *Scratch) settle(b *settlement, charge int, units int64) {
	c := &s.charges[charge]
	if c.Cost <= 0 || c.Held || s.settled&(1<<charge) != 0 {
		return
	}
	s.settled |= 1 << charge
	s.used[charge] = units
	b.add(s, charge, units-c.Cost)
}

func (b *settlement) changesAnything() bool {
	for i := range b.n {
		if b.changes[i].Units != 0 {
			return true
		}
	}
	return false
}

// send gives the changes to the store, and updates the standings of out.
func (d *Decider) send(ctx context.Context, s *Scratch, b *settlement, out *Decision) {
	if b.n == 0 {
		return
	}
	report := d.options.OnSettled != nil && !s.quiet
	if !b.changesAnything() {
		s.settleCrossings(b, nil)
		d.reportSettled(report, &s.limiters, b, nil)
		return
	}
	if s.settlesAtOnce {
		err := s.settler.Settle(ctx, &s.receipt.Ticket, b.changes[:b.n])
		for i := range b.n {
			if c := &b.changes[i]; out != nil && c.Done {
				s.update(out, b.charges[i], c.Used.Count)
			}
		}
		s.settleCrossings(b, err)
		d.reportSettled(report, &s.limiters, b, err)
		return
	}
	for i := range b.n {
		if c := &b.changes[i]; out != nil && c.Units != 0 {
			s.update(out, b.charges[i], s.receipt.Used[b.charges[i]].Count+c.Units)
		}
	}
	later, settler := newLaterSettlement(s, b), s.settler
	// Slots are always given back: no time would do it, and they are no more than the limits.
	if !d.settling.acquire() && !(b.holds() && d.settling.acquireMore()) {
		d.reportSettled(report, &later.limiters, &later.settlement, errTooMany)
		d.reportLater(later, errTooMany)
		return
	}
	// The caller may have its answer before the goroutine runs: takes know of free slots from here.
	finish := StartSettle(context.WithoutCancel(ctx), settler, &later.ticket, later.changes[:later.n])
	go func() {
		defer d.settling.release()
		err := finish()
		d.reportSettled(report, &later.limiters, &later.settlement, err)
		d.reportLater(later, err)
	}()
}

func (b *settlement) holds() bool {
	for i := range b.n {
		if b.changes[i].Held {
			return true
		}
	}
	return false
}

// A laterSettlement is a settlement that outlives the Scratch.
type laterSettlement struct {
	settlement
	ticket   Ticket
	limiters [MaxCharges]*limiter
	crossed  *laterCrossed // nil: it reports none
}

func newLaterSettlement(s *Scratch, b *settlement) *laterSettlement {
	l := &laterSettlement{*b, s.receipt.Ticket, s.limiters, s.laterCrossed(b)}
	for i := range l.n {
		c := &l.changes[i]
		c.Key = append([]byte(nil), c.Key...)
	}
	return l
}

// update sets the count of the standing of a charge in d, the last decision with s.
func (s *Scratch) update(d *Decision, charge int, count int64) {
	w := d.standing(charge)
	if w == nil {
		return
	}
	w.Count = count
	if !s.exempted[charge] {
		w.Remaining = max(w.Limit-count, 0)
	}
	d.bind()
}

var errTooMany = errors.New("too many settlements wait for the store")

// maxSettling is the max number of settlements that wait for a store at the same time.
const maxSettling = 4096

// reportHeld calls Options.OnHeld for each limiter of which the last decision with s holds a slot,
// or gives it back. It gives back what it has reported as held.
func (d *Decider) reportHeld(s *Scratch, slots int64) {
	if d.options.OnHeld == nil || (slots > 0) == s.reportedHeld {
		return
	}
	s.reportedHeld = slots > 0
	for i := range s.n {
		if c := &s.charges[i]; c.Held && c.Cost > 0 {
			d.options.OnHeld(&s.limiters[i].Limiter, slots)
		}
	}
}

// reportSettled calls Options.OnSettled once for each limiter of a settlement, unless report is
// false.
func (d *Decider) reportSettled(report bool, limiters *[MaxCharges]*limiter, b *settlement, err error) {
	if !report {
		return
	}
	var last *limiter
	for i := range b.n {
		l := limiters[b.charges[i]]
		if l == last || b.changes[i].Held {
			continue
		}
		last = l
		d.options.OnSettled(b.settledOf(l, limiters, err))
	}
}

// settledOf returns what became of the reservation in the windows of l. Those that count requests
// are beside the ones that count units, which have the greater cost.
func (b *settlement) settledOf(l *limiter, limiters *[MaxCharges]*limiter, err error) Settled {
	r := Settled{Limiter: &l.Limiter, Shadow: l.Mode == Shadow}
	for i := range b.n {
		c := &b.changes[i]
		if limiters[b.charges[i]] != l || c.Held {
			continue
		}
		if c.Cost > r.Reserved {
			r.Reserved, r.Used = c.Cost, c.Cost+c.Units
		}
		if err != nil || c.Lost {
			r.Lost = max(r.Lost, c.Units, -c.Units)
		}
	}
	return r
}

// reportUnreported reports the limiters whose cost the answer of a request did not report.
func (d *Decider) reportUnreported(s *Scratch) {
	if d.options.OnSettled == nil || s.quiet {
		return
	}
	var last *limiter
	for i := range s.n {
		l, c := s.limiters[i], &s.charges[i]
		if l == last || !s.awaitsCost(i) {
			continue
		}
		last = l
		d.options.OnSettled(Settled{Limiter: &l.Limiter, Reserved: c.Cost, Used: c.Cost, Unreported: true, Shadow: l.Mode == Shadow})
	}
}
