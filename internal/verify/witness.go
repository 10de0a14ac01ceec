package verify

import (
	"fmt"
	"time"
)

// Three clocks tell when a window ends: Date, which Reset is held against; Retry-After, which
// counts elapsed time and needs no clock; and the verifier's own. Any of them may be wrong. If two
// agree, the third is: Date that agrees with the verifier's clock leaves Reset, and Retry-After
// that agrees with the verifier's clock and with Reset leaves Date.

const (
	agrees = 250 * time.Millisecond // by how much clocks that agree may differ
	apart  = 900 * time.Millisecond // by how much at least clocks differ that do not: Reset is wrong by whole seconds
)

// A lead is by how much one clock is ahead of another: by from at least, by to at most.
type lead struct {
	seen, torn bool // torn: what was heard of it cannot all be true
	from, to   time.Duration
}

// narrow returns what both leads say.
func (l lead) narrow(with lead) lead {
	if !l.seen {
		return with
	}
	l.from, l.to = max(l.from, with.from), min(l.to, with.to)
	l.torn = l.torn || with.torn || l.from > l.to
	return l
}

// none reports whether the clocks may show the same.
func (l lead) none() bool { return l.seen && !l.torn && l.from <= agrees && l.to >= -agrees }

// some reports whether the clocks surely do not show the same.
func (l lead) some() bool { return l.seen && !l.torn && (l.from >= apart || l.to <= -apart) }

// String says in whole seconds who is ahead.
func (l lead) String() string {
	middle := (l.from + (l.to-l.from)/2).Round(time.Second)
	if middle < 0 {
		return fmt.Sprintf("%v behind", -middle)
	}
	return fmt.Sprintf("%v ahead of", middle)
}

// dateLead returns by how much Date is ahead of the verifier's clock, as one answer tells: Date was
// written while the request was under way.
func (a *answer) dateLead() lead {
	second := time.Unix(a.date, 0)
	return lead{seen: true, from: second.Sub(a.at.Round(0)), to: second.Add(time.Second).Sub(a.sent.Round(0))}
}

// hearDate takes note of an answer's Date.
func (d *driver) hearDate(a *answer) {
	if a.date == absent {
		return
	}
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	d.suspicions.date = d.suspicions.date.narrow(a.dateLead())
}

// deciderLead returns by how much the clock that decides is ahead of the verifier's, if Reset is
// right: Reset comes when Retry-After is over.
func (t *tally) deciderLead() lead {
	if t == nil || t.byOwn.isZero() || t.byOwn.torn {
		return lead{}
	}
	reset := time.Unix(t.reset, 0)
	return lead{seen: true, from: reset.Sub(t.byOwn.to.Round(0)), to: reset.Sub(t.byOwn.from.Round(0))}
}

// resetIsWrong reports whether Date and the verifier's clock agree, and Retry-After says that Reset
// is another time than it should be. It is called with the suspicions locked.
func (d *driver) resetIsWrong(t *tally) bool {
	return d.suspicions.date.none() && t.deciderLead().some()
}

// dateIsWrong reports whether Retry-After and the verifier's clock agree about Reset, and Date is
// off. It is called with the suspicions locked.
func (d *driver) dateIsWrong(t *tally) bool {
	return d.suspicions.date.some() && t.deciderLead().none()
}

// trustsDate reports whether Reset is wrong where Date and Retry-After differ.
func (d *driver) trustsDate(t *tally) bool {
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	return d.resetIsWrong(t)
}

// noteClocks names a clock that differs from the others by more than clocks of well-kept machines
// do. It is called with the suspicions locked.
func (d *driver) noteClocks(t *tally) {
	date, decider := d.suspicions.date, t.deciderLead()
	const far = usualSkew * time.Second
	switch {
	case !date.seen || date.torn || date.from <= far && date.to >= -far:
	case d.dateIsWrong(t):
		d.run.remark("Date is suspicious: it is %s this machine's clock, with which Retry-After and Reset agree; a caller that subtracts Date from Reset waits wrongly", date)
	case !decider.seen || decider.torn:
		d.run.remark("Date is suspicious, or this machine's clock is: it is %s this machine's clock, and no Retry-After tells which is right", date)
	case date.from <= decider.to+apart && decider.from <= date.to+apart:
		d.run.remark("this machine's clock is suspicious: Date is %s it, and Retry-After agrees with Date; Reset was held against Date", date)
	default:
		d.run.remark("Date is suspicious: it is %s this machine's clock, and Retry-After agrees with neither", date)
	}
}

// checkOwnWindow holds Reset against the verifier's clock, for when Date is found to be wrong.
// longest is that of the windows that it may be of.
func (d *driver) checkOwnWindow(a *answer, longest time.Duration) {
	reset := time.Unix(a.reset, 0)
	text := ""
	switch {
	case a.sent.Round(0).Sub(reset) > time.Second:
		text = fmt.Sprintf("Reset is %d, %s before the request was sent, by the verifier's clock", a.reset, seconds(a.sent.Round(0).Sub(reset)))
	case reset.Sub(a.at.Round(0)) > longest+time.Second:
		text = fmt.Sprintf("Reset is %d, %s after the answer came, by the verifier's clock, and the window of %d is %v long", a.reset, seconds(reset.Sub(a.at.Round(0))), a.limit, longest)
	default:
		return
	}
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	if d.suspicions.ownWindow == nil {
		d.suspicions.ownWindow = &suspicion{shows: a, text: text}
	}
}

// settleByOwn judges by the verifier's clock what was suspected by a Date that is wrong. It is
// called with the suspicions locked.
func (d *driver) settleByOwn() {
	if s := d.suspicions.ownWindow; s != nil {
		d.broken("window", s.shows, "%s", s.text)
	} else {
		d.kept("window", "Reset was ahead of the verifier's clock, by no more than its window is long; Date is %s that clock", d.suspicions.date)
	}
	if s, ok := d.suspicions.by["reset-constant"]; ok && s.shows.at.Unix() <= s.reset-2 {
		d.broken("reset-constant", s.shows, "%s; and so by the verifier's clock", s.text)
	}
}
