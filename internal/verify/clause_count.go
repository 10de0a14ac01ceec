package verify

import (
	"context"
	"net/http"
)

// Clauses about counting: each reads the budget that was used up over all connections at once.

// checkRemaining wants each value once, from the first down to the last.
func checkRemaining(c *check) hooks {
	return hooks{drained: func(_ context.Context, s *spending) error {
		switch {
		case !s.why.isZero():
			c.untested(s.why)
			return nil
		case !s.notRefuse.isZero():
			c.untested(s.notRefuse)
		}
		if !s.judged() || len(s.flood) == 0 {
			return nil
		}
		if s.shift > 0 {
			c.broken(s.all[0].answer, "Remaining is %d of %d on an admitted request: it does not count that request", s.all[0].remaining, s.tally.limit)
		}
		for i, a := range s.all[1:] {
			if a.remaining == s.all[i].remaining {
				c.broken(a.answer, "Remaining was %d on two answers of the same window", a.remaining)
			}
		}
		first, last := s.flood[0], s.flood[len(s.flood)-1]
		switch {
		case s.missing == 0:
			c.kept("from %d down to %d, each once, over %d connections", first.remaining, last.remaining, c.run.options.Workers)
		case s.missing > s.tail && s.certain:
			c.broken(last.answer, "Remaining fell from %d to %d with %d requests%s", first.remaining, last.remaining, len(s.flood), s.butLost())
		default:
			c.untested(s.whyMissing())
		}
		return nil
	}}
}

// checkAdmitted counts the admitted requests of a budget, and reads every request that a window
// admitted after it had refused.
func checkAdmitted(c *check) hooks {
	return hooks{
		began: func(first *answer) {
			// A new credential may be refused unread if its address's budget is spent (D16), a new
			// agent not.
			if !first.admitted() && c.who.apart == sourceAgent && c.isSure(first.limit) && first.limit == c.part.window.Limit {
				c.broken(first, "the first request of a new caller was refused")
			}
		},
		drained: func(_ context.Context, s *spending) error {
			if !s.why.isZero() {
				c.untested(s.why)
				return nil
			}
			if n := int64(len(s.tally.admitted)); n > s.allowed {
				c.broken(s.tally.admitted[n-1].answer, "%d requests were admitted in one window of %d", n, s.tally.limit)
			}
			if !s.notRefuse.isZero() {
				c.untested(s.notRefuse)
			}
			if s.judged() && len(s.flood) > 0 {
				c.judgeAdmitted(s)
			}
			return nil
		},
		leaked: func(a *answer, how string) { c.broken(a, "admitted after the window had refused, and %s", how) },
	}
}

func (c *check) judgeAdmitted(s *spending) {
	first, last := s.flood[0], s.flood[len(s.flood)-1]
	switch {
	case s.missing > 0 && s.tally.refused > 0 && s.certain:
		c.broken(s.tally.firstRefused, "refused after %d requests, when %d had been left; Remaining had been %d%s",
			len(s.flood), first.remaining+c.part.cost, last.remaining, s.butLost())
	case s.missing > 0:
		c.untested(s.whyMissing())
	case s.tally.refused == 0:
	case int64(len(s.all)) == s.allowed:
		c.kept("%d requests, then 429", s.allowed)
	default:
		c.kept("%d requests, as many as were left, then 429", len(s.flood))
	}
}

// checkSeparate sends requests of another caller: between two of main's, and while main is refused.
func checkSeparate(c *check) hooks {
	s := &separateCheck{check: c}
	return hooks{needsRefusals: true, between: s.between, spent: s.spent, why: func() gap { return c.who.noOther }}
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
	case a.status == http.StatusUnauthorized && before.status != http.StatusUnauthorized:
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
	if whole := a.limit - c.part.cost; a.remaining < whole {
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

// otherHad reports whether the other caller had budget left, in a window that cannot be main's.
func (c *separateCheck) otherHad(t *tally) bool {
	o := c.other
	if o == nil || c.seen.isLost() || !o.admitted() || o.limit != t.limit || o.remaining < c.part.cost {
		return false
	}
	return o.reset != t.reset || c.isSure(o.limit)
}
