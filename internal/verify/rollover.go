package verify

import (
	"context"
	"time"
)

// The end of a spent window is seen once, and several clauses read it: restored, refused-free,
// retry-after and fixed-window.

const (
	// How long before the end of a window a request is sent that should still be refused.
	justBefore = 200 * time.Millisecond
	// How long after the end of a window a request is sent that should be in the next one.
	soon = 20 * time.Millisecond
)

// A rollover is one thing that was seen at the end of a window. There may be several of one end.
type rollover struct {
	kind   rolloverKind
	tally  *tally  // the window that was spent
	answer *answer // shows it; nil: notSeen, never

	why         gap           // notSeen, refusedByOther, never
	end         bracket       // early
	doubt       time.Duration // early: how much earlier the window may have ended
	moved       *answer       // afterMove: the refusal that named another Reset
	later       *answer       // late: the first that was admitted
	polled      int           // charged: requests that were refused
	note        string        // refusedAtOnce
	missing     int64         // served: units that should be there and are not
	allRefusals bool          // served: as many units are missing as requests were refused
}

type rolloverKind uint8

const (
	notSeen       rolloverKind = iota // why is the reason
	early                             // a new window answered before the end of the old one
	afterMove                         // Reset had come, after another Reset had been named
	overdue                           // refused again after Reset
	never                             // refused after Reset until the verifier gave up
	nextRefuses                       // the first answer of the next window is a refusal
	skipped                           // the next window refused, and the one after it admitted
	late                              // the next window refused at first, and admitted later
	refusedAtOnce                     // the next window refused, though it is only this verifier's
	charged                           // what is missing is as much as the next window refused

	// The first answer of the next window, by what it shows.

	refusedByOther // refused by another window
	refusedInPast  // refused with a Reset in the past
	refusedNext    // refused, and others may be the cause
	served         // admitted, and the answer shows how much is missing
	servedUnread   // admitted, without the three fields
	servedByLonger // admitted, and the answer describes a longer window
	servedUnclear  // admitted, and Reset had moved
)

// isServed reports whether the first answer of the next window was admitted.
func (r rollover) isServed() bool { return r.kind >= served }

// An ending watches the end of a spent window.
type ending struct{ *probe }

// pass passes what was seen to the clauses.
func (e *ending) pass(r rollover) {
	e.checks.each(func(h *hooks) {
		if h.rolled != nil {
			h.rolled(r)
		}
	})
}

// watch waits for the end of the spent window, and finds out whether the budget is back then:
// not before, not after, and all of it.
func (e *ending) watch(ctx context.Context) error {
	t := e.seen.now()
	if why := e.whyNotWait(t); !why.isZero() {
		e.pass(rollover{kind: notSeen, tally: t, why: why})
		return nil
	}
	for _, find := range []func(context.Context, *tally) error{e.sharpen, e.sharpenOwn} {
		if err := find(ctx, t); err != nil {
			return err
		}
	}
	end := e.end(t)
	if a := e.seen.last; a.admitted() && a.at.Before(end.from) {
		e.passEarly(t, a, end)
		return nil
	}
	var moved *answer // a refusal that named another Reset before that of t had come
	for _, at := range timesBefore(t, end) {
		if time.Until(at) <= 0 {
			continue
		}
		if err := e.wait(ctx, at, "waiting for its window to end"); err != nil {
			return err
		}
		a, err := e.ask(ctx)
		if err != nil {
			return err
		}
		switch {
		case !a.admitted() && a.reset != t.reset && a.limit == t.limit && !e.part.isAmbiguous(t.limit) && a.at.Before(end.from):
			moved = a
		case a.isAfter(t):
			e.passEarly(t, a, end)
			return nil
		}
	}
	return e.atReset(ctx, t, moved)
}

// timesBefore returns when to send requests that should still be refused.
func timesBefore(t *tally, end bracket) []time.Time {
	times := []time.Time{end.from.Add(-justBefore)}
	if own := t.byOwn.from.Add(-justBefore); !t.byOwn.isZero() && times[0].Sub(own) > justBefore && times[0].Sub(own) < 3*time.Second/2 {
		times = []time.Time{own, times[0]} // by Retry-After it ends a little sooner
	}
	if enough := t.enough.Add(soon); !t.enough.IsZero() && enough.After(times[len(times)-1]) && enough.Before(end.to) {
		times = append(times, enough) // by a 429, waiting this long is enough
	}
	return times
}

func (e *ending) whyNotWait(t *tally) gap {
	switch {
	case t == nil || t.refused == 0:
		return NeedsMore.because("its window ended before it could be waited for")
	case e.run.options.Quick:
		return NeedsMore.because("it takes the end of a window, and none is waited for (quick)")
	case t.ends.isZero():
		return noDate
	case t.firstRefused.noTime():
		return Unobservable.because("Reset is %d, which is not a time that could be waited for", t.reset)
	}
	if err := e.tooFar(e.end(t).to); err != nil {
		return NeedsMore.because("%s", err)
	}
	return gap{}
}

// sharpen finds out, to some hundredths of a second, when the deployment's clock reaches Reset:
// each refused request is sent when the clock's second should change, and halves the doubt.
func (e *ending) sharpen(ctx context.Context, t *tally) error {
	for range 6 {
		if more, err := e.halve(ctx, t, e.end(t)); err != nil || !more {
			return err
		}
	}
	return nil
}

// sharpenOwn is sharpen for Retry-After, if that goes by another clock than Date and is less
// certain.
func (e *ending) sharpenOwn(ctx context.Context, t *tally) error {
	for range 6 {
		if _, _, ok := t.compared(); !ok || t.byOwn.width() < t.ends.width()+sharp/2 {
			return nil
		}
		if more, err := e.halve(ctx, t, t.byOwn); err != nil || !more {
			return err
		}
	}
	return nil
}

// halve halves the doubt about when a window ends. It does nothing if the doubt is small or the end
// is near.
func (e *ending) halve(ctx context.Context, t *tally, end bracket) (more bool, err error) {
	if end.width() < 40*time.Millisecond {
		return false, nil
	}
	middle := end.from.Add(end.width() / 2)
	before := time.Until(middle) - 50*time.Millisecond
	if before < 2*time.Second {
		return false, nil
	}
	if err := e.wait(ctx, middle.Add(-before.Truncate(time.Second)), "measuring the deployment's clock"); err != nil {
		return false, err
	}
	a, err := e.ask(ctx)
	return err == nil && !a.admitted() && a.reset == t.reset, err
}

// isAfter reports whether an answer is of another window than the one that was spent.
func (a *answer) isAfter(t *tally) bool { return a.admitted() || a.reset != t.reset }

// passEarly passes on an answer of a new window that came before the end of the old one.
func (e *ending) passEarly(t *tally, a *answer, end bracket) {
	doubt, trusted := time.Duration(0), e.clocks.trustsDate(t)
	switch {
	case trusted:
	case t.byOwn.isZero() || t.byOwn.torn || end.torn || t.byOwn.from.Add(soon).Before(t.ends.from) || t.ends.to.Add(soon).Before(t.byOwn.from):
		doubt = time.Second // Date may be a second old
	}
	if _, _, ok := t.compared(); ok && t.byOwn.from.Before(end.from) && doubt == 0 && !trusted {
		doubt = min(end.from.Sub(t.byOwn.from), time.Second)
	}
	e.pass(rollover{kind: early, tally: t, answer: a, end: end, doubt: doubt})
	e.passNext(t, a)
}

// atReset asks as soon as Reset has come by the deployment's clock.
func (e *ending) atReset(ctx context.Context, t *tally, moved *answer) error {
	confirmed := 0
	for range 8 {
		end := e.end(t)
		if err := e.wait(ctx, end.to.Add(soon), "waiting for its window to end"); err != nil {
			return err
		}
		a, err := e.ask(ctx)
		if err != nil {
			return err
		}
		if a.isAfter(t) && moved != nil {
			e.pass(rollover{kind: afterMove, tally: t, answer: a, moved: moved})
			return nil
		}
		if a.isAfter(t) {
			return e.follow(ctx, t, a)
		}
		if e.clocks.other(t) == "" && a.date < t.reset || !a.sent.After(end.to) {
			continue // its clock is slower than expected; the window's bracket has changed
		}
		if last := t.latest(end); !e.clocks.trustsDate(t) && !a.sent.After(last) {
			if err := e.wait(ctx, last.Add(soon), "waiting for its window to end"); err != nil {
				return err
			}
			continue
		}
		if confirmed++; confirmed == 1 {
			continue
		}
		e.pass(rollover{kind: overdue, tally: t, answer: a})
		if err := e.wait(ctx, time.Now().Add(time.Second/2), "waiting for a window that should have ended"); err != nil {
			return err
		}
	}
	e.pass(rollover{kind: never, tally: t, why: Unobservable.because("no request was served when its window should have ended")})
	return nil
}

// follow passes on the first answer of the next window, and looks further if that is a refusal,
// too.
func (e *ending) follow(ctx context.Context, t *tally, a *answer) error {
	if a.admitted() || a.reset <= t.reset || a.limit != t.limit {
		e.passNext(t, a)
		return nil
	}
	e.pass(rollover{kind: nextRefuses, tally: t, answer: a})
	certain := e.isSure(a.limit)
	if !certain {
		defer e.passNext(t, a) // unless something better is found
	}
	polled := 1
	for ; polled < 5; polled++ {
		if err := e.wait(ctx, time.Now().Add(300*time.Millisecond), "waiting for a budget that should be back"); err != nil {
			return err
		}
		b, err := e.ask(ctx)
		if err != nil {
			return err
		}
		if b.admitted() && (!certain || b.reset != a.reset) {
			e.pass(rollover{kind: skipped, tally: t, answer: a})
			return nil
		}
		if b.admitted() {
			e.pass(rollover{kind: late, tally: t, answer: a, later: b})
			return nil
		}
	}
	next := e.seen.now()
	if why := e.whyNotWait(next); !why.isZero() {
		if certain {
			e.pass(rollover{kind: refusedAtOnce, tally: t, answer: a})
		}
		return nil
	}
	if err := e.wait(ctx, e.end(next).to.Add(soon), "waiting for one more window, since the next one refused"); err != nil {
		return err
	}
	b, err := e.ask(ctx)
	if err != nil {
		return err
	}
	switch {
	case b.admitted() && b.limit-e.part.costOf(b.limit)-b.remaining == int64(polled)*e.part.costOf(b.limit):
		e.pass(rollover{kind: charged, tally: t, answer: b, polled: polled})
	case certain:
		e.pass(rollover{kind: refusedAtOnce, tally: t, answer: a, note: ", and the budget was not whole in the one after that"})
	}
	return nil
}

// passNext passes on the first answer of the next window.
func (e *ending) passNext(t *tally, a *answer) {
	r := rollover{tally: t, answer: a}
	switch {
	case a.admitted() && !a.complete():
		r.kind = servedUnread
	case a.admitted() && a.limit != t.limit:
		r.kind = servedByLonger
	case a.admitted():
		r.kind = served
		r.missing = e.part.whole(a) - max(e.part.costOf(a.limit), e.step)*e.seen.admittedWith(a) - a.remaining
		r.allRefusals = r.missing == int64(e.seen.refused)*e.part.costOf(a.limit) && !e.seen.isLost()
		if r.missing > 0 && e.seen.resetMoved() != nil {
			r.kind = servedUnclear
		}
	case a.limit != t.limit:
		r.kind = refusedByOther
		r.why = Unobservable.because("refused by another window, of %d, when this one had ended", a.limit)
	case a.reset <= t.reset && a.at.After(e.end(t).to):
		r.kind = refusedInPast
	default:
		r.kind = refusedNext
	}
	e.pass(r)
}
