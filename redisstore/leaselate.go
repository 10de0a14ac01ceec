package redisstore

import (
	"context"
	"slices"
	"time"
)

// maxLate is how long an answer that may have units is waited for after the take's deadline. TCP
// repeats a packet three times meanwhile.
const maxLate = 1500 * time.Millisecond

// chargeOrKeep is lender.charge for a take that has its turns. If ctx ends before an answer that
// may have units, it returns at once, with t.kept: the turns are then those of a copy of the take,
// which waits for the answer. Its units would stay spent otherwise.
func (a *leases) chargeOrKeep(ctx context.Context, t *leaseTake, began time.Duration) error {
	deadline, ok := ctx.Deadline()
	if !ok || !mayGrant(t) || !a.of.mayAnswerLate() {
		return a.of.charge(ctx, t)
	}
	late := t.copyFor(ctx)
	answered := make(chan error)
	a.doing.Add(1)
	go func() {
		defer a.doing.Add(-1)
		patient, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(maxLate))
		defer cancel()
		err := a.of.charge(patient, late)
		select {
		case answered <- err:
		case <-ctx.Done(): // its caller has gone
			a.takeLate(late, err, began)
		}
	}()
	select {
	case err := <-answered:
		*t.r, t.lots, t.asked = *late.r, late.lots, late.asked
		return err
	case <-ctx.Done():
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

// takeLate ends the turns of a take whose caller has gone, with what it was answered. What the take
// itself cost goes into the pockets, since it was for a request that was not admitted.
func (a *leases) takeLate(t *leaseTake, err error, began time.Duration) {
	defer a.leaveTurns(t)
	switch {
	case err != nil:
	case t.r.Allowed:
		t.early = true
		a.fill(t, began)
	default:
		a.refused(t)
	}
}
