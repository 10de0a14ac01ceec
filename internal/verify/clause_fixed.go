package verify

import (
	"context"
	"time"
)

// A budget that is spent in one burst comes back at once however it is counted: in fixed windows,
// in sliding ones, by an expiry that each request renews, or by a token bucket. So the first budget
// is spent in two parts with a pause between them (pause.go). In a fixed window the pause changes
// nothing: Reset does not move, Remaining does not rise, and at Reset the units of the later part
// are back as well.
func checkFixedWindow(c *check) hooks {
	f := &fixedCheck{check: c}
	return hooks{readsCount: true, paused: f.paused, rolled: f.rolled, later: f.later, why: func() gap { return f.why }}
}

type fixedCheck struct {
	*check
	why    gap    // why it was not seen; zero: not known
	window *tally // whose budget was spent in two parts; nil: none
	before int    // requests that the window admitted before the pause
	pause  string
	isLate bool // what was missing at Reset may be the later part
	// Windows at whose Reset the later part was missing, and others may have spent as much.
	matches int
}

func (f *fixedCheck) paused(p pause) {
	if f.why = p.why; !p.why.isZero() {
		if p.after != nil {
			f.judgeMove(p.window, p.before, p.after)
		}
		return
	}
	t, before, a := p.window, p.before, p.after
	after := seconds(a.sent.Sub(before.at))
	switch {
	// A renewed window would keep its count.
	case a.reset != t.reset && a.remaining == a.limit-f.part.costOf(a.limit):
		f.why = NeedsMore.because("a whole budget was left after a pause of %s: the window had ended, or it was another one", after)
	case f.judgeMove(t, before, a):
	case a.reset != t.reset || a.limit != t.limit:
		f.why = NeedsMore.because("the window ended during a pause of %s", after)
	case !a.admitted():
		f.why = Shared.because("nothing was left after a pause of %s: others may use the same budget", after)
	case a.remaining > before.remaining: // others can only take units
		f.broken(a, "Remaining was %d, and %s later it is %d in the same window: units come back before Reset", before.remaining, after, a.remaining)
	default:
		f.window, f.before, f.pause = t, len(t.admitted)-1, after
	}
}

// judgeMove reports whether two answers show that Reset moves: windows that follow one another end
// at least one length apart.
func (f *fixedCheck) judgeMove(t *tally, before, a *answer) bool {
	lengths := f.part.lengthsOf(t.limit)
	// Spans of a calendar are not all as long as their unit.
	if f.part.hasCalendar() || before == nil || a.reset == absent || a.limit != t.limit || a.reset == before.reset || len(lengths) != 1 {
		return false
	}
	per := int64(lengths[0] / time.Second)
	apart := a.reset - before.reset
	// A new window would begin whole.
	notOver := a.at.Before(f.end(t).from) || f.isSure(t.limit) && a.remaining < before.remaining
	if apart >= per-1 && (apart >= per || !notOver) || !notOver && a.date != absent && a.date > before.reset {
		return false
	}
	f.broken(a, "Reset was %d, and %s later it is %d: windows of %d end at least %d s apart", before.reset, seconds(a.sent.Sub(before.at)), a.reset, a.limit, per)
	return true
}

func (f *fixedCheck) rolled(r rollover) {
	switch r.kind {
	case notSeen:
		f.untested(r.why)
	case never:
		f.why = r.why
	case nextRefuses:
		f.isLate = f.window == r.tally
	case served:
		if f.window == r.tally {
			f.judgeLaterPart(r.tally, r.answer, r.missing)
		}
	}
}

// judgeLaterPart judges the units that are missing at the Reset of the window that was spent in two
// parts.
func (f *fixedCheck) judgeLaterPart(t *tally, a *answer, missing int64) {
	later := int64(len(t.admitted) - f.before)
	switch {
	case later == 0:
		f.why = Shared.because("nothing was left after a pause of %s: others may use the same budget", f.pause)
	case missing <= 0:
		f.kept("%d requests, and %d more after a pause of %s; at Reset all units were back", f.before, later, f.pause)
	case !f.isPart(missing, later, int64(len(t.admitted))):
		f.why = Shared.because("%d units were missing at Reset: others may use the same budget", missing)
	case f.isSure(a.limit):
		f.broken(a, "%d requests, and %d more after a pause of %s; at Reset %d units were missing: the later part was not back", f.before, later, f.pause, missing)
	default:
		f.isLate = true
		f.matches++
	}
}

// isPart reports whether what is missing at Reset is what was spent late in the window, or all that
// was spent in it. If spent units lose weight with time, one unit may be back by then.
func (f *fixedCheck) isPart(missing, later, all int64) bool {
	n := missing / f.part.cost
	return n == later || n == later-1 && later > 4 || n == all
}

// later makes sure, for a budget that others may share, that units spent late in a window are
// missing at its Reset: it spends other numbers of units late in the windows that follow. Two
// numbers that match are not chance.
func (f *fixedCheck) later(ctx context.Context) error {
	if !f.isLate || f.verdict() == Broken {
		return nil
	}
	f.why = Shared.because("units that were spent late in a window were missing at its Reset: others may use the same budget")
	for _, n := range []int{5, 8} {
		missing, a, err := f.missingAfter(ctx, n)
		if err != nil || a == nil {
			return err
		}
		if f.matches++; f.matches >= 2 {
			f.broken(a, "%d requests late in a window, and %d units missing at its Reset; in earlier windows, too, as many were missing as were spent late", n, missing)
			return nil
		}
	}
	return nil
}

// missingAfter spends n units late in the present window, and returns how many are missing when the
// next begins. The answer is nil if those are not the ones spent late.
func (f *fixedCheck) missingAfter(ctx context.Context, n int) (missing int64, a *answer, err error) {
	t, err := f.spendLate(ctx, n)
	if err != nil || t == nil {
		return 0, nil, err
	}
	for range 3 {
		if err := f.wait(ctx, f.end(t).to.Add(soon), "waiting for the end of a window that was spent late"); err != nil {
			return 0, nil, err
		}
		if a, err = f.ask(ctx); err != nil || a.reset == t.reset {
			continue
		}
		if !a.admitted() || a.limit != t.limit {
			return 0, nil, nil
		}
		missing = a.limit - f.part.cost - a.remaining
		if !f.isPart(missing, int64(n), int64(len(t.admitted))) {
			return 0, nil, nil
		}
		return missing, a, nil
	}
	return 0, nil, err
}

// spendLate spends n units late in a window. The window is nil if that was not possible.
func (f *fixedCheck) spendLate(ctx context.Context, n int) (t *tally, err error) {
	var first *answer
	pause := min(f.part.window.Per/2, maxPause)
	for range 3 {
		if first, err = f.ask(ctx); err != nil {
			return nil, err
		}
		if t = f.seen.now(); f.tooFar(f.end(t).to) != nil {
			return nil, nil
		}
		if first.admitted() && first.remaining >= int64(n)*f.part.costOf(first.limit) && time.Until(f.end(t).from) > pause+soon {
			break
		}
		if err := f.wait(ctx, f.end(t).to.Add(soon), "waiting for a whole window"); err != nil {
			return nil, err
		}
	}
	if !first.admitted() || t.reset != first.reset {
		return nil, nil
	}
	if err := f.wait(ctx, first.at.Add(pause), "pausing before it spends units late in the window"); err != nil {
		return nil, err
	}
	for range n {
		if a, err := f.ask(ctx); err != nil || !a.admitted() || a.reset != t.reset {
			return nil, err
		}
	}
	return t, nil
}
