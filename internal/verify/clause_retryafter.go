package verify

import (
	"context"
	"time"
)

// checkRetryAfter compares each Retry-After with Reset and Date, and with what happened: when a
// request was still refused, and when one was admitted.
func checkRetryAfter(clause *check) hooks {
	c := &retryAfterCheck{clause}
	return hooks{
		needsRefusals: true,
		unseen:        Unobservable.because("no 429 had a Retry-After to compare with what happened"),
		answered: func(a *answer) {
			if !a.admitted() && !c.part.isOfSlots(a) {
				c.compareWait(a)
			}
		},
		refused: func(t *tally, a *answer) {
			if !t.enough.IsZero() && a.sent.After(t.enough) {
				c.broken(a, "refused in the same window %s after a 429 with Retry-After %d",
					seconds(a.sent.Sub(t.enoughBy.at)), t.enoughBy.retryAfter)
			}
		},
		rolled: func(r rollover) {
			switch {
			case r.kind == notSeen:
				c.untested(r.why)
			case r.isServed():
				c.judgeTooLong(r)
			}
		},
		again: c.waitAsAsked,
		settle: func(s *suspicion, otherClock string) {
			if otherClock == "" {
				c.settleDefault(s, otherClock)
			}
		},
	}
}

type retryAfterCheck struct{ *check }

// compareWait compares Retry-After with Reset and Date. Whether it was enough is seen later.
func (c *retryAfterCheck) compareWait(a *answer) {
	if a.retryAfter == 0 {
		c.broken(a, "Retry-After is 0 on a refused request: retrying at once cannot be enough")
		return
	}
	if a.retryAfter == absent || a.reset == absent || a.date == absent || a.noTime() {
		return
	}
	until := a.reset - a.date
	off := a.retryAfter - until
	took := a.at.Sub(a.sent) // Date may have been written that much later
	c.clocks.compare(a, off, took)
	switch {
	case off < -1:
		c.suspect(a, "Retry-After is %d, and Reset is %d s after Date", a.retryAfter, until)
	case off > ceilSeconds(took):
		c.suspect(a, "Retry-After is %d, and Reset is %d s after Date: Retry-After is too long", a.retryAfter, until)
	}
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// judgeTooLong wants no 429 to have asked for a wait a second longer than necessary.
func (c *retryAfterCheck) judgeTooLong(r rollover) {
	t, a := r.tally, r.answer
	if t.tooSoonWhy == nil || a.limit == t.limit && a.remaining+c.part.costOf(a.limit) < c.part.whole(a) {
		return
	}
	if a.at.Before(t.tooSoon) {
		c.brokenByCount(t.tooSoonWhy, "Retry-After was %d, and %s later a request was admitted: it is more than a second too long",
			t.tooSoonWhy.retryAfter, seconds(a.at.Sub(t.tooSoonWhy.sent)))
		return
	}
	c.kept("waiting was enough for each of %d 429s, and none was a second too long", t.refused)
}

// waitAsAsked retries as soon as waiting is enough by a 429, if that is surely before the window
// ends.
func (c *retryAfterCheck) waitAsAsked(ctx context.Context, t *tally) error {
	if c.suspected() != nil || c.verdict() == Broken {
		return nil
	}
	if t == nil || t.enough.IsZero() || !t.enough.Before(c.end(t).to.Add(-time.Second/2)) || c.tooFar(t.enough) != nil {
		return nil
	}
	if err := c.wait(ctx, t.enough.Add(soon), "waiting as long as a 429 has asked for"); err != nil {
		return err
	}
	_, err := c.ask(ctx)
	return err
}
