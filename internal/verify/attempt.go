package verify

import "context"

// What happens once may be chance: a limiter may now and then admit one request too many, and a
// backend may now and then fail. So before a request counts as escaped, it is repeated,
// with the plain request between, and must be admitted each time.

const (
	timesSure  = 4  // how often an admitted request is repeated
	timesCalm  = 3  // how often a request is sent that is answered with a server error
	maxRepeats = 48 // of one limiter's requests
)

// An outcome is what became of an attempt to get more than the budget.
type outcome uint8

const (
	stillRefused outcome = iota
	escaped              // admitted, while the plain request is still refused
	// Answered otherwise than the endpoint answers: by another endpoint, or with an error.
	another
	windowEnded
	byChance // admitted once, and refused when it was repeated: the request is not the cause
)

// Attempts try to get more than main's budget while none of it is left.
type attempts struct {
	*probe
	repeated int // requests that were repeated for certainty
}

// attempt sends a request that should be refused, and makes sure of the outcome.
func (p *attempts) attempt(ctx context.Context, t *tally, r request) (*answer, outcome, error) {
	a, err := p.sendCalm(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case !a.admitted():
		return a, stillRefused, nil
	case p.seen.isTrouble(a), r.path != p.part.endpoints[0].path && !p.seen.isLikeServed(a), r.host != p.plain().host && !p.seen.isOtherBudget(t, a):
		return a, another, nil
	}
	got, err := p.confirmEscape(ctx, t, r)
	return a, got, err
}

// attemptMain is attempt for a request that main's window counts: the answer is judged and
// remembered.
func (p *attempts) attemptMain(ctx context.Context, t *tally, r request) (*answer, outcome, error) {
	a, got, err := p.attempt(ctx, t, r)
	if err != nil {
		return a, got, err
	}
	p.judge(a)
	if got == byChance {
		p.leakByChance(t, a)
	}
	// With another Reset it is of another budget.
	if got == stillRefused || got == escaped && a.reset == t.reset {
		p.judgeCounted(a)
		p.remember(a)
	}
	return a, got, nil
}

// mayRepeat reports whether one more request may be sent for certainty.
func (p *attempts) mayRepeat() bool {
	p.repeated++
	return p.repeated <= maxRepeats
}

// sendCalm sends a request, and again after a server error. It returns the last answer.
func (p *attempts) sendCalm(ctx context.Context, r request) (*answer, error) {
	a, err := p.send(ctx, r)
	for n := 1; n < timesCalm && err == nil && p.seen.isTrouble(a) && p.mayRepeat(); n++ {
		a, err = p.send(ctx, r)
	}
	return a, err
}

// confirmEscape makes sure that an admitted request is admitted each time, and that the plain one
// is refused each time.
func (p *attempts) confirmEscape(ctx context.Context, t *tally, r request) (outcome, error) {
	if got, err := p.confirmSpent(ctx, t); err != nil || got != escaped {
		return got, err
	}
	// A second budget may be as small.
	times := min(timesSure, int(t.limit/p.part.costOf(t.limit))-2)
	for range max(times, 1) {
		if !p.mayRepeat() {
			return byChance, nil
		}
		again, err := p.sendCalm(ctx, r)
		switch {
		case err != nil:
			return 0, err
		case p.seen.isTrouble(again):
			return byChance, nil
		case !again.admitted() && again.reset == t.reset:
			return byChance, nil
		case !again.admitted():
			return escaped, nil // refused by another budget, which is now spent
		}
		if got, err := p.confirmSpent(ctx, t); err != nil || got != escaped {
			return got, err
		}
	}
	return escaped, nil
}

// confirmSpent makes sure that the plain request is still refused. It returns escaped if so, and
// windowEnded if not.
func (p *attempts) confirmSpent(ctx context.Context, t *tally) (outcome, error) {
	still, err := p.ask(ctx)
	for n := 0; n < timesCalm && err == nil && still.admitted() && (still.reset == t.reset || p.seen.isTrouble(still)) && p.mayRepeat(); n++ {
		leak := still
		if still, err = p.ask(ctx); err == nil {
			p.leakBefore(t, leak, still)
		}
	}
	if err != nil || !still.admitted() && still.reset == t.reset {
		return escaped, err
	}
	return windowEnded, nil
}

// leakBefore passes on a plain request that was admitted by a window that had refused. after is the
// answer to the next request.
func (p *attempts) leakBefore(t *tally, leak, after *answer) {
	if leak.admitted() && leak.status < 500 && leak.reset == t.reset && !after.admitted() && after.reset == t.reset {
		p.leak(leak, "refused again after that")
	}
}

// leakByChance passes on a request of main's window that was admitted by chance.
func (p *attempts) leakByChance(t *tally, a *answer) {
	if a.status < 500 && a.reset == t.reset {
		p.leak(a, "refused when it was repeated: now and then more than the limit is admitted")
	}
}

func (p *attempts) leak(a *answer, how string) {
	p.checks.each(func(h *hooks) {
		if h.leaked != nil {
			h.leaked(a, how)
		}
	})
}

// escape passes on a request that was admitted although main's budget is spent.
func (p *attempts) escape(a *answer, with string) {
	p.checks.each(func(h *hooks) {
		if h.escaped != nil {
			h.escaped(a, with)
		}
	})
}
