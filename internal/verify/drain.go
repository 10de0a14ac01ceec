package verify

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// drain uses main's budget up, over many connections at once, and judges what was admitted.
func (d *driver) drain(ctx context.Context) error {
	d.does("using up %s", rateInWords(d.part.window))
	if t := d.now(); t != nil && t.refused > 0 && len(t.admitted) == 0 {
		for _, clause := range []string{"remaining", "admitted"} {
			d.untested(clause, Shared.because("the budget was spent when it began, and it may not wait for another"))
		}
		return nil
	}
	d.flooded = d.counted
	most := d.part.drain + d.part.over
	if !d.parts.tried {
		d.parts.tried = true
		before := d.now()
		sent, err := d.spendFirstPart(ctx)
		if err != nil {
			return err
		}
		most -= sent
		if d.now() != before && !d.twice && sent <= d.part.again { // what was sent is of a window that has ended, or of another budget
			d.twice = true
			most += sent
		}
	}
	f := flood{d: d, most: most, window: d.now()}
	if err := f.run(ctx, d.run.options.Workers); err != nil {
		return err
	}
	t := d.now()
	d.judge(t)
	if t != nil && t.refused == 0 && int64(len(t.admitted)) > t.limit/d.part.cost {
		return d.tryOneConnection(ctx, t)
	}
	return nil
}

// A flood sends main's requests until one is refused, or more than the limit were not.
type flood struct {
	d    *driver
	most int
	part bool // only a part of the budget: it ends with the window

	mu     sync.Mutex
	window *tally
	sent   int
	stop   bool
	err    error
}

func (f *flood) run(ctx context.Context, workers int) error {
	var running sync.WaitGroup
	for range min(workers, f.most) {
		running.Go(func() {
			for f.more() {
				a, err := f.d.ask(ctx)
				f.note(a, err)
			}
		})
	}
	running.Wait()
	return f.err
}

func (f *flood) more() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop || f.sent >= f.most {
		return false
	}
	f.sent++
	return true
}

// note ends the flood when the newest window has refused, or admitted more than it may.
func (f *flood) note(a *answer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.stop = true
		if f.err == nil {
			f.err = err
		}
		return
	}
	t := f.d.now()
	if t != f.window && f.part {
		f.stop = true
		return
	}
	if t != f.window && f.window != nil && !f.d.twice { // it ended in the middle: what was kept for a second time is spent on this one
		f.d.twice = true
		f.most = f.sent + f.d.part.again
	}
	f.window = t
	if !a.admitted() && f.d.hasRefused(t) {
		f.stop = true
	}
}

// hasRefused reports whether a window has refused; where answers do not tell windows apart, one that did.
func (d *driver) hasRefused(t *tally) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t == nil || t.refused > 0
}

// judge judges the window that was used up.
func (d *driver) judge(t *tally) {
	if t == nil {
		for _, clause := range []string{"remaining", "admitted", "reset-constant"} {
			d.untested(clause, Unobservable.because("the answers do not say which window they are of"))
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	admitted := int64(len(t.admitted))
	allowed := t.limit / d.part.cost
	d.judgeAfterZero(t)
	if admitted > allowed {
		d.broken("admitted", t.admitted[admitted-1].answer, "%d requests were admitted in one window of %d", admitted, t.limit)
	}
	if t.refused == 0 {
		d.untested("admitted", d.whyNotRefused(t))
		d.untested("remaining", d.whyNotRefused(t))
		if admitted <= allowed {
			return
		}
	}
	d.judgeRemaining(t, allowed)
	if t.refused > 1 || admitted > 1 {
		d.kept("reset-constant", "%d on all %d answers of the window", t.reset, admitted+int64(t.refused))
	}
}

func (d *driver) whyNotRefused(t *tally) gap {
	switch {
	case len(d.tallies) > 1:
		return NeedsMore.because("its window ended before %d requests were answered, and again in the next: the deployment, or the way to it, is too slow", t.limit)
	}
	return NeedsMore.because("%d requests were planned, and its limit is %d here", d.part.drain+d.part.over, t.limit)
}

// judgeAfterZero wants only 429s after an answer that said that nothing is left.
func (d *driver) judgeAfterZero(t *tally) {
	var zero *answer
	for _, s := range t.admitted {
		if s.remaining >= 0 && s.remaining < d.part.cost && (zero == nil || s.at.Before(zero.at)) {
			zero = s.answer
		}
	}
	if zero == nil {
		return
	}
	for _, s := range t.admitted {
		if s.sent.After(zero.at) {
			d.broken("refused-remaining", s.answer, "answered %d, %s after an answer of the same window that said Remaining: %d",
				s.status, s.sent.Sub(zero.at).Round(time.Microsecond), zero.remaining)
			return
		}
	}
	if t.refused > 0 {
		d.kept("refused-remaining", "0 on every 429, and 429 after %d", zero.remaining)
	}
}

// judgeRemaining wants each number once, from the first down to the last.
func (d *driver) judgeRemaining(t *tally, allowed int64) {
	all := slices.DeleteFunc(slices.Clone(t.admitted), func(s counted) bool { return s.remaining == absent })
	slices.SortFunc(all, func(a, b counted) int { return int(b.remaining - a.remaining) })
	// What went before may have had something in between that takes units, which is for other clauses to judge.
	flood := slices.DeleteFunc(slices.Clone(all), func(s counted) bool { return s.number <= d.flooded })
	if len(flood) == 0 {
		return
	}
	first, last, cost := flood[0].remaining, flood[len(flood)-1].remaining, d.part.cost
	shift := int64(0)
	if highest := all[0].remaining; highest > t.limit-cost {
		d.broken("remaining", all[0].answer, "Remaining is %d of %d on a request that was admitted: it does not count that request", highest, t.limit)
		shift = cost
	}
	for i, s := range all[1:] {
		if s.remaining == all[i].remaining {
			d.broken("remaining", s.answer, "Remaining was %d on two answers of the same window", s.remaining)
		}
	}
	gaps := (first-shift)/cost + 1 - int64(len(flood)) - int64(d.lost)
	tail := (last - shift) / cost
	if t.refused == 0 {
		tail = 0
	}
	if gaps > 0 && int64(len(all)) != allowed {
		d.judgeGaps(t, flood, gaps, tail)
		return
	}
	d.kept("remaining", "from %d down to %d, each once, over %d connections", first, last, d.run.options.Workers)
	if t.refused == 0 {
		return
	}
	if int64(len(all)) == allowed {
		d.kept("admitted", "%d requests, then 429", allowed)
		return
	}
	d.kept("admitted", "%d requests, as many as were left, then 429", len(flood))
}

// judgeGaps judges requests that the window says it counted, and that were not main's.
func (d *driver) judgeGaps(t *tally, samples []counted, gaps, tail int64) {
	inside := gaps - tail
	seen := fmt.Sprintf("%d of %d", inside, tail)
	// Others may take units at any time, but hardly just the last ones of two windows.
	again := inside == 0 && t.limit/d.part.cost >= 10 && slices.Contains(d.oddities, seen)
	d.oddities = append(d.oddities, seen)
	certain := d.isAlone(t.limit) || again
	last := samples[len(samples)-1]
	if inside > 0 && certain {
		d.broken("remaining", last.answer, "Remaining fell from %d to %d with %d requests%s", samples[0].remaining, last.remaining, len(samples), d.excused())
	}
	if t.refused > 0 && certain {
		d.broken("admitted", t.firstRefused, "refused after %d requests, when %d had been left; Remaining had been %d%s",
			len(samples), samples[0].remaining+d.part.cost, last.remaining, d.excused())
	}
	why := Shared.because("%d requests of this window were somebody else's, or were counted twice: others may use the same budget", gaps)
	d.untested("remaining", why)
	d.untested("admitted", why)
}

func (d *driver) excused() string {
	if d.lost == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d whose answers never came)", d.lost)
}

// tryOneConnection uses one connection alone, where more were admitted over several than the limit: each may have a budget of its own.
func (d *driver) tryOneConnection(ctx context.Context, t *tally) error {
	d.twice = true
	if d.run.options.Workers < 2 {
		return nil
	}
	select {
	case <-d.run.wire.lone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { d.run.wire.lone <- struct{}{} }()
	one := d.run.wire.hold(ctx)
	if one == nil {
		return context.Cause(ctx)
	}
	defer d.run.wire.free(one)
	for range d.part.again {
		r := d.plain()
		r.on = one
		a, err := d.send(ctx, r)
		if err != nil {
			return err
		}
		if a.admitted() {
			continue
		}
		d.check(a)
		other, err := d.ask(ctx)
		if err != nil {
			return err
		}
		if again, err := d.send(ctx, r); err != nil || !other.admitted() || again.admitted() || other.reset != t.reset {
			return err
		}
		d.broken("shared", other, "admitted on one connection while refused on another, before and after")
		return nil
	}
	return nil
}
