package verify

import (
	"context"
	"fmt"
	"time"
)

const (
	// A sliding window whose Reset is rounded up gives units back up to a second before that Reset.
	// So the pause is longer than a second.
	minPause   = 1250 * time.Millisecond
	maxPause   = 15 * time.Second
	quickPause = 2 * time.Second // if the end of the window is not waited for
)

// A pause is half of a budget that was spent, and one request after a pause.
type pause struct {
	why           gap // why the budget was not spent in two parts; zero: it was
	window        *tally
	before, after *answer // before is nil without an admitted request
}

// spendHalf spends half of what is left, pauses, and sends one more request. It returns how many
// requests it sent.
func (b *budget) spendHalf(ctx context.Context) (sent int, err error) {
	t := b.seen.now()
	length, why := b.pauseFor(t)
	if !why.isZero() {
		b.passPause(pause{why: why})
		return 0, nil
	}
	f := flood{probe: b.probe, max: int(b.seen.last.remaining / b.part.costOf(b.seen.last.limit) / 2), window: t, half: true}
	if err := f.start(ctx); err != nil {
		return f.sent, err
	}
	p := pause{window: t, before: t.lowest()}
	if next := b.seen.now(); next != t || t.refused > 0 || p.before == nil {
		p.why = NeedsMore.because("the window or its budget ended before half of it was spent")
		if next != t && len(next.admitted) > 0 {
			p.after = next.admitted[0].answer
		}
		b.passPause(p)
		return f.sent, nil
	}
	b.latest = time.Now().Add(length + time.Second)
	if err := b.wait(ctx, time.Now().Add(length), "pausing before it spends the rest"); err != nil {
		return f.sent, err
	}
	if p.after, err = b.ask(ctx); err != nil {
		return f.sent, err
	}
	b.passPause(p)
	return f.sent + 1, nil
}

func (b *budget) passPause(p pause) {
	b.checks.each(func(h *hooks) {
		if h.paused != nil {
			h.paused(p)
		}
	})
}

// pauseFor returns how long the pause is if the present window has time for it, and otherwise why
// there is none.
func (b *budget) pauseFor(t *tally) (time.Duration, gap) {
	length, last := b.pauseLength(), b.seen.last
	switch {
	case t == nil:
		return 0, Unobservable.because("the answers do not show which window they describe")
	case t.ends.isZero():
		return 0, noDate
	case b.part.isAmbiguous(t.limit) || b.seen.isLost():
		return 0, Unobservable.because("it is not certain which window the answers describe")
	case length == 0:
		return 0, NeedsMore.because("a window of %v is too short to spend its budget in two parts more than a second apart", b.part.window.Per)
	case last == nil || !last.admitted() || last.reset != t.reset || last.remaining < 2*b.part.costOf(last.limit):
		return 0, Shared.because("too little was left to spend it in two parts")
	case time.Until(b.end(t).to) < length+b.spendTime()+100*time.Millisecond:
		return 0, NeedsMore.because("the window ends too soon to spend its budget in two parts, %s apart", seconds(length))
	}
	return length, gap{}
}

// pauseLength returns how long the pause is, or 0 in a window that is too short for one.
func (b *budget) pauseLength() time.Duration {
	per := b.part.window.Per
	switch {
	case per < 2*time.Second:
		return 0
	case b.run.options.Quick || per > b.run.options.MaxWait:
		return quickPause
	}
	return min(max(per/4, minPause), maxPause)
}

// spendTime returns about how long it takes to use the budget up.
func (b *budget) spendTime() time.Duration {
	if b.seen.last == nil {
		return 0
	}
	each := b.seen.last.at.Sub(b.seen.last.sent)
	return each * time.Duration(b.part.drain/b.workers()+1)
}

// makeRoom waits for the next window if the present one ends too soon to use it up.
func (b *budget) makeRoom(ctx context.Context) error {
	t := b.seen.now()
	if t == nil || t.ends.isZero() || b.run.options.Quick {
		return nil
	}
	end, per := b.end(t), b.part.window.Per
	need := min(10*time.Second, per/3)
	if last := b.seen.last; last != nil {
		each := last.at.Sub(last.sent)
		need = max(need, min(each*time.Duration(b.part.drain/b.workers())*2, per-2*time.Second))
	}
	left := time.Until(end.to)
	if length := b.pauseLength(); !b.halved && length > 0 {
		left = max(time.Until(end.from), 0)
		need = max(need, min(need+length, per-300*time.Millisecond))
	}
	if left >= need || time.Until(end.to) <= 0 || b.tooFar(end.to) != nil {
		return nil
	}
	if err := b.wait(ctx, end.to.Add(soon), fmt.Sprintf("waiting for a whole window, since the present one ends in %s", seconds(left))); err != nil {
		return err
	}
	_, err := b.ask(ctx)
	return err
}
