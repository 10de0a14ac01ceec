package weir

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoKeeper is returned by Reset and Grant for a store that is not a Keeper.
var ErrNoKeeper = errors.New("this store does not let its windows be changed")

// ErrNoLimiter is wrapped by errors about a limiter that the policy in force does not have.
var ErrNoLimiter = errors.New("the policy in force has no such limiter")

// maxGrant is the max time from now to the end of a grant.
const maxGrant = 366 * 24 * time.Hour

// A WindowState is the state of one caller's window, as an operator sees it.
type WindowState struct {
	// Standing has the limit in force. Its Reset is 0 while the window is not open.
	Standing
	// Declared is the limit of the policy: the window's, or that of the caller's override or plan.
	Declared int64
	Override bool // Declared is an override
	// Plan is the caller's plan if the limiter lists it and it sets Declared; else it is empty.
	Plan string
	// PlanUnknown means that the limiter has plans, and what names the caller does not tell its
	// plan. Declared is then what a caller without a plan has.
	PlanUnknown bool
	Grant       Grant // the grant in force; zero: there is none
	Exempt      bool  // the caller is never refused, unless it is denied
	Denied      bool  // the caller is refused without being counted
	// PenaltyEnds is when the limiter's penalty of the caller ends, in Unix seconds; 0: it is under
	// none. Only the limiter's first window has it. Standing has Penalty then, and is otherwise the
	// window's own.
	PenaltyEnds int64
	Everyone    bool  // the window counts all callers together, so Reset and Grant do not change it
	Now         int64 // Unix seconds by the store's clock
}

// Inspect returns the state of each window of a limiter for a caller, in the policy's order, and
// after them that of its limit in flight. The
// limiter may be in Shadow mode. Inspect spends nothing. It returns an error if the policy has no
// such limiter, or if the store does not answer. ctx bounds the wait.
func (d *Decider) Inspect(ctx context.Context, limiter string, caller Keys) ([]WindowState, error) {
	s, err := d.peek(limiter, caller)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if err := d.direct.Take(ctx, s.charges[:s.n], &s.receipt); err != nil {
		return nil, fmt.Errorf("inspect limiter %q: %w", limiter, err)
	}
	plan, known := planOf(&s.limiters[0].Limiter, caller)
	var overrides [maxRows]int64
	if special := s.limiters[0].special; special != nil {
		overrides = special.find(caller, nil).limits
	}
	out := make([]WindowState, s.n-s.gates) // the gate is the last charge
	for i := range out {
		w, used := s.windows[i], s.receipt.Used[i]
		h := &out[i]
		h.Limiter, h.Window, h.Limit, h.Count, h.Reset = &s.limiters[i].Limiter, w, s.limits[i], used.Count, used.Reset
		h.InFlight = w.InFlight
		h.Declared, h.Exempt, h.Grant, h.Now = s.limits[i], s.exempted[i], s.grants[i], s.receipt.Now
		h.Denied = s.denied != nil
		h.Override, h.Everyone = overrides[i] > 0, countsEveryone(w, caller)
		if plans := &s.limiters[i].Plans; !h.Override && plans.Changes(w) {
			h.PlanUnknown = !known
			if p := plans.Find(plan); p != nil && p.Of(w) > 0 {
				h.Plan = plan
			}
		}
		if limit := s.granted(i); limit > 0 {
			h.Limit = limit
		}
		if h.Remaining = max(h.Limit-h.Count, 0); h.Exempt {
			h.Remaining = h.Limit
		}
	}
	if s.gates > 0 { // one limiter has one, which is its last charge
		out[0].PenaltyEnds = s.receipt.Used[s.n-1].Reset
		out[0].Penalty = out[0].PenaltyEnds != 0
	}
	return out, nil
}

// peek returns a Scratch with charges that spend nothing. They have the policy's limits, and the
// grants in force are beside them.
func (d *Decider) peek(limiter string, caller Keys) (*Scratch, error) {
	l := d.compiled.Load().named[limiter]
	if l == nil {
		return nil, fmt.Errorf("limiter %q: %w", limiter, ErrNoLimiter)
	}
	s := new(Scratch)
	s.reset()
	var holds exception
	if l.special != nil {
		if holds = l.special.find(caller, s.keys); holds.denied {
			s.denied = l
		}
	}
	if err := s.addWindows(&l.named, "", &Request{Keys: caller, Cost: Peek}, &holds); err != nil {
		return nil, err
	}
	s.sliceKeys()
	if d.keeper != nil {
		d.keeper.Granted(s.charges[:s.n], s.grants[:s.n])
	}
	return s, nil
}

// countsEveryone reports whether a window counts this caller together with all others.
func countsEveryone(w *Window, caller Keys) bool {
	for _, part := range w.Key {
		if source, _ := CountedBy(nil, part, caller); source != everyoneSource {
			return false
		}
	}
	return true
}

// Reset resets a caller's windows of a limiter: it is as if they had never been opened. It ends the
// caller's penalty, and forgets the refusals that would begin one. It leaves windows that count all
// callers together. It returns an error if the policy has no such limiter,
// if the store is not a Keeper, or if the store does not answer. ctx bounds the wait.
func (d *Decider) Reset(ctx context.Context, limiter string, caller Keys) error {
	s, err := d.peek(limiter, caller)
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if d.keeper == nil {
		return fmt.Errorf("reset limiter %q: %w", limiter, ErrNoKeeper)
	}
	var own []Charge
	for i := range s.n {
		switch {
		case s.windows[i] == nil:
			own = append(own, s.charges[i], s.refusals(i))
		case s.charges[i].Held: // only their requests give them back
		case !countsEveryone(s.windows[i], caller):
			own = append(own, s.charges[i])
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

// Grant gives a caller other limits than the policy, until a time in Unix seconds. limits has one
// limit for each window of the limiter, in the policy's order. 0 leaves a window as it is, with any
// earlier grant; it is required for windows that count all callers together. If limits is empty,
// Grant removes all grants of the caller for the limiter.
//
// It returns an error in the cases of Reset. It also returns an error if a limit is not from 1 to
// MaxLimit, if it is lower than the limiter's cost (unless requests tell that: Limiter.Reserve), or
// if until is not within the next year by the store's clock.
func (d *Decider) Grant(ctx context.Context, limiter string, caller Keys, limits []int64, until int64) error {
	s, err := d.peek(limiter, caller)
	if err != nil {
		return fmt.Errorf("grant: %w", err)
	}
	if d.keeper == nil {
		return fmt.Errorf("grant: limiter %q: %w", limiter, ErrNoKeeper)
	}
	n := len(s.limiters[0].Windows) // the limit in flight and the gate follow
	charges, grants := s.charges[:n], make([]Grant, n)
	if len(limits) > 0 {
		if err := d.direct.Take(ctx, s.charges[:s.n], &s.receipt); err != nil { // reads the clock
			return fmt.Errorf("grant: limiter %q: %w", limiter, err)
		}
		if err := s.checkGrant(limits, until, caller); err != nil {
			return fmt.Errorf("grant: limiter %q: %w", limiter, err)
		}
		charges, grants = nil, nil
		for i, limit := range limits {
			if limit > 0 {
				charges, grants = append(charges, s.charges[i]), append(grants, Grant{Limit: limit, Until: until})
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

func (s *Scratch) checkGrant(limits []int64, until int64, caller Keys) error {
	if n := len(s.limiters[0].Windows); len(limits) != n {
		return fmt.Errorf("%d limits for %d windows: one for each is needed, 0 for those that stay", len(limits), n)
	}
	now := s.receipt.Now
	if until <= now || until > now+int64(maxGrant/time.Second) {
		return fmt.Errorf("until %d: a time from %d, the store's next second, to %d, a year from now, is allowed", until, now+1, now+int64(maxGrant/time.Second))
	}
	for i, limit := range limits {
		if limit < 0 || limit > MaxLimit {
			return fmt.Errorf("limit %d for %q: 1 to %d is allowed, 0 leaves it as it is", limit, s.windows[i], MaxLimit)
		}
		if limit > 0 && countsEveryone(s.windows[i], caller) {
			return fmt.Errorf("limit %d for %q: all callers share that, so no grant for one of them can change it: 0 is allowed", limit, s.windows[i])
		}
		if cost := s.limiters[i].costIn(s.windows[i]); limit > 0 && limit < cost {
			return fmt.Errorf("limit %d for %q is less than the cost of one request, %d: none could be served", limit, s.windows[i], cost)
		}
	}
	return nil
}

// CountedBy returns the alternative of a key's part by which a window counts a caller, and its
// value appended to dst. source is empty if the caller has none of the alternatives and no address.
func CountedBy(dst []byte, p Part, caller Keys) (source string, value []byte) {
	for _, source := range p {
		if value, ok := caller.AppendKey(dst, source); ok {
			return source, value
		}
	}
	if value, ok := caller.AppendKey(dst, addressSource); ok {
		return addressSource, value
	}
	return "", dst
}

// ShownCaller returns what may be shown of a caller of a window: the key sources that count it,
// joined by "+" ("nobody" for a part without any), and the id of its API token if it is counted by
// one. No other value of a caller may be shown. caller and w may be nil; then both are empty.
// buffer is working memory, which is returned and may have grown.
func ShownCaller(w *Window, caller Keys, buffer []byte) (sources, token string, _ []byte) {
	if caller == nil || w == nil {
		return "", "", buffer
	}
	for i, part := range w.Key {
		source, value := CountedBy(buffer[:0], part, caller)
		buffer = value
		if source == "" {
			source = "nobody"
		}
		if SourceOf(source).Public && IsTokenID(value) {
			token = string(value)
		}
		if i == 0 {
			sources = source
		} else {
			sources += "+" + source
		}
	}
	return sources, token, buffer
}
