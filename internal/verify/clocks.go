package verify

import (
	"fmt"
	"sync"
	"time"
)

// The end of a window is read from three clocks: Date, which Reset is compared with; Retry-After,
// which counts elapsed time and needs no clock; and the verifier's own. Each of them may be wrong.
// If two agree, the third is wrong: if Date agrees with the verifier's clock, Reset is wrong, and
// if Retry-After agrees with the verifier's clock and with Reset, Date is wrong.
//
// Most judgements about time go by Date. It need not be the clock that decides: a proxy may write
// its own Date, or a cached one. So what Date alone contradicts is a suspicion until Date has been
// compared with Retry-After.

const (
	agrees = 250 * time.Millisecond // how far clocks that agree may differ
	// How far clocks that disagree differ at least: Reset is wrong by whole seconds.
	apart = 900 * time.Millisecond

	usualDoubt = 1 // seconds that Date and Retry-After differ by if they are of one clock
	usualSkew  = 5 // seconds that the clock of a well-kept machine may be off

	// Brackets this narrow distinguish clocks that differ by a fraction of a second.
	sharp = 100 * time.Millisecond
)

// Clocks compare the clocks. They are safe for concurrent use.
type clocks struct {
	mu sync.Mutex

	compared bool
	min, max int64 // how much Retry-After is more than Reset - Date
	local    int64 // how far Date was ahead of the verifier's clock in the last 429
	date     lead  // of Date, ahead of the verifier's clock
}

// hear notes an answer's Date: it was written while the request was under way.
func (c *clocks) hear(a *answer) {
	if a.date == absent {
		return
	}
	second := time.Unix(a.date, 0)
	l := lead{seen: true, from: second.Sub(a.at.Round(0)), to: second.Add(time.Second).Sub(a.sent.Round(0))}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.date = c.date.narrow(l)
}

// compare notes how much more a 429's Retry-After is than Reset - Date.
func (c *clocks) compare(a *answer, off int64, took time.Duration) {
	if off > 0 {
		off = max(0, off-int64(took/time.Second))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.compared {
		c.min, c.max = off, off
	}
	c.compared = true
	c.min, c.max = min(c.min, off), max(c.max, off)
	c.local = a.date - a.at.Unix()
}

// other returns why Date is not of the clock that decides; "" means that it is. t is a window that
// refused, and shows whether Retry-After counted down.
func (c *clocks) other(t *tally) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.differs() {
		return "Date does not come from the clock that decides: by Retry-After the window ends a fraction of a second earlier or later than by Date"
	}
	if !c.compared || c.min >= -usualDoubt && c.max <= usualDoubt {
		return ""
	}
	if t == nil || t.byOwn.torn || t.byOwn.isZero() {
		return "" // Retry-After does not count down
	}
	if c.resetIsWrong(t) {
		return ""
	}
	far := max(-c.min, c.max) > usualSkew
	if far && -usualSkew <= c.local && c.local <= usualSkew {
		return "" // Date agrees with the verifier's clock, so Reset is wrong
	}
	return fmt.Sprintf("Date does not come from the clock that decides: Date and Retry-After of the same answers differ by up to %d s", max(-c.min, c.max))
}

// resetIsWrong reports whether Date and the verifier's clock agree, and Retry-After contradicts
// Reset. It is called with the lock held.
func (c *clocks) resetIsWrong(t *tally) bool { return c.date.mayBeNone() && t.deciderLead().isSome() }

// trustsDate reports whether Reset is wrong if Date and Retry-After differ.
func (c *clocks) trustsDate(t *tally) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resetIsWrong(t)
}

// dateIsWrong reports whether Retry-After and the verifier's clock agree with Reset, and Date does
// not.
func (c *clocks) dateIsWrong(t *tally) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date.isSome() && t.deciderLead().mayBeNone()
}

// dateLead returns how far Date is ahead of the verifier's clock.
func (c *clocks) dateLead() lead {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.date
}

// deciderLead returns how far the clock that decides is ahead of the verifier's clock if Reset is
// right: Reset comes when Retry-After is over.
func (t *tally) deciderLead() lead {
	if t == nil || t.byOwn.isZero() || t.byOwn.torn {
		return lead{}
	}
	reset := time.Unix(t.reset, 0)
	return lead{seen: true, from: reset.Sub(t.byOwn.to.Round(0)), to: reset.Sub(t.byOwn.from.Round(0))}
}

// compared returns how much later a window ends by Retry-After than by Date, at least and at most.
// It is not ok if one of them is missing or wrong, or if they differ by seconds.
func (t *tally) compared() (low, high time.Duration, ok bool) {
	if t == nil || t.byOwn.isZero() || t.byOwn.torn || t.ends.isZero() || t.ends.torn {
		return 0, 0, false
	}
	low, high = t.byOwn.from.Sub(t.ends.to), t.byOwn.to.Sub(t.ends.from)
	return low, high, high > -2*time.Second && low < 2*time.Second
}

// differs reports whether Date is off by a fraction of a second. A wrong Retry-After is wrong by
// whole seconds.
func (t *tally) differs() bool {
	low, high, ok := t.compared()
	if !ok || high-low > 2*sharp {
		return false
	}
	within := func(a, b time.Duration) bool { return low > a+soon && high < b-soon }
	return within(-2*time.Second, -time.Second) || within(-time.Second, 0) || within(0, time.Second) || within(time.Second, 2*time.Second)
}

// latest returns when a window has certainly ended: by Date, which may be a little off, or by
// Retry-After.
func (t *tally) latest(end bracket) time.Time {
	if _, _, ok := t.compared(); !ok || !t.byOwn.to.After(end.to) {
		return end.to
	}
	return t.byOwn.to
}

// noteClocks notes a clock that differs from the others by more than the clocks of well-kept
// machines.
func (p *probe) noteClocks(t *tally) {
	date, decider := p.clocks.dateLead(), t.deciderLead()
	const far = usualSkew * time.Second
	switch {
	case !date.seen || date.torn || date.from <= far && date.to >= -far:
	case p.clocks.dateIsWrong(t):
		p.run.remark("Date is suspicious: it is %s this machine's clock, which agrees with Retry-After and Reset; a caller that subtracts Date from Reset waits for the wrong time", date)
	case !decider.seen || decider.torn:
		p.run.remark("Date is suspicious, or this machine's clock is: Date is %s this machine's clock, and no Retry-After shows which is right", date)
	case date.from <= decider.to+apart && decider.from <= date.to+apart:
		p.run.remark("this machine's clock is suspicious: Date is %s it, and Retry-After agrees with Date; Reset was compared with Date", date)
	default:
		p.run.remark("Date is suspicious: it is %s this machine's clock, and Retry-After agrees with neither", date)
	}
}
