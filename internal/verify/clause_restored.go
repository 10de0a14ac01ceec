package verify

// Clauses about the end of a window: each reads the rollover (rollover.go).

func checkRestored(c *check) hooks {
	return hooks{readsCount: true, needsRefusals: true, unseen: Unobservable.because("no window was observed until its end"), rolled: restoredCheck{c}.rolled}
}

type restoredCheck struct{ *check }

func (c restoredCheck) rolled(r rollover) {
	t, a := r.tally, r.answer
	switch r.kind {
	case notSeen:
		c.untested(r.why)
	case early:
		if a.admitted() && a.at.Before(r.end.from.Add(-r.doubt)) {
			c.broken(a, "answered %d with Remaining %d, at least %s before Reset, %d", a.status, a.remaining, seconds(r.end.from.Sub(a.at)), t.reset)
		}
	case afterMove:
		switch {
		case !a.admitted():
			c.suspect(a, "refused when Reset, %d, had come; it had moved to %d", t.reset, r.moved.reset)
		case a.date != absent && a.date < r.moved.reset-1:
			c.suspect(a, "answered %d at %d by its Date, before the last Reset, %d", a.status, a.date, r.moved.reset)
		}
		c.untested(Unobservable.because("Reset moved"))
	case overdue:
		c.broken(a, "refused repeatedly after Reset: at %d by its Date, and Reset was %d", a.date, t.reset)
	case skipped:
		c.untested(Shared.because("refused at the start of a window, and admitted in the next"))
	case late:
		c.broken(a, "refused in the window after Reset, %d, and admitted %s later: the budget is not restored at once", t.reset, seconds(r.later.at.Sub(a.at)))
	case refusedAtOnce:
		c.broken(a, "refused at the start of the window after Reset, %d%s", t.reset, r.note)
	case refusedByOther:
		c.untested(r.why)
	case refusedInPast:
		c.broken(a, "refused after Reset, %d, with an earlier Reset", t.reset)
	case refusedNext:
		c.untested(Shared.because("refused at the start of a window: others may use the same budget"))
	case servedByLonger:
		c.kept("served at Reset; the answer describes the window of %d, which has less left", a.limit)
	case servedUnclear:
		c.untested(Unobservable.because("Reset moved within a window, so it is not known which window is restored"))
	case served:
		switch {
		case r.missing <= 0:
			c.kept("refused just before Reset, served at Reset with Remaining %d of %d", a.remaining, a.limit)
		case r.allRefusals:
		case c.isSure(a.limit):
			c.broken(a, "the window after Reset began with Remaining %d of %d", a.remaining, a.limit)
		default:
			c.untested(Shared.because("served at Reset with %d of %d missing: others may use the same budget", r.missing, a.limit))
		}
	}
}

func checkRefusedFree(c *check) hooks {
	return hooks{readsCount: true, needsRefusals: true, unseen: Unobservable.because("no window was observed until its end"), rolled: refusedFreeCheck{c}.rolled}
}

type refusedFreeCheck struct{ *check }

func (c refusedFreeCheck) rolled(r rollover) {
	a := r.answer
	switch r.kind {
	case notSeen, refusedByOther, never:
		c.untested(r.why)
	case afterMove:
		c.untested(Unobservable.because("Reset moved, so the windows cannot be distinguished"))
	case charged:
		c.broken(a, "%d requests were refused in one window, and the next began with as many missing", r.polled)
	case refusedNext:
		c.untested(Shared.because("refused at the start of a window: others may use the same budget"))
	case servedByLonger:
		c.judgeLonger(a)
	case servedUnclear:
		c.untested(Unobservable.because("Reset moved within a window, so it is not known which window begins"))
	case served:
		switch {
		case r.missing <= 0:
			c.kept("%d refused requests, and the next window began with Remaining %d of %d%s", c.seen.refused, a.remaining, a.limit, c.unseenWindow())
		case r.allRefusals:
			c.broken(a, "%d requests were refused, and the next window began with %d of %d missing", c.seen.refused, r.missing, a.limit)
		case !c.isSure(a.limit):
			c.untested(Shared.because("%d of %d were missing in the next window: others may use the same budget", r.missing, a.limit))
		}
	}
}

// judgeLonger reads an answer that describes a longer window, since that has less left than the
// restored one.
func (c refusedFreeCheck) judgeLonger(a *answer) {
	var admitted int64
	for _, t := range c.seen.tallies {
		admitted += int64(len(t.admitted))
	}
	missing := a.limit - a.remaining - admitted*c.part.costOf(a.limit)
	switch {
	case missing > 0 && c.who.alone && c.who.isApart(a.limit) && !c.seen.isLost():
		c.broken(a, "%d requests were admitted and %d refused, and the window of %d has Remaining %d", admitted, c.seen.refused, a.limit, a.remaining)
	case missing > 0:
		c.untested(Shared.because("%d units of the window of %d are unaccounted for: others may use it", missing, a.limit))
	default:
		c.kept("%d requests were refused, and the window of %d has Remaining %d after %d that were admitted", c.seen.refused, a.limit, a.remaining, admitted)
	}
}

func (c refusedFreeCheck) unseenWindow() string {
	if len(c.part.limiter.Windows) == 1 {
		return ""
	}
	return "; its longer window has more left, so refusals that consume from it would not be seen"
}
