package redisstore

import (
	"context"
	"slices"
	"time"
)

const (
	// maxLate is how long an answer that may have units is waited for after its take was given up:
	// TCP repeats a packet twice meanwhile.
	maxLate = 800 * time.Millisecond
	// maxAwaited is how many such answers are waited for at the same time. What the others lease
	// stays spent.
	maxAwaited = 256
)

// chargeOrKeep is lender.charge for a take that has its turns. If ctx ends before an answer that
// may have units, it returns at once, with t.kept: the turns are then those of a copy of the take,
// which waits for the answer and sends back what was granted. It would stay spent otherwise.
func (a *leases) chargeOrKeep(ctx context.Context, t *leaseTake) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok || !mayGrant(t) || a.awaited.Load() >= maxAwaited {
		return a.of.charge(ctx, t)
	}
	late := t.copyFor(ctx)
	patient, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(maxLate))
	answered := make(chan error)
	a.doing.Add(1)
	a.awaited.Add(1)
	go func() {
		defer a.doing.Add(-1)
		defer cancel()
		err := a.of.charge(patient, late)
		a.awaited.Add(-1)
		select {
		case answered <- err:
		case <-ctx.Done(): // its caller has gone
			a.endLate(late, err)
		}
	}()
	select {
	case err := <-answered:
		*t.r, t.lots, t.asked = *late.r, late.lots, late.asked
		return err
	case <-ctx.Done():
		time.AfterFunc(maxLate, cancel) // it may have ended before its deadline
		t.kept = true
		a.of.gaveUp(ctx.Err())
		return ctx.Err()
	}
}

// mayGrant reports whether a take may be answered with units.
func mayGrant(t *leaseTake) bool {
	for i := range t.charges {
		if t.wishes[i].Units > 0 {
			return true
		}
	}
	return false
}

// copyFor returns a copy of a take that does not share what its caller uses again.
func (t *leaseTake) copyFor(caller context.Context) *leaseTake {
	late, r := *t, *t.r
	late.r, late.caller, late.charges = &r, caller, slices.Clone(t.charges)
	for i := range late.charges {
		late.charges[i].Key = slices.Clone(late.charges[i].Key)
	}
	return &late
}

// endLate ends the turns of a take that was given up, after its answer. The units that it was
// granted go back; its own cost counts, as without leases. They do not go into the pockets: since
// the take was given up this process may have counted its windows by itself, from a count without
// those units.
func (a *leases) endLate(t *leaseTake, err error) {
	defer a.leaveTurns(t)
	if err != nil {
		return
	}
	if !t.r.Allowed {
		a.refused(t)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxReturn)
	defer cancel()
	for i := range t.charges {
		e, l := t.entries[i], t.lots[i]
		if e == nil {
			continue
		}
		l.Units += t.later(i)
		a.granted.Add(l.Units)
		if l.Window.Reset != t.r.Used[i].Reset { // the answer has no marks
			a.stranded.Add(l.Units)
			continue
		}
		e.returning.Store(true)
		a.sendBack(ctx, e, l)
		e.returning.Store(false)
	}
}
