package verify

import (
	"context"
	"time"
)

// early is how long before the end of a window it is seen that it has not ended yet.
const early = 200 * time.Millisecond

// restored waits for the end of the window that is spent, and looks whether the budget is back then: not before, not after, and whole.
func (d *driver) restored(ctx context.Context) error {
	t := d.now()
	if why := d.whyNotWait(t); !why.isZero() {
		for _, clause := range []string{"restored", "refused-free", "retry-after", "fixed-window"} {
			d.untested(clause, why)
		}
		return nil
	}
	for _, find := range []func(context.Context, *tally) error{d.sharpen, d.sharpenOwn} {
		if err := find(ctx, t); err != nil {
			return err
		}
	}
	end := d.end(t)
	if a := d.last; a.admitted() && a.at.Before(end.from) {
		d.restoredEarly(t, a, end)
		return nil
	}
	times := []time.Time{end.from.Add(-early)}
	if own := t.byOwn.from.Add(-early); !t.byOwn.isZero() && times[0].Sub(own) > early && times[0].Sub(own) < 3*time.Second/2 {
		times = []time.Time{own, times[0]} // Retry-After says that it ends a little sooner
	}
	if enough := t.enough.Add(soon); !t.enough.IsZero() && enough.After(times[len(times)-1]) && enough.Before(end.to) {
		times = append(times, enough) // a 429 has said that waiting so long is enough
	}
	var moved *answer // a refusal that names another Reset, when that of t has not come
	for _, at := range times {
		if time.Until(at) <= 0 {
			continue
		}
		if err := d.wait(ctx, at, "waiting for its window to end"); err != nil {
			return err
		}
		a, err := d.ask(ctx)
		if err != nil {
			return err
		}
		switch {
		case !a.admitted() && a.reset != t.reset && a.limit == t.limit && !d.ambiguous(t.limit) && a.at.Before(end.from):
			moved = a
		case d.isNew(t, a):
			d.restoredEarly(t, a, end)
			return nil
		}
	}
	return d.atReset(ctx, t, moved)
}

// judgeMoved judges what was answered at Reset where another one had been named before.
func (d *driver) judgeMoved(t *tally, moved, a *answer) {
	switch {
	case !a.admitted():
		d.suspect("restored", a, "refused when Reset, %d, had come; it had moved to %d", t.reset, moved.reset)
	case a.date != absent && a.date < moved.reset-1:
		d.suspect("restored", a, "answered %d at %d by its Date, before the Reset that was named last, %d", a.status, a.date, moved.reset)
	}
	d.untested("restored", Unobservable.because("Reset moved"))
	d.untested("refused-free", Unobservable.because("Reset moved, so that it cannot be told which window is which"))
}

func (d *driver) whyNotWait(t *tally) gap {
	switch {
	case t == nil || t.refused == 0:
		return NeedsMore.because("its window ended before it was waited for")
	case d.run.options.Quick:
		return NeedsMore.because("it takes the end of a window, and none is waited for (quick)")
	case t.ends.isZero():
		return noDate
	case t.firstRefused.noTime():
		return Unobservable.because("Reset is %d, which names no time that could be waited for", t.reset)
	}
	if err := d.tooFar(d.end(t).to); err != nil {
		return NeedsMore.because("%s", err)
	}
	return gap{}
}

// sharpen finds out, to some hundredths of a second, when the deployment's clock comes to Reset: each refused request is sent when the
// clock's second should change, and halves the doubt. Where Retry-After goes by another clock than Date, it finds that one out, too.
func (d *driver) sharpen(ctx context.Context, t *tally) error {
	for range 6 {
		if more, err := d.halve(ctx, t, d.end(t)); err != nil || !more {
			return err
		}
	}
	return nil
}

// sharpenOwn is sharpen for what Retry-After says, where that is less certain.
func (d *driver) sharpenOwn(ctx context.Context, t *tally) error {
	for range 6 {
		if _, _, ok := t.compared(); !ok || t.byOwn.width() < t.ends.width()+sharp/2 {
			return nil
		}
		if more, err := d.halve(ctx, t, t.byOwn); err != nil || !more {
			return err
		}
	}
	return nil
}

// halve halves the doubt about when a window ends. There is no more to be done where it is small, or that end is near.
func (d *driver) halve(ctx context.Context, t *tally, end bracket) (more bool, err error) {
	if end.width() < 40*time.Millisecond {
		return false, nil
	}
	middle := end.from.Add(end.width() / 2)
	before := time.Until(middle) - 50*time.Millisecond
	if before < 2*time.Second {
		return false, nil
	}
	if err := d.wait(ctx, middle.Add(-before.Truncate(time.Second)), "finding out what time it is there"); err != nil {
		return false, err
	}
	a, err := d.ask(ctx)
	return err == nil && !a.admitted() && a.reset == t.reset, err
}

// isNew reports whether an answer is of another window than the one that was spent.
func (d *driver) isNew(t *tally, a *answer) bool { return a.admitted() || a.reset != t.reset }

// restoredEarly judges an answer of a new window that was to come only when the old one has ended.
func (d *driver) restoredEarly(t *tally, a *answer, end bracket) {
	doubt := time.Duration(0)
	switch {
	case d.trustsDate(t):
	case t.byOwn.isZero() || t.byOwn.torn || end.torn || t.byOwn.from.Add(soon).Before(t.ends.from) || t.ends.to.Add(soon).Before(t.byOwn.from):
		doubt = time.Second // Date may be a second old
	}
	if _, _, ok := t.compared(); ok && t.byOwn.from.Before(end.from) && doubt == 0 && !d.trustsDate(t) {
		doubt = min(end.from.Sub(t.byOwn.from), time.Second)
	}
	if a.admitted() && a.at.Before(end.from.Add(-doubt)) {
		d.broken("restored", a, "answered %d, Remaining %d, %s at least before Reset, %d", a.status, a.remaining, seconds(end.from.Sub(a.at)), t.reset)
	}
	d.judgeNew(t, a)
}

// judgeTooLong wants no 429 to have asked to wait a second longer than it took.
func (d *driver) judgeTooLong(t *tally, a *answer) {
	if t.least429 == nil || a.limit == t.limit && a.remaining+d.part.cost < d.whole(a) {
		return
	}
	if a.at.Before(t.least) {
		d.broken("retry-after", t.least429, "Retry-After was %d, and %s later a request was admitted: it is more than a second too long",
			t.least429.retryAfter, seconds(a.at.Sub(t.least429.sent)))
		return
	}
	d.kept("retry-after", "waiting it was enough, for each of %d 429s, and none was a second too long", t.refused)
}

// atReset asks as soon as Reset has come by the deployment's clock.
func (d *driver) atReset(ctx context.Context, t *tally, moved *answer) error {
	confirmed := 0
	for range 8 {
		end := d.end(t)
		if err := d.wait(ctx, end.to.Add(soon), "waiting for its window to end"); err != nil {
			return err
		}
		a, err := d.ask(ctx)
		if err != nil {
			return err
		}
		if d.isNew(t, a) && moved != nil {
			d.judgeMoved(t, moved, a)
			return nil
		}
		if d.isNew(t, a) {
			return d.follow(ctx, t, a)
		}
		if d.otherClock(t) == "" && a.date < t.reset || !a.sent.After(end.to) {
			continue // its clock is slower than was thought; count has taken note
		}
		if last := t.last(end); !d.trustsDate(t) && !a.sent.After(last) {
			if err := d.wait(ctx, last.Add(soon), "waiting for its window to end"); err != nil {
				return err
			}
			continue
		}
		if confirmed++; confirmed == 1 {
			continue
		}
		d.broken("restored", a, "refused at %d by its Date, and again so; Reset was %d", a.date, t.reset)
		if err := d.wait(ctx, time.Now().Add(time.Second/2), "waiting for a window that should have ended"); err != nil {
			return err
		}
	}
	d.parts.why = Unobservable.because("it was not served when its window should have ended")
	d.untested("refused-free", Unobservable.because("it was not served when its window should have ended"))
	return nil
}

// follow judges the first answer of the window that follows, and looks longer where that is refused, too.
func (d *driver) follow(ctx context.Context, t *tally, a *answer) error {
	if a.admitted() || a.reset <= t.reset || a.limit != t.limit {
		d.judgeNew(t, a)
		return nil
	}
	d.parts.late = d.parts.window == t
	certain := d.isSure(a.limit)
	if !certain {
		defer d.judgeNew(t, a) // where nothing better is found
	}
	polled := 1
	for ; polled < 5; polled++ {
		if err := d.wait(ctx, time.Now().Add(300*time.Millisecond), "waiting for a budget that should be back"); err != nil {
			return err
		}
		b, err := d.ask(ctx)
		if err != nil {
			return err
		}
		if b.admitted() && (!certain || b.reset != a.reset) {
			d.untested("restored", Shared.because("refused in a window that had just begun, and admitted in the next"))
			return nil
		}
		if b.admitted() {
			d.broken("restored", a, "refused in the window after Reset, %d, and admitted %s later: the budget is not restored at once", t.reset, seconds(b.at.Sub(a.at)))
			return nil
		}
	}
	next := d.now()
	if why := d.whyNotWait(next); !why.isZero() {
		if certain {
			d.broken("restored", a, "refused at once in the window after Reset, %d", t.reset)
		}
		return nil
	}
	if err := d.wait(ctx, d.end(next).to.Add(soon), "waiting for one more window, as it was refused in the next one"); err != nil {
		return err
	}
	b, err := d.ask(ctx)
	if err != nil {
		return err
	}
	if b.admitted() && b.limit-d.part.cost-b.remaining == int64(polled)*d.part.cost {
		d.broken("refused-free", b, "%d requests were refused in one window, and the next began with as many missing", polled)
		return nil
	}
	if certain {
		d.broken("restored", a, "refused at once in the window after Reset, %d, and not whole in the one after that", t.reset)
	}
	return nil
}

// judgeNew judges the first answer of the window that follows.
func (d *driver) judgeNew(t *tally, a *answer) {
	switch {
	case a.admitted():
		d.judgeTooLong(t, a)
		d.judgeWhole(t, a)
	case a.limit != t.limit:
		for _, clause := range []string{"restored", "refused-free"} {
			d.untested(clause, Unobservable.because("refused by another window, of %d, when this one had ended", a.limit))
		}
	case a.reset <= t.reset && a.at.After(d.end(t).to):
		d.broken("restored", a, "refused after Reset, %d, with a Reset before that", t.reset)
	default:
		for _, clause := range []string{"restored", "refused-free"} {
			d.untested(clause, Shared.because("refused in a window that had just begun: others may use the same budget"))
		}
	}
}

// judgeWhole wants the whole budget back, less the request that found it.
func (d *driver) judgeWhole(t *tally, a *answer) {
	if !a.admitted() || !a.complete() {
		return
	}
	if a.limit != t.limit {
		d.judgeLonger(t, a)
		return
	}
	missing := d.whole(a) - max(d.part.cost, d.step)*d.admittedIn(a) - a.remaining
	refusals := int64(d.hammered)
	if missing > 0 && d.isSuspected("reset-constant") {
		d.untested("restored", Unobservable.because("Reset moved within a window, so that which one is restored cannot be told"))
		d.untested("refused-free", Unobservable.because("Reset moved within a window, so that which one begins cannot be told"))
		return
	}
	d.judgeLaterPart(t, a, missing)
	switch {
	case missing <= 0:
		d.kept("restored", "refused just before Reset, served at it with Remaining %d of %d", a.remaining, a.limit)
		d.kept("refused-free", "%d refused requests, and the next window began with Remaining %d of %d%s", refusals, a.remaining, a.limit, d.notSeen())
	case missing == refusals*d.part.cost && !d.isLost():
		d.broken("refused-free", a, "%d requests were refused, and the next window began with %d of %d missing", refusals, missing, a.limit)
	case d.isSure(a.limit):
		d.broken("restored", a, "the window after Reset began with Remaining %d of %d", a.remaining, a.limit)
	default:
		d.untested("restored", Shared.because("served at Reset, with %d of %d missing: others may use the same budget", missing, a.limit))
		d.untested("refused-free", Shared.because("%d of %d were missing in the next window: others may use the same budget", missing, a.limit))
	}
}

// admittedIn returns how many of main's requests were admitted in the window of one of them.
func (d *driver) admittedIn(a *answer) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(1, int64(len(d.tallyOf(a).admitted)))
}

// whole is the budget that an answer speaks of: the one that it says, where the policy has such a limit.
func (d *driver) whole(a *answer) int64 {
	if len(d.lengthsOf(a.limit)) == 0 {
		return d.part.window.Limit
	}
	return a.limit
}

// judgeLonger judges an answer that describes a longer window, as it has less left than the one that is restored.
func (d *driver) judgeLonger(t *tally, a *answer) {
	d.kept("restored", "served at Reset; what the answer describes is the window of %d, which has less left", a.limit)
	var admitted int64
	d.mu.Lock()
	for _, other := range d.tallies {
		admitted += int64(len(other.admitted))
	}
	d.mu.Unlock()
	missing := a.limit - a.remaining - admitted*d.part.cost
	if missing > 0 && d.alone && d.isApart(a.limit) && !d.isLost() {
		d.broken("refused-free", a, "%d requests were admitted and %d refused, and the window of %d has Remaining %d", admitted, d.hammered, a.limit, a.remaining)
		return
	}
	if missing > 0 {
		d.untested("refused-free", Shared.because("%d units of the window of %d are not accounted for: others may use it", missing, a.limit))
		return
	}
	d.kept("refused-free", "%d requests were refused, and the window of %d has Remaining %d after %d that were admitted", d.hammered, a.limit, a.remaining, admitted)
}

func (d *driver) notSeen() string {
	if len(d.part.limiter.Windows) == 1 {
		return ""
	}
	return "; its longer window has more left and is not seen, so that what refusals do to that was not tested"
}

// again uses the restored budget up, where it is small.
func (d *driver) again(ctx context.Context) error {
	if d.part.again == 0 || d.twice || d.run.options.Quick {
		return nil
	}
	d.twice = true
	if err := d.makeRoom(ctx); err != nil {
		return err
	}
	if err := d.drain(ctx); err != nil {
		return err
	}
	return d.tryHasty(ctx)
}

// tryHasty asks again when a 429 has said that waiting so long is enough, if that is surely before the window ends.
func (d *driver) tryHasty(ctx context.Context) error {
	t := d.now()
	if d.isSuspected("retry-after") || d.run.book.verdict("retry-after", d.name) == Broken {
		return nil
	}
	if t == nil || t.enough.IsZero() || !t.enough.Before(d.end(t).to.Add(-time.Second/2)) || d.tooFar(t.enough) != nil {
		return nil
	}
	if err := d.wait(ctx, t.enough.Add(soon), "waiting as long as a 429 has asked for"); err != nil {
		return err
	}
	_, err := d.ask(ctx)
	return err
}
