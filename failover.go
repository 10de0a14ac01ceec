package weir

import (
	"context"
	"errors"
)

// take asks the store, and where it does not answer does what the limiters say (D25).
func (d *Decider) take(ctx context.Context, t *ticket) Outcome {
	charges := t.charges[:t.n]
	if d.inProcess {
		if err := d.store.Take(ctx, charges, &t.receipt); err == nil {
			return Counted
		}
		return d.failover(ctx, t)
	}
	turn := d.breaker.turn(d.options.Now)
	switch {
	case turn == barred:
		d.outage.local.Add(1)
		return d.failover(ctx, t)
	case turn == tries && d.outage.owes():
		d.outage.local.Add(1)
		outcome := d.failover(ctx, t)
		d.ping(ctx, turn)
		return outcome
	case d.mustGiveFirst(t):
		return d.giveFirst(ctx, t)
	}
	t.receipt.Remembered = false
	err := d.askStore(ctx, charges, &t.receipt)
	d.learn(turn, t.receipt.Remembered, err)
	if err != nil {
		if t.apart = errors.Is(err, ErrCharges); !t.apart {
			d.outage.local.Add(1)
		}
		return d.failover(ctx, t)
	}
	return Counted
}

// mustGiveFirst reports whether the store must be given units before it is asked to charge these
// windows: they were counted here, and callers were told when that window ends. A take that came
// first would open a window that ends later.
func (d *Decider) mustGiveFirst(t *ticket) bool {
	return d.shared != nil && d.outage.astir.Load() && d.options.Fallback != nil && t.failureMode() != FailDeny &&
		d.outage.owesWindow(t.charges[:t.n], d.now())
}

// giveFirst decides without the store, and pings it unless another request does: its answer starts
// the giving. If the window's own machine did not answer when it was tried, nobody pings for that
// window until it is tried again.
func (d *Decider) giveFirst(ctx context.Context, t *ticket) Outcome {
	d.outage.local.Add(1)
	outcome := d.failover(ctx, t)
	if d.outage.pinging.CompareAndSwap(false, true) {
		if d.outage.canGive(d.options.Now()) {
			d.ping(ctx, asks)
		}
		d.outage.pinging.Store(false)
	}
	return outcome
}

// askStore asks a store that is not in this process, within the deadline.
func (d *Decider) askStore(ctx context.Context, charges []Charge, r *Receipt) error {
	if d.options.OnTake == nil {
		return d.store.Take(d.deadlines.bound(ctx), charges, r)
	}
	start := d.options.Now()
	err := d.store.Take(d.deadlines.bound(ctx), charges, r)
	d.options.OnTake(d.options.Now().Sub(start), err)
	return err
}

// Probe asks the store in place of a request, where it is failing or is owed something: a process that is asked little finds out
// that its store answers again, gives it what was counted here meanwhile, and tells so. Call it about once a second; where
// there is nothing to do it returns at once. It waits no longer than the deadline, whatever ctx says, and an open circuit
// breaker lets it ask as seldom as requests. Only with a Shared store it does anything.
func (d *Decider) Probe(ctx context.Context) {
	if d.shared == nil || !d.outage.astir.Load() {
		return
	}
	if turn := d.breaker.turn(d.options.Now); turn != barred {
		d.ping(ctx, turn)
	}
}

// ping asks the store in place of a take. While it is owed something nothing else may try it: a take would open windows at a
// store that was emptied, with other resets than callers were told, before what was counted in them here arrives; and a give that
// fails loses what it carries.
func (d *Decider) ping(ctx context.Context, turn turn) {
	d.learn(turn, false, d.shared.Ping(d.deadlines.bound(ctx)))
}

// learn notes what a take or a ping tells of the store: an error that it does not answer, a receipt that it does, one that
// was only remembered nothing, and nor does ErrCharges.
func (d *Decider) learn(turn turn, remembered bool, err error) {
	switch {
	case errors.Is(err, ErrCharges) || err == nil && remembered:
		if turn == tries {
			d.breaker.pass(d.options.Now())
		}
	case err != nil:
		now := d.options.Now()
		d.breaker.failure(now)
		d.outage.failure(now, err)
	default:
		now := d.options.Now()
		d.breaker.answer(now)
		if d.outage.astir.Load() {
			d.resume(now)
		}
	}
}

// failover decides without the store. A request under several limiters follows the strictest of
// them.
func (d *Decider) failover(ctx context.Context, t *ticket) Outcome {
	mode := t.failureMode()
	if d.options.Fallback == nil || mode == FailDeny || !d.countHere(ctx, t) {
		return d.unavailable(t)
	}
	if mode == FailAllow {
		t.receipt.Allowed = true
		return AllowedUncounted
	}
	return CountedLocally
}

// countHere asks the fallback, and reports whether it has answered. It starts from what the store
// had counted when that last answered, and the store is owed what it admits.
func (d *Decider) countHere(ctx context.Context, t *ticket) bool {
	charges := t.charges[:t.n]
	if d.shared != nil && d.raiser != nil {
		used := t.receipt.Used[:t.n]
		d.shared.Recall(charges, used)
		d.raiser.Raise(charges, used)
	}
	if err := d.options.Fallback.Take(ctx, charges, &t.receipt); err != nil {
		return false
	}
	if d.shared != nil && t.receipt.Allowed && t.cost > 0 {
		d.outage.note(t, d.options.Now())
	}
	return true
}

// failureMode returns the strictest of the limiters'.
func (t *ticket) failureMode() FailureMode {
	mode := FailAllow
	for _, l := range t.limiters[:t.n] {
		switch l.OnStoreFailure {
		case FailDeny:
			mode = FailDeny
		case FailLocal:
			if mode == FailAllow {
				mode = FailLocal
			}
		}
	}
	return mode
}

// unavailable writes the receipt of a refusal that nobody counted: nothing left, worth another try in a second.
func (d *Decider) unavailable(t *ticket) Outcome {
	now := d.options.Now
	if d.shared != nil {
		now = d.shared.Now
	}
	t.receipt = Receipt{Now: now().Unix()}
	for i := range t.n {
		t.receipt.Used[i] = Used{Count: t.charges[i].Limit, Reset: t.receipt.Now + 1}
	}
	return StoreUnavailable
}
