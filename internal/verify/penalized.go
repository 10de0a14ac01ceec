package verify

import (
	"context"
	"errors"
)

// bePenalized runs the experiments on a limiter whose penalty the others would begin.
func (l *timeline) bePenalized(ctx context.Context) error {
	for _, step := range []func(context.Context) error{l.findHost, l.lookCalmly, l.budget.spendCalmly, l.penalize, l.provoke} {
		switch err := step(ctx); {
		case errors.Is(err, errDone):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// lookCalmly sends the first requests without being refused, unless others use the same budget.
func (l *timeline) lookCalmly(ctx context.Context) error {
	first, err := l.begin(ctx)
	if err != nil || !first.admitted() || first.remaining < 3*l.part.cost {
		return err
	}
	if err := l.findStep(ctx); err != nil {
		return err
	}
	if l.seemsExempt() {
		return l.setAside(ctx)
	}
	return nil
}

// penalize lets the penalty begin and end. What needs a spent budget besides is not tested.
func (l *timeline) penalize(ctx context.Context) error {
	penalty := l.part.limiter.Penalty
	for _, c := range l.checks {
		if c.on.needsRefusals || c.on.paused != nil || c.on.drained != nil || c.on.between != nil || c.on.preflighted != nil {
			c.on.unseen = NeedsMore.because("it has a penalty, which the test would begin: after %s all requests are refused for %s; verify the same policy without it", penalty.Refusals(), penalty.RefuseFor())
		}
	}
	if err := l.checks.eachStep(func(h *hooks) error {
		if h.penalized == nil {
			return nil
		}
		return h.penalized(ctx)
	}); err != nil {
		return err
	}
	if t := l.seen.refusing(); t != nil {
		return l.budget.passDrained(ctx, l.budget.spendingOf(t))
	}
	return nil
}
