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
	if !d.breaker.allows(d.options.Now()) {
		return d.failover(ctx, t)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.options.Deadline)
	err := d.store.Take(bounded, charges, &t.receipt)
	cancel()
	if changed, failing := d.breaker.record(d.options.Now(), err); changed && d.options.OnStoreFailure != nil {
		d.options.OnStoreFailure(StoreEvent{Failing: failing, Err: err})
	}
	if err != nil {
		return d.failover(ctx, t)
	}
	return Counted
}

var errNoFallback = errors.New("no fallback store")

// failover decides without the store. A request under several limiters follows the strictest of them.
func (d *Decider) failover(ctx context.Context, t *ticket) Outcome {
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
	err := errNoFallback
	if d.options.Fallback != nil && mode != FailDeny {
		err = d.options.Fallback.Take(ctx, t.charges[:t.n], &t.receipt)
	}
	if err != nil {
		t.unavailable(d.options.Now().Unix())
		return StoreUnavailable
	}
	if mode == FailAllow {
		t.receipt.Allowed = true
		return AllowedUncounted
	}
	return CountedLocally
}

// unavailable writes the receipt of a refusal that nobody counted: nothing left, worth another try in a second.
func (t *ticket) unavailable(now int64) {
	t.receipt = Receipt{Now: now}
	for i := range t.n {
		t.receipt.Used[i] = Used{Count: t.charges[i].Limit, Reset: now + 1}
	}
}
