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
	d.does("using up %d per %v", d.part.window.Limit, d.part.window.Per)
	if t := d.now(); t != nil && t.refused > 0 && len(t.admitted) == 0 {
		for _, clause := range []string{"remaining", "admitted"} {
			d.untested(clause, "the budget was spent when it began, and it may not wait for another")
		}
		return nil
	}
	f := flood{d: d, most: d.part.drain + d.part.over, window: d.now()}
	if err := f.run(ctx, d.run.options.Workers); err != nil {
		return err
	}
	d.judge(d.now())
	return nil
}

// A flood sends main's requests until one is refused, or more than the limit were not.
type flood struct {
	d    *driver
	most int

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
	if t != f.window && f.window != nil && !f.d.twice { // it ended in the middle: what was kept for a second time is spent on this one
		f.d.twice = true
		f.most = f.sent + f.d.part.again
	}
	f.window = t
	if !a.admitted() && (t == nil || t.refused > 0) {
		f.stop = true
	}
}

// judge judges the window that was used up.
func (d *driver) judge(t *tally) {
	if t == nil {
		for _, clause := range []string{"remaining", "admitted", "reset-constant"} {
			d.untested(clause, "the answers do not say which window they are of")
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
		d.untested("admitted", "%s", d.whyNotRefused(t))
		d.untested("remaining", "%s", d.whyNotRefused(t))
		if admitted <= allowed {
			return
		}
	}
	d.judgeRemaining(t, allowed)
	if t.refused > 1 || admitted > 1 {
		d.kept("reset-constant", "%d on all %d answers of the window", t.reset, admitted+int64(t.refused))
	}
}

func (d *driver) whyNotRefused(t *tally) string {
	switch {
	case len(d.part.limiter.Exempt) > 0:
		return "nothing was refused: this caller may be exempt"
	case len(d.tallies) > 1:
		return fmt.Sprintf("its window ended before %d requests were answered, and again in the next: the deployment, or the way to it, is too slow", t.limit)
	}
	return fmt.Sprintf("%d requests were planned, and its limit is %d here", d.part.drain+d.part.over, t.limit)
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
	samples := slices.Clone(t.admitted)
	samples = slices.DeleteFunc(samples, func(s counted) bool { return s.remaining == absent })
	if len(samples) == 0 {
		return
	}
	slices.SortFunc(samples, func(a, b counted) int { return int(b.remaining - a.remaining) })
	first, last, cost := samples[0].remaining, samples[len(samples)-1].remaining, d.part.cost
	if first > t.limit-cost {
		d.broken("remaining", samples[0].answer, "Remaining is %d of %d on a request that was admitted: it does not count that request", first, t.limit)
		first = t.limit - cost
	}
	for i, s := range samples[1:] {
		if s.remaining == samples[i].remaining {
			d.broken("remaining", s.answer, "Remaining was %d on two answers of the same window", s.remaining)
		}
	}
	gaps := first/cost + 1 - int64(len(samples)) - int64(t.lost)
	tail := last / cost
	if t.refused == 0 {
		tail = 0
	}
	switch {
	case gaps <= 0 || int64(len(samples)) == allowed:
		d.kept("remaining", "from %d down to %d, each once, over %d connections", first, last, d.run.options.Workers)
		if t.refused > 0 {
			d.kept("admitted", "%d requests%s, then 429", len(samples), ofThose(first, t.limit, cost))
		}
	default:
		d.judgeGaps(t, samples, gaps, tail)
	}
}

func ofThose(first, limit, cost int64) string {
	if first == limit-cost {
		return ""
	}
	return fmt.Sprintf(" of the %d that were left", first/cost+1)
}

// judgeGaps judges requests that the window says it counted, and that were not main's.
func (d *driver) judgeGaps(t *tally, samples []counted, gaps, tail int64) {
	inside := gaps - tail
	even := inside > 0 && evenly(samples)
	seen := fmt.Sprintf("%d of %d", inside, tail)
	again := slices.Contains(d.oddities, seen)
	d.oddities = append(d.oddities, seen)
	last := samples[len(samples)-1]
	if inside > 0 && (d.alone || even || again) {
		d.broken("remaining", last.answer, "Remaining fell from %d to %d with %d requests%s", samples[0].remaining, last.remaining, len(samples), excused(t))
	}
	if tail > 0 && (d.alone || again) {
		d.broken("admitted", t.firstRefused, "refused when Remaining had been %d, after %d of %d requests%s", last.remaining, len(samples), t.limit/d.part.cost, excused(t))
	}
	why := fmt.Sprintf("%d requests of this window were somebody else's, or were counted twice: others may use the same budget", gaps)
	d.untested("remaining", "%s", why)
	d.untested("admitted", "%s", why)
}

func excused(t *tally) string {
	if t.lost == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d whose answers never came)", t.lost)
}

// evenly reports whether each of the samples, which are sorted, is as far from the next: then it is the limiter that counts so, since
// others do not come so regularly.
func evenly(samples []counted) bool {
	if len(samples) < 4 {
		return false
	}
	step := samples[0].remaining - samples[1].remaining
	for i, s := range samples[1:] {
		if samples[i].remaining-s.remaining != step {
			return false
		}
	}
	return step > 0
}
