package verify

import (
	"context"
	"time"
)

// A budget that is spent in one burst comes back at once however it is counted: in fixed windows,
// in sliding ones, by an expiry that each request renews, or by a token bucket. So the first budget
// is spent in two parts with a pause between them. A fixed window shows nothing of the pause: Reset
// stays, Remaining does not rise, and at Reset the units of the later part are back as well.

const (
	// A sliding window whose Reset is rounded up gives units back up to a second before that Reset.
	// So the pause is longer than that.
	leastPause = 1250 * time.Millisecond
	mostPause  = 15 * time.Second
	quickPause = 2 * time.Second // if the end of the window is not waited for
)

// parts is how the budget was spent in two parts.
type parts struct {
	tried  bool
	why    gap    // why that was not possible, or not seen to the end
	window *tally // whose budget it was; nil: it was none
	before int    // requests that were admitted in it before the pause
	pause  string
	late   bool // what was seen at its Reset may be the later part, missing
	doubt  int  // windows at whose Reset just the later part was missing, and others may have spent as much
}

// pauseFor returns how long the pause is if the present window leaves room for it, and otherwise
// why there is none.
func (d *driver) pauseFor(t *tally) (time.Duration, gap) {
	per, pause := d.part.window.Per, d.pause()
	switch {
	case t == nil:
		return 0, Unobservable.because("the answers do not say which window they are of")
	case t.ends.isZero():
		return 0, noDate
	case d.ambiguous(t.limit) || d.isLost():
		return 0, Unobservable.because("the answers do not tell which window they are of")
	case pause == 0:
		return 0, NeedsMore.because("a window of %v is too short to spend its budget in two parts more than a second apart", per)
	case d.newest() != t || d.last == nil || !d.last.admitted() || d.last.reset != t.reset || d.last.remaining < 2*d.part.cost:
		return 0, Shared.because("too little was left to spend it in two parts")
	case time.Until(d.end(t).to) < pause+d.spendTime()+100*time.Millisecond:
		return 0, NeedsMore.because("the window ends too soon to spend its budget in two parts, %s apart", seconds(pause))
	}
	return pause, gap{}
}

// pause returns how long the pause is; 0: the window is too short for one.
func (d *driver) pause() time.Duration {
	per := d.part.window.Per
	switch {
	case per < 2*time.Second:
		return 0
	case d.run.options.Quick || per > d.run.options.MaxWait:
		return quickPause
	}
	return min(max(per/4, leastPause), mostPause)
}

// spendTime returns about how long it takes to use the budget up.
func (d *driver) spendTime() time.Duration {
	if d.last == nil {
		return 0
	}
	each := d.last.at.Sub(d.last.sent)
	return each * time.Duration(d.part.drain/d.run.options.Workers+1)
}

// spendFirstPart spends half of what is left, and pauses. It returns how many requests it sent.
func (d *driver) spendFirstPart(ctx context.Context) (sent int, err error) {
	t := d.now()
	pause, why := d.pauseFor(t)
	if d.parts.why = why; !why.isZero() {
		return 0, nil
	}
	f := flood{d: d, most: int(d.last.remaining / d.part.cost / 2), window: t, part: true}
	if err := f.run(ctx, d.run.options.Workers); err != nil {
		return f.sent, err
	}
	before := d.lowest(t)
	if next := d.now(); next != t || t.refused > 0 || before == nil {
		d.parts.why = NeedsMore.because("the window ended, or its budget, before half of it was spent")
		if next != t && len(next.admitted) > 0 {
			d.judgeMove(t, before, next.admitted[0].answer)
		}
		return f.sent, nil
	}
	d.latest = time.Now().Add(pause + time.Second)
	if err := d.wait(ctx, time.Now().Add(pause), "pausing before it spends the rest"); err != nil {
		return f.sent, err
	}
	a, err := d.ask(ctx)
	if err != nil {
		return f.sent, err
	}
	d.judgePause(t, before, a)
	return f.sent + 1, nil
}

// lowest returns the answer of a window that left the least; nil: none was admitted.
func (d *driver) lowest(t *tally) *answer {
	var low *answer
	for _, s := range t.admitted {
		if s.complete() && (low == nil || s.remaining < low.remaining) {
			low = s.answer
		}
	}
	return low
}

// judgePause judges the first answer after the pause.
func (d *driver) judgePause(t *tally, before, a *answer) {
	after := seconds(a.sent.Sub(before.at))
	switch {
	case a.reset != t.reset && a.remaining == a.limit-d.part.cost: // a renewed window would keep its count
		d.parts.why = NeedsMore.because("a whole budget was there after a pause of %s: its window had ended, or it was another one", after)
	case d.judgeMove(t, before, a):
	case a.reset != t.reset || a.limit != t.limit:
		d.parts.why = NeedsMore.because("the window ended during a pause of %s", after)
	case !a.admitted():
		d.parts.why = Shared.because("nothing was left after a pause of %s: others may use the same budget", after)
	case a.remaining > before.remaining: // others can only take units
		d.broken("fixed-window", a, "Remaining was %d, and %d on an answer %s later, in the same window: units come back before Reset", before.remaining, a.remaining, after)
	default:
		d.parts.window, d.parts.before, d.parts.pause = t, len(t.admitted)-1, after
	}
}

// judgeMove reports whether two answers show that Reset moves: windows that follow one another end
// at least one length apart.
func (d *driver) judgeMove(t *tally, before, a *answer) bool {
	if before == nil || a.reset == absent || a.limit != t.limit || a.reset == before.reset || len(d.lengthsOf(t.limit)) != 1 {
		return false
	}
	per := int64(d.lengthsOf(t.limit)[0] / time.Second)
	apart := a.reset - before.reset
	notOver := a.at.Before(d.end(t).from) || d.isSure(t.limit) && a.remaining < before.remaining // a new window would begin whole
	if apart >= per-1 && (apart >= per || !notOver) || !notOver && a.date != absent && a.date > before.reset {
		return false
	}
	d.broken("fixed-window", a, "Reset was %d, and %d on an answer %s later: windows of %d end %d s apart or more", before.reset, a.reset, seconds(a.sent.Sub(before.at)), a.limit, per)
	return true
}

// judgeLaterPart judges what is missing at the Reset of the window that was spent in two parts, in
// units.
func (d *driver) judgeLaterPart(t *tally, a *answer, missing int64) {
	if d.parts.window != t {
		return
	}
	later := int64(len(t.admitted) - d.parts.before)
	switch {
	case later == 0:
		d.parts.why = Shared.because("nothing was left after a pause of %s: others may use the same budget", d.parts.pause)
	case missing <= 0:
		d.kept("fixed-window", "%d requests, and %d more after a pause of %s; at Reset all was back", d.parts.before, later, d.parts.pause)
	case !d.isPart(missing, later, int64(len(t.admitted))):
		d.parts.why = Shared.because("%d units were missing at Reset: others may use the same budget", missing)
	case d.isSure(a.limit):
		d.broken("fixed-window", a, "%d requests, and %d more after a pause of %s; at Reset %d units were missing: the later part was not back", d.parts.before, later, d.parts.pause, missing)
	default:
		d.parts.late = true
		d.parts.doubt++
	}
}

// isPart reports whether what is missing at Reset is what was spent late in the window, or all that
// was spent in it. What weighs less and less with time may have lost one unit by then.
func (d *driver) isPart(missing, later, all int64) bool {
	n := missing / d.part.cost
	return n == later || n == later-1 && later > 4 || n == all
}

// confirmMoving makes sure, for a budget that others may share, that units which were spent late in
// a window are missing at its Reset: it spends other numbers of them in the windows that follow.
// Two numbers that fit are no chance.
func (d *driver) confirmMoving(ctx context.Context) error {
	if !d.parts.late || d.run.book.verdict("fixed-window", d.name) == Broken {
		return nil
	}
	d.parts.why = Shared.because("units that were spent late in a window were missing at its Reset: others may use the same budget")
	for _, late := range []int{5, 8} {
		missing, a, err := d.missingAfter(ctx, late)
		if err != nil || a == nil {
			return err
		}
		if d.parts.doubt++; d.parts.doubt >= 2 {
			d.broken("fixed-window", a, "%d requests late in a window, and at its Reset %d units were missing; so in windows before, each time as many as were spent late", late, missing)
			return nil
		}
	}
	return nil
}

// missingAfter spends units late in the present window, and returns how many are missing when the
// next begins. The answer is nil if they are not just those.
func (d *driver) missingAfter(ctx context.Context, late int) (missing int64, a *answer, err error) {
	var first *answer
	var t *tally
	pause := min(d.part.window.Per/2, mostPause)
	for range 3 {
		if first, err = d.ask(ctx); err != nil {
			return 0, nil, err
		}
		if t = d.now(); d.tooFar(d.end(t).to) != nil {
			return 0, nil, nil
		}
		if first.admitted() && first.remaining >= int64(late)*d.part.cost && time.Until(d.end(t).from) > pause+soon {
			break
		}
		if err := d.wait(ctx, d.end(t).to.Add(soon), "waiting for a whole window"); err != nil {
			return 0, nil, err
		}
	}
	if !first.admitted() || t.reset != first.reset {
		return 0, nil, nil
	}
	if err := d.wait(ctx, first.at.Add(pause), "pausing before it spends units late in the window"); err != nil {
		return 0, nil, err
	}
	for range late {
		if a, err = d.ask(ctx); err != nil || !a.admitted() || a.reset != t.reset {
			return 0, nil, err
		}
	}
	for range 3 {
		if err := d.wait(ctx, d.end(t).to.Add(soon), "waiting for the end of a window that was spent late"); err != nil {
			return 0, nil, err
		}
		if a, err = d.ask(ctx); err != nil || a.reset == t.reset {
			continue
		}
		if !a.admitted() || a.limit != t.limit {
			return 0, nil, nil
		}
		missing = a.limit - d.part.cost - a.remaining
		if !d.isPart(missing, int64(late), int64(len(t.admitted))) {
			return 0, nil, nil
		}
		return missing, a, nil
	}
	return 0, nil, err
}
