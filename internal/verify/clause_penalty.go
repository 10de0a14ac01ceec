package verify

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir"
)

// checkPenalty is refused as often as begins the penalty of the limiter, and follows that to its
// end. It is the only one that sends requests then: the others' would be refused.
func checkPenalty(clause *check) hooks {
	c := &penaltyCheck{check: clause}
	return hooks{penalized: c.follow, why: func() gap {
		p := c.part.limiter.Penalty
		switch {
		case p.After == 0:
			return inherently("it has no penalty")
		case !c.part.penalized:
			return NeedsMore.because("it takes %s, and not so many are sent", p.Refusals())
		}
		return c.unclear
	}}
}

type penaltyCheck struct {
	*check
	end     *tally // the penalty, as answers announce it; it is no window of the history
	unclear gap    // why nothing was judged
}

// follow begins the penalty. No refusal was sent before, unless others have spent the budget.
func (c *penaltyCheck) follow(ctx context.Context) error {
	c.does("being refused %s", c.part.limiter.Penalty.Refusals())
	begun, err := c.begin(ctx)
	if err != nil || begun == nil {
		return err
	}
	c.end = &tally{limit: begun.limit, reset: begun.reset}
	if !c.refuses(begun) {
		return nil
	}
	for _, step := range []func(context.Context) (bool, error){c.refusesAll, c.sparesOthers, c.ends} {
		if ok, err := step(ctx); err != nil || !ok {
			return err
		}
	}
	return nil
}

// begin is refused until an answer announces the penalty, and returns that answer. It is nil if
// there is a verdict, or none can be given.
func (c *penaltyCheck) begin(ctx context.Context) (*answer, error) {
	p := c.part.limiter.Penalty
	if n := c.probe.refused.Load(); n > 0 {
		c.unclear = Shared.because("%d requests were refused before it was begun: its budget is too small for that, or others use it", n)
		return nil, nil
	}
	enough := p.After
	if !c.isSure(c.part.window.Limit) {
		enough *= 2 // others may have been refused, and the time of theirs may end meanwhile
	}
	var first time.Time
	hidden := false // a penalty may have begun and ended that no answer showed
	for range 2*(c.part.drain+c.part.over) + int(enough) {
		t := c.seen.now()
		a, err := c.ask(ctx)
		if err != nil {
			return nil, err
		}
		refusals := c.probe.refused.Load()
		if refusals == 1 && first.IsZero() {
			first = a.sent
		}
		hidden = hidden || enough > p.After && refusals < enough && !a.admitted() && c.isHiddenBy(t, a)
		switch {
		case a.admitted():
		case t != nil && a.reset > t.reset && slices.Contains(c.part.lengthsOf(a.limit), c.part.limiter.Windows[0].Per):
			return c.judgeBeginning(a, t, refusals), nil
		case !c.part.isDrained(a.limit) || c.part.window.Key.Uses(sourceOfKind(weir.Common)):
			c.unclear = Unobservable.because("refused by a window of %d, whose refusals need not begin the penalty", a.limit)
			return nil, nil
		case refusals == enough:
			c.judgeMissing(a, t, a.at.Sub(first), hidden)
			return nil, nil
		}
	}
	c.unclear = NeedsMore.because("its windows ended before %s came together", p.Refusals())
	return nil, nil
}

// judgeBeginning judges whether the penalty begins with the declared refusal. It returns nil if
// not.
func (c *penaltyCheck) judgeBeginning(a *answer, t *tally, refusals int64) *answer {
	p := c.part.limiter.Penalty
	switch {
	case refusals == p.After:
		return a
	case c.isSure(a.limit):
		c.broken(a, "refusal %d has a Reset that is %d s after that of its window: the penalty begins after %s", refusals, a.reset-t.reset, p.Refusals())
	default:
		c.unclear = Shared.because("refusal %d began the penalty: others may have been refused as well", refusals)
	}
	return nil
}

// judgeMissing judges an answer that should have announced the penalty and has the window's Reset.
// hidden is true if a penalty may have begun before, unseen: refusals in it do not count.
func (c *penaltyCheck) judgeMissing(a *answer, t *tally, took time.Duration, hidden bool) {
	p := c.part.limiter.Penalty
	switch {
	case took >= p.Per-time.Second:
		c.unclear = NeedsMore.because("%s took %s", p.Refusals(), seconds(took))
	case a.date == absent:
		c.unclear = noDate
	case hidden || c.isHiddenBy(t, a):
		c.unclear = Unobservable.because("its window refuses for longer than the penalty of %s", p.RefuseFor())
	default:
		c.suspect(a, "%d requests were refused within %s, and Reset is still that of the window: the penalty of %s does not begin", c.probe.refused.Load(), seconds(took), p.RefuseFor())
	}
}

// isHiddenBy reports whether a penalty that began with a would end with the window or before it.
func (c *penaltyCheck) isHiddenBy(t *tally, a *answer) bool {
	return t == nil || a.date == absent || a.date+int64(c.part.limiter.Penalty.For/time.Second) <= t.reset+1
}

// refuses judges an answer during the penalty, and reports whether it is a refusal until its end.
func (c *penaltyCheck) refuses(a *answer) bool {
	c.clocks.hear(a)
	length := int64(c.part.limiter.Penalty.For / time.Second)
	doubt := 1 + ceilSeconds(a.at.Sub(a.sent))
	end := c.probe.end(c.end)
	switch {
	case a.reset != c.end.reset && !end.isZero() && !a.at.Before(end.from):
		c.unclear = NeedsMore.because("the penalty of %s may have ended before a request in it was answered", c.part.limiter.Penalty.RefuseFor())
		return false
	case a.admitted():
		c.broken(a, "answered %d during the penalty, whose end is Reset %d", a.status, c.end.reset)
		return false
	case a.reset != c.end.reset && !c.isCertain():
		c.unclear = Shared.because("Reset moved during the penalty: another window may refuse for longer, since others may use it")
		return false
	case a.reset != c.end.reset:
		c.broken(a, "Reset was %d when the penalty began, and is %d after one more request: it must not move", c.end.reset, a.reset)
		return false
	case a.date == absent:
		c.unclear = noDate
		return false
	case c.end.ends.isZero() && (a.reset-a.date < length-doubt || a.reset-a.date > length+1):
		c.suspect(a, "the penalty's end is %d s after Date, and the policy has %s", a.reset-a.date, c.part.limiter.Penalty.RefuseFor())
	case a.retryAfter == absent || a.retryAfter < a.reset-a.date-1 || a.retryAfter > a.reset-a.date+doubt:
		c.suspect(a, "Retry-After is %d, and the penalty ends %d s after Date", a.retryAfter, a.reset-a.date)
	}
	c.end.ends = c.end.ends.narrow(a.in(a.reset - a.date))
	c.end.addWait(a)
	return true
}

// isCertain reports whether only this verifier can spend any of main's windows.
func (c *penaltyCheck) isCertain() bool {
	return len(c.part.limiter.Windows) == 1 && c.isSure(c.part.window.Limit)
}

// refusesAll sends requests to each of the limiter's first endpoints, which the penalty refuses and
// which do not prolong it.
func (c *penaltyCheck) refusesAll(ctx context.Context) (ok bool, err error) {
	for _, e := range c.part.endpoints[:min(4, len(c.part.endpoints))] {
		for range 2 {
			a, err := c.send(ctx, c.who.main.request(c.run.options, e))
			if err != nil {
				return false, err
			}
			if e.isElsewhere(a) {
				break
			}
			c.judge(a)
			if !c.refuses(a) {
				return false, nil
			}
		}
	}
	return true, nil
}

// sparesOthers sends a request of another caller, whom the penalty does not concern. It does
// nothing if a window may refuse that caller for what main or others have spent, and so begin its
// own penalty.
func (c *penaltyCheck) sparesOthers(ctx context.Context) (ok bool, err error) {
	shares := func(w weir.Window) bool { return !slices.Contains(countedBy(w.Key, c.who.has), c.who.apart) }
	if !c.who.noOther.isZero() || !c.who.alone || slices.ContainsFunc(c.part.limiter.Windows, shares) {
		return true, nil
	}
	a, err := c.send(ctx, c.requestOf(c.who.other))
	if err != nil {
		return false, err
	}
	c.judge(a)
	switch {
	case a.admitted() || a.reset != c.end.reset:
		return true, nil
	case c.seen.isLost():
		c.unclear = NeedsMore.because("another caller is refused until the end of this one's penalty, and a request without an answer may have begun its own")
	default:
		c.broken(a, "another caller is refused until the end of this one's penalty")
	}
	return false, nil
}

// ends waits for the end of the penalty: just before it a request must be refused, and after it one
// must be admitted.
func (c *penaltyCheck) ends(ctx context.Context) (ok bool, err error) {
	if err := c.tooFar(c.probe.end(c.end).to); err != nil {
		c.unclear = NeedsMore.because("%s", err)
		return false, nil
	}
	if at := c.probe.end(c.end).from.Add(-justBefore); time.Until(at) > 0 {
		a, err := c.waitAndSend(ctx, at)
		if err != nil || !c.refuses(a) {
			return false, err
		}
	}
	for tries := 0; ; tries++ {
		a, err := c.waitAndSend(ctx, c.probe.end(c.end).to.Add(soon+time.Duration(tries)*time.Second))
		switch {
		case err != nil:
			return false, err
		case a.admitted():
			c.kept("%s, and everything was refused for %s; then it was free again", c.part.limiter.Penalty.Refusals(), c.part.limiter.Penalty.RefuseFor())
			return true, nil
		case a.reset != c.end.reset && !c.isCertain():
			c.unclear = Shared.because("refused by another window when the penalty had ended: others may use the same budget")
			return false, nil
		case tries > 0 || a.reset != c.end.reset:
			c.broken(a, "refused after the end of the penalty, Reset %d", c.end.reset)
			return false, nil
		}
	}
}

func (c *penaltyCheck) waitAndSend(ctx context.Context, at time.Time) (*answer, error) {
	if err := c.wait(ctx, at, "waiting for its penalty to end"); err != nil {
		return nil, err
	}
	a, err := c.send(ctx, c.plain())
	if err == nil {
		c.judge(a)
	}
	return a, err
}
