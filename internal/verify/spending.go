package verify

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// A budget uses main's budget up, in two parts the first time, and passes what it sees to the
// checks.
type budget struct {
	*probe
	halved bool     // a budget was spent in two parts, or that was tried
	before int      // how many of main's answers came before the budget began to be used up
	missed []string // how many units were missing in earlier budgets, and how many of them last
}

// drain uses main's budget up over all connections at once, the first one in two parts.
func (b *budget) drain(ctx context.Context) error {
	b.does("using up %s", rateInWords(b.part.window))
	if t := b.seen.now(); t != nil && t.refused > 0 && len(t.admitted) == 0 {
		return b.passDrained(ctx, &spending{tally: t, why: Shared.because("the budget was spent at the start, and it may not wait for another")})
	}
	b.before = b.seen.numbered
	limit := b.part.drain + b.part.over
	if !b.halved {
		b.halved = true
		before := b.seen.now()
		sent, err := b.spendHalf(ctx)
		if err != nil {
			return err
		}
		limit -= sent
		// What was sent is of a window that ended, or of another budget.
		if b.seen.now() != before && !b.spareUsed && sent <= b.part.again {
			b.spareUsed = true
			limit += sent
		}
	}
	f := flood{probe: b.probe, max: limit, window: b.seen.now()}
	if err := f.start(ctx); err != nil {
		return err
	}
	return b.passDrained(ctx, b.spendingOf(b.seen.now()))
}

// spendCalmly uses main's budget up over all connections at once without being refused, unless
// others use the same budget.
func (b *budget) spendCalmly(ctx context.Context) error {
	b.does("using up %s", rateInWords(b.part.window))
	b.before = b.seen.numbered
	if last := b.seen.last; last != nil && last.admitted() && last.remaining >= b.part.costOf(last.limit) {
		f := flood{probe: b.probe, max: int(last.remaining / b.part.costOf(last.limit)), window: b.seen.now(), half: true}
		return f.start(ctx)
	}
	return nil
}

func (b *budget) passDrained(ctx context.Context, s *spending) error {
	return b.checks.eachStep(func(h *hooks) error {
		if h.drained == nil {
			return nil
		}
		return h.drained(ctx, s)
	})
}

// A spending is one budget of main's that was used up, for the clauses to read.
type spending struct {
	tally *tally // nil: the answers do not identify a window
	why   gap    // why nothing can be judged; zero: it can

	allowed   int64      // requests that the window's limit allows
	unrefused gap        // why no request was refused; zero: one was
	all       []numbered // the window's admitted answers with a Remaining, highest first
	flood     []numbered // those of all that came while nothing but the plain request was sent
	shift     int64      // how much too high Remaining is: it does not count its own request
	missing   int64      // requests that the window counted and main did not send
	tail      int64      // those of missing that came after main's last admitted request
	certain   bool       // missing is not other callers' doing
	lost      int        // requests without an answer
}

// spendingOf returns what main's window shows after it was used up.
func (b *budget) spendingOf(t *tally) *spending {
	if t == nil {
		return &spending{why: Unobservable.because("the answers do not show which window they describe")}
	}
	s := &spending{tally: t, allowed: t.limit / b.part.costOf(t.limit), lost: b.seen.lost}
	if t.refused == 0 {
		s.unrefused = b.whyNotRefused(t)
	}
	s.all = slices.DeleteFunc(slices.Clone(t.admitted), func(a numbered) bool { return a.remaining == absent })
	slices.SortFunc(s.all, func(a, b numbered) int { return int(b.remaining - a.remaining) })
	s.flood = slices.DeleteFunc(slices.Clone(s.all), func(a numbered) bool { return a.number <= b.before })
	if len(s.flood) == 0 {
		return s
	}
	if s.all[0].remaining > t.limit-b.part.costOf(t.limit) {
		s.shift = b.part.costOf(t.limit)
	}
	b.addMissing(s)
	return s
}

// addMissing compares the run of Remaining with the number of answers.
func (b *budget) addMissing(s *spending) {
	cost := b.part.costOf(s.tally.limit)
	first, last := s.flood[0].remaining, s.flood[len(s.flood)-1].remaining
	missing := (first-s.shift)/cost + 1 - int64(len(s.flood)) - int64(s.lost)
	if s.tally.refused > 0 {
		s.tail = (last - s.shift) / cost
	}
	if missing <= 0 || int64(len(s.all)) == s.allowed || !s.judged() {
		return
	}
	s.missing = missing
	// Other callers may take units at any time, but hardly only the last units of two windows.
	seen := fmt.Sprintf("%d of %d", s.missing-s.tail, s.tail)
	repeated := s.missing == s.tail && s.allowed >= 10 && slices.Contains(b.missed, seen)
	b.missed = append(b.missed, seen)
	s.certain = b.who.isAlone(s.tally.limit) || repeated
}

// judged reports whether the budget was used up: a request was refused, or more were admitted than
// the limit allows.
func (s *spending) judged() bool {
	return s.tally != nil && s.why.isZero() && (s.tally.refused > 0 || int64(len(s.tally.admitted)) > s.allowed)
}

// firstZero returns the first admitted answer whose Remaining allows no further request, or nil.
func (p *probe) firstZero(s *spending) *answer {
	if s.tally == nil || !s.why.isZero() {
		return nil
	}
	cost := p.part.costOf(s.tally.limit)
	var zero *answer
	for _, a := range s.tally.admitted {
		if a.remaining >= 0 && a.remaining < cost && (zero == nil || a.at.Before(zero.at)) {
			zero = a.answer
		}
	}
	return zero
}

// whyMissing returns why missing units break nothing.
func (s *spending) whyMissing() gap {
	return Shared.because("%d requests of this window were another caller's or were counted twice: others may use the same budget", s.missing)
}

// butLost mentions requests without an answer.
func (s *spending) butLost() string {
	if s.lost == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d without an answer)", s.lost)
}

func (b *budget) whyNotRefused(t *tally) gap {
	if len(b.seen.tallies) > 1 {
		return NeedsMore.because("its window ended before %d requests were answered, and so did the next one: the deployment or the network is too slow", t.limit)
	}
	return NeedsMore.because("%d requests were planned, and its limit is %d here", b.part.drain+b.part.over, t.limit)
}

// A flood sends main's requests over all connections at once, until one is refused or the limit is
// exceeded.
type flood struct {
	*probe
	max  int
	half bool // only a part of the budget is spent: the flood ends with the window

	mu     sync.Mutex
	window *tally
	sent   int
	stop   bool
	err    error
}

func (f *flood) start(ctx context.Context) error {
	var running sync.WaitGroup
	for range min(f.workers(), f.max) {
		running.Go(func() {
			for f.more() {
				a, err := f.ask(ctx)
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
	if f.stop || f.sent >= f.max {
		return false
	}
	f.sent++
	return true
}

// note stops the flood if the newest window has refused.
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
	t := f.seen.now()
	if t != f.window && f.half {
		f.stop = true
		return
	}
	// The window ended: the spare requests are spent on the next one.
	if t != f.window && f.window != nil && !f.spareUsed {
		f.spareUsed = true
		f.max = f.sent + f.part.again
	}
	f.window = t
	if !a.admitted() && f.seen.hasRefused(t) {
		f.stop = true
	}
}
