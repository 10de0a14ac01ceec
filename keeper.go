package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoKeeper is returned by what an operator asks of a store that cannot do it.
var ErrNoKeeper = errors.New("this store does not let its windows be changed")

// ErrNoLimiter is wrapped where the policy in force has no limiter of a name.
var ErrNoLimiter = errors.New("the policy in force has no such limiter")

// maxGrant is how long a grant may last.
const maxGrant = 366 * 24 * time.Hour

// A Holding is what one window holds of one caller, as an operator sees it.
type Holding struct {
	Standing       // Limit is the one that holds, Count what was spent; Reset is 0 where the window is not open
	Declared int64 // the limit of the policy: the window's, or the caller's override
	Override bool  // whether that is an override
	Grant    Grant // the grant in force; zero: none
	Exempt   bool  // the caller is never refused
	Shared   bool  // all callers share the window, so that no Reset or Grant of one of them touches it
	Now      int64 // Unix seconds, by the store's clock
}

// Inspect tells where each window of a limiter, enforced or not, stands for a caller, in the policy's order. It spends nothing,
// and errs where there is no such limiter or the store does not answer; ctx bounds the wait.
func (d *Decider) Inspect(ctx context.Context, limiter string, caller Keys) ([]Holding, error) {
	t, err := d.hold(limiter, caller)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if err := d.direct.Take(ctx, t.charges[:t.n], &t.receipt); err != nil {
		return nil, fmt.Errorf("inspect limiter %q: %w", limiter, err)
	}
	out := make([]Holding, t.n)
	for i := range out {
		w, used := t.windows[i], t.receipt.Used[i]
		h := &out[i]
		h.Limiter, h.Window, h.Limit, h.Count, h.Reset = &t.limiters[i].Limiter, w, t.limits[i], used.Count, used.Reset
		h.Declared, h.Exempt, h.Grant, h.Now = t.limits[i], t.exempted[i], t.grants[i], t.receipt.Now
		h.Override, h.Shared = h.Declared != w.Limit, shared(w, caller)
		if limit := t.granted(i); limit > 0 {
			h.Limit = limit
		}
		if h.Remaining = max(h.Limit-h.Count, 0); h.Exempt {
			h.Remaining = h.Limit
		}
	}
	return out, nil
}

// hold writes charges that spend nothing, with the policy's limits, and the grants in force.
func (d *Decider) hold(limiter string, caller Keys) (*ticket, error) {
	l := d.compiled.Load().named[limiter]
	if l == nil {
		return nil, fmt.Errorf("limiter %q: %w", limiter, ErrNoLimiter)
	}
	t := new(ticket)
	t.reset()
	if err := t.add(l, &Request{Keys: caller, Cost: Peek}); err != nil {
		return nil, err
	}
	t.sliceKeys()
	if d.keeper != nil {
		d.keeper.Granted(t.charges[:t.n], t.grants[:t.n])
	}
	return t, nil
}

// shared reports whether a window counts a caller together with all others.
func shared(w *Window, caller Keys) bool {
	for _, part := range w.Key {
		if source, _ := CountedBy(nil, part, caller); source != sharedSource {
			return false
		}
	}
	return true
}

// Reset gives a caller its whole budget of a limiter back: its windows are as if they had never been opened. What all callers share
// is not one caller's to be given back, and stays. It errs where there is no such limiter, where the store is no Keeper, and where it does not answer; ctx bounds the wait.
func (d *Decider) Reset(ctx context.Context, limiter string, caller Keys) error {
	t, err := d.hold(limiter, caller)
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if d.keeper == nil {
		return fmt.Errorf("reset limiter %q: %w", limiter, ErrNoKeeper)
	}
	var own []Charge
	for i := range t.n {
		if !shared(t.windows[i], caller) {
			own = append(own, t.charges[i])
		}
	}
	if len(own) == 0 {
		return nil
	}
	if err := d.keeper.Reset(ctx, own); err != nil {
		return fmt.Errorf("reset limiter %q: %w", limiter, err)
	}
	return nil
}

// Grant gives a caller other limits until a time, in place of what the policy says: limits has one for each window of the
// limiter, in the policy's order, 0 where it stays as it is, also by an earlier grant; what all callers share must stay. No limits
// take the caller's grants back. It errs as Reset does, and where a limit is not from 1 to MaxLimit or less than the limiter's cost,
// or until is not to come or more than a year away by the store's clock.
func (d *Decider) Grant(ctx context.Context, limiter string, caller Keys, limits []int64, until int64) error {
	t, err := d.hold(limiter, caller)
	if err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	if d.keeper == nil {
		return fmt.Errorf("grant: limiter %q: %w", limiter, ErrNoKeeper)
	}
	charges, grants := t.charges[:t.n], make([]Grant, t.n)
	if len(limits) > 0 {
		if err := d.direct.Take(ctx, t.charges[:t.n], &t.receipt); err != nil { // what time is it?
			return fmt.Errorf("grant: limiter %q: %w", limiter, err)
		}
		if err := t.checkGrant(limits, until, caller); err != nil {
			return fmt.Errorf("grant: limiter %q: %w", limiter, err)
		}
		charges, grants = nil, nil
		for i, limit := range limits {
			if limit > 0 {
				charges, grants = append(charges, t.charges[i]), append(grants, Grant{Limit: limit, Until: until})
			}
		}
		if len(charges) == 0 {
			return nil
		}
	}
	if err := d.keeper.Grant(ctx, charges, grants); err != nil {
		return fmt.Errorf("grant: limiter %q: %w", limiter, err)
	}
	return nil
}

func (t *ticket) checkGrant(limits []int64, until int64, caller Keys) error {
	if len(limits) != t.n {
		return fmt.Errorf("%d limits for %d windows: one for each is needed, 0 for those that stay", len(limits), t.n)
	}
	now := t.receipt.Now
	if until <= now || until > now+int64(maxGrant/time.Second) {
		return fmt.Errorf("until %d: a time from %d, the store's next second, to %d, a year from now, is allowed", until, now+1, now+int64(maxGrant/time.Second))
	}
	for i, limit := range limits {
		if limit < 0 || limit > MaxLimit {
			return fmt.Errorf("limit %d for %q: 1 to %d is allowed, 0 leaves it as it is", limit, t.windows[i], MaxLimit)
		}
		if limit > 0 && shared(t.windows[i], caller) {
			return fmt.Errorf("limit %d for %q: all callers share that, so no grant for one of them can change it: 0 is allowed", limit, t.windows[i])
		}
		if cost := t.limiters[i].cost; limit > 0 && limit < cost {
			return fmt.Errorf("limit %d for %q is less than the cost of one request, %d: none could be served", limit, t.windows[i], cost)
		}
	}
	return nil
}

// CountedBy returns which alternative of a part of a key counts a caller, and its value appended to dst; source is empty where
// the caller has none of them, nor an address.
func CountedBy(dst []byte, p Part, caller Keys) (source string, value []byte) {
	for _, source := range p {
		if value, ok := caller.AppendKey(dst, source); ok {
			return source, value
		}
	}
	if value, ok := caller.AppendKey(dst, fallbackSource); ok {
		return fallbackSource, value
	}
	return "", dst
}
