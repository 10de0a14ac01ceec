package verify

import (
	"context"
)

// checkSeparate sends requests of another caller: between two of main's, and while main is refused.
func checkSeparate(c *check) hooks {
	s := &separateCheck{check: c}
	return hooks{readsCount: true, needsRefusals: true, between: s.between, spent: s.spent, why: func() gap { return c.who.noOther }}
}

type separateCheck struct {
	*check
	other *answer // the last to the other caller while main had budget left
}

func (c *separateCheck) between(ctx context.Context) error {
	// After a spent budget, the first request may be charged to the address as well (D16).
	if c.seen.refused == 0 {
		c.wantWhole(c.first, "the first request of a new caller")
	}
	if !c.who.noOther.isZero() {
		c.untested(c.who.noOther)
		return nil
	}
	before := c.seen.last
	switch a, err := c.askOther(ctx); {
	case err != nil:
		return err
	case a.status == unauthenticatedStatus(c.seen.responses) && before.status != a.status:
		c.who.noOther = NeedsInput.because("the second caller is answered 401, so it is counted by its address")
		c.untested(c.who.noOther)
		return nil
	}
	after, err := c.ask(ctx)
	if err != nil {
		return err
	}
	spent, ok := c.probe.between(before, after)
	if !ok || !c.steady || spent == 0 || !c.who.isApart(after.limit) {
		return nil
	}
	if after, ok, err = c.confirm(ctx, after, c.askOther); ok {
		c.broken(after, "each request of another caller took a unit; Remaining is %d", after.remaining)
	}
	return err
}

func (c *separateCheck) askOther(ctx context.Context) (*answer, error) {
	a, err := c.send(ctx, c.requestOf(c.who.other))
	if err != nil {
		return nil, err
	}
	c.judge(a)
	c.judgeCounted(a)
	if c.other == nil {
		c.wantWhole(a, "the first request of another new caller")
	}
	c.other = a
	return a, nil
}

// wantWhole wants the whole budget for a caller that only this verifier can be.
func (c *separateCheck) wantWhole(a *answer, who string) {
	if !c.steady || !c.isSure(a.limit) || a.limit != c.part.window.Limit || a.remaining == absent || !a.admitted() {
		return
	}
	if whole := a.limit - c.part.costOf(a.limit); a.remaining < whole {
		c.broken(a, "%s had Remaining %d instead of %d: others spend its budget", who, a.remaining, whole)
	}
}

func (c *separateCheck) spent(ctx context.Context, t *tally) error {
	if !c.who.noOther.isZero() {
		return nil
	}
	a, err := c.send(ctx, c.requestOf(c.who.other))
	if err != nil {
		return err
	}
	c.judge(a)
	c.judgeCounted(a)
	if ok, err := c.tryEachSource(ctx, t); err != nil || !ok {
		return err
	}
	switch {
	case a.admitted():
		c.kept("another caller was answered %d with Remaining %d while this one was refused", a.status, a.remaining)
	case a.reset == t.reset && a.limit == t.limit && c.who.isApart(t.limit) && c.otherHad(t):
		c.broken(a, "another caller was refused until the same Reset, though it had sent 1 request")
	default:
		c.untested(Shared.because("the other caller's own budget was spent"))
	}
	return nil
}

// tryEachSource sends requests that differ from main's by one value each, if main is counted by
// several. It is not ok after a verdict.
func (c *separateCheck) tryEachSource(ctx context.Context, t *tally) (ok bool, err error) {
	for _, source := range countedBy(c.part.window.Key, c.who.has) {
		if !c.who.canVary(source) || source == c.who.apart || !c.who.isCounted(t.limit, func(s string) bool { return s == source }) {
			continue
		}
		a, err := c.send(ctx, c.requestOf(c.who.main.another(source)))
		if err != nil {
			return false, err
		}
		c.judge(a)
		c.judgeCounted(a)
		if !a.admitted() && a.reset == t.reset && a.limit == t.limit {
			c.broken(a, "the first request with another value of %s was refused until the same Reset", source)
			return false, nil
		}
	}
	return true, nil
}

// otherHad reports whether the other caller had budget left, in a window that cannot be main's.
func (c *separateCheck) otherHad(t *tally) bool {
	o := c.other
	if o == nil || c.seen.isLost() || !o.admitted() || o.limit != t.limit || o.remaining < c.part.costOf(o.limit) {
		return false
	}
	return o.reset != t.reset || c.isSure(o.limit)
}
