package weir

import (
	"context"
	"errors"
	"sync"
	"time"
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
		d.options.OnStoreFailure(err, failing)
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

const (
	breakerRow   = 20          // failures in a row that open the breaker
	breakerLeast = 20          // takes in a second below which the share of failures says nothing
	breakerWait  = time.Second // how long it stays open before one request tries again
)

// A breaker stops the waiting for a store that does not answer: after 20 failures in a row, or when over half of a
// second's takes failed. Then one request a second tries again, and the first answer closes it. The zero value is closed.
type breaker struct {
	mu      sync.Mutex
	row     int       // failures since the last success
	second  int64     // the Unix second that good and bad count
	good    int       // answers in it
	bad     int       // failures in it
	until   time.Time // open until then; zero: closed
	trying  bool      // one request is trying an open breaker
	failing bool      // what was last reported
	failed  time.Time // when a take last failed
}

// allows reports whether the store may be asked at now.
func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return true
	}
	if b.trying || now.Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

// record notes how a take ended, and whether that changed the store's state for whoever watches it: a store that answers
// every other take is failing, and has recovered when none failed for a second.
func (b *breaker) record(now time.Time, err error) (changed, failing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := now.Unix(); s != b.second {
		b.second, b.good, b.bad = s, 0, 0
	}
	if err == nil {
		b.row = 0
		b.good++
		b.until, b.trying = time.Time{}, false
	} else {
		b.failed = now
		b.row++
		b.bad++
		many := b.good+b.bad >= breakerLeast && b.bad > b.good
		if b.trying || b.row >= breakerRow || many {
			b.until, b.trying = now.Add(breakerWait), false
		}
	}
	changed = b.failing != (err != nil) && (err != nil || now.Sub(b.failed) >= time.Second)
	if changed {
		b.failing = err != nil
	}
	return changed, b.failing
}
