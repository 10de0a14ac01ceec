package verify

import "context"

// Clauses about counting: each reads the budget that was used up over all connections at once.

// checkRemaining wants each value once, from the first down to the last.
func checkRemaining(c *check) hooks {
	return hooks{readsCount: true, drained: func(_ context.Context, s *spending) error {
		switch {
		case !s.why.isZero():
			c.untested(s.why)
			return nil
		case !s.unrefused.isZero():
			c.untested(s.unrefused)
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
			c.kept("from %d down to %d, each once, over %d connections", first.remaining, last.remaining, c.workers())
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
		readsCount: true,
		began: func(first *answer) {
			// A new session may have to wait a second if its address guesses (D16), a new agent or
			// value of a field not.
			if !first.admitted() && isChosen(c.who.apart) && c.isSure(first.limit) && first.limit == c.part.window.Limit {
				c.broken(first, "the first request of a new caller was refused")
			}
		},
		drained: func(_ context.Context, s *spending) error {
			if !s.why.isZero() {
				c.untested(s.why)
				return nil
			}
			if n := int64(len(s.tally.admitted)); n > s.allowed {
				c.certainly(s.tally.admitted[n-1].answer, "%d requests were admitted in one window of %d", n, s.tally.limit)
			}
			if !s.unrefused.isZero() {
				c.untested(s.unrefused)
			}
			if s.judged() && len(s.flood) > 0 {
				judgeAdmitted(c, s)
			}
			return nil
		},
		leaked: func(a *answer, how string) { c.broken(a, "admitted after the window had refused, and %s", how) },
	}
}

func judgeAdmitted(c *check, s *spending) {
	first, last := s.flood[0], s.flood[len(s.flood)-1]
	switch {
	case s.missing > 0 && s.tally.refused > 0 && s.certain:
		c.broken(s.tally.firstRefused, "refused after %d requests, when %d had been left; Remaining had been %d%s",
			len(s.flood), first.remaining+c.part.costOf(first.limit), last.remaining, s.butLost())
	case s.missing > 0:
		c.untested(s.whyMissing())
	case s.tally.refused == 0:
	case int64(len(s.all)) == s.allowed:
		c.kept("%d requests, then 429", s.allowed)
	default:
		c.kept("%d requests, as many as were left, then 429", len(s.flood))
	}
}
