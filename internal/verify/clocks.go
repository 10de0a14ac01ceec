package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Most judgements about time go by Date. It need not be of the clock that decides: a proxy may write its own, or one that it formatted a
// while ago. Then Retry-After tells: it comes from the clock that decides, and needs no other. Whatever Date alone speaks against is
// kept as a suspicion until the two could be compared.

// A suspicion is what is broken if Date is right.
type suspicion struct {
	shows *answer
	text  string
	reset int64 // of reset-constant: the Reset that had been said before
}

// The doubts that a clock may be in before it is another one, and how far a clock may be off on a machine that is well kept.
const (
	usualDoubt = 1 // second
	usualSkew  = 5 // seconds
)

// clocks is how Date and Retry-After of the same answers compare.
type clocks struct {
	seen        bool
	least, most int64 // by how much Retry-After is more than Reset - Date
	local       int64 // by how much Date was ahead of the verifier's clock, in the last
}

// suspect notes what is broken if Date is right. The first that shows it stays.
func (d *driver) suspect(clause string, a *answer, format string, args ...any) {
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	if d.suspicions.by == nil {
		d.suspicions.by = make(map[string]suspicion)
	}
	if _, ok := d.suspicions.by[clause]; !ok {
		d.suspicions.by[clause] = suspicion{shows: a, text: fmt.Sprintf(format, args...)}
	}
}

// isSuspected reports whether a clause is broken if Date is right.
func (d *driver) isSuspected(clause string) bool {
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	_, ok := d.suspicions.by[clause]
	return ok
}

func (d *driver) compareClocks(a *answer, off int64, took time.Duration) {
	if off > 0 {
		off = max(0, off-int64(took/time.Second))
	}
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	c := &d.suspicions.clocks
	if !c.seen {
		c.least, c.most = off, off
	}
	c.seen = true
	c.least, c.most = min(c.least, off), max(c.most, off)
	c.local = a.date - a.at.Unix()
}

// otherClock says why Date cannot be taken for the clock that decides; empty: it can. t is a window that was refused in, and tells whether
// Retry-After counted down as time passed.
func (d *driver) otherClock(t *tally) string {
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	if t.differ() {
		return "Date is not of the clock that decides: by Retry-After the window ends a fraction of a second earlier or later than by Date"
	}
	c := d.suspicions.clocks
	if !c.seen || c.least >= -usualDoubt && c.most <= usualDoubt {
		return ""
	}
	if t == nil || t.byOwn.torn || t.byOwn.isZero() {
		return "" // Retry-After is no clock
	}
	if d.resetIsWrong(t) {
		return ""
	}
	far := max(-c.least, c.most) > usualSkew
	if far && -usualSkew <= c.local && c.local <= usualSkew {
		return "" // Date is what the verifier's own clock says: it is Reset that is off
	}
	return fmt.Sprintf("Date is not of the clock that decides: it and Retry-After of the same answers differ by up to %d s", max(-c.least, c.most))
}

// sharp is how little a bracket is in doubt from which clocks can be told apart by less than a second.
const sharp = 100 * time.Millisecond

// compared returns how much later a window ends by Retry-After than by Date, at least and at most. It is not ok where one of them tells
// nothing, or where they are further apart than clocks that are off by less than a second.
func (t *tally) compared() (least, most time.Duration, ok bool) {
	if t == nil || t.byOwn.isZero() || t.byOwn.torn || t.ends.isZero() || t.ends.torn {
		return 0, 0, false
	}
	least, most = t.byOwn.from.Sub(t.ends.to), t.byOwn.to.Sub(t.ends.from)
	return least, most, most > -2*time.Second && least < 2*time.Second
}

// differ reports whether Date is off by a part of a second. Retry-After that is wrong is so by whole seconds.
func (t *tally) differ() bool {
	least, most, ok := t.compared()
	if !ok || most-least > 2*sharp {
		return false
	}
	part := func(a, b time.Duration) bool { return least > a+soon && most < b-soon }
	return part(-2*time.Second, -time.Second) || part(-time.Second, 0) || part(0, time.Second) || part(time.Second, 2*time.Second)
}

// last returns when a window has ended at the latest, be it Date that is a little off or Retry-After.
func (t *tally) last(end bracket) time.Time {
	if _, _, ok := t.compared(); !ok || !t.byOwn.to.After(end.to) {
		return end.to
	}
	return t.byOwn.to
}

// settle turns suspicions into verdicts, when all is done.
func (d *driver) settle() {
	d.mu.Lock()
	t, longest := d.refusing(), d.longest
	d.mu.Unlock()
	why := d.otherClock(t)
	d.judgeLengths()
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	d.noteClocks(t)
	if why != "" && d.dateIsWrong(t) {
		d.settleByOwn()
	}
	for clause, s := range d.suspicions.by {
		switch {
		case why == "" && clause == "window" && !d.resetIsWrong(t) && d.inDoubt(s.shows):
			d.untested(clause, Unobservable.because("Reset had come by Date, and not yet by Retry-After: by less than a second, which is no more than clocks differ"))
		case why == "":
			d.broken(clause, s.shows, "%s", s.text)
		case clause != "retry-after":
			d.untested(clause, Unobservable.because("%s", why))
		}
	}
	if _, doubted := d.suspicions.by["window"]; longest > 0 && !doubted {
		d.kept("window", "Reset was always ahead, by %v at most", longest)
	}
}

// inDoubt reports whether Date was where Reset is before a request was sent, and the window may not have ended by Retry-After.
func (d *driver) inDoubt(a *answer) bool {
	if a.known == absent || a.known != a.reset {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tallies {
		if _, _, ok := t.compared(); ok && t.limit == a.limit && t.reset == a.reset {
			return !a.sent.After(t.last(t.ends))
		}
	}
	return false
}

// judgeLengths wants windows that follow one another to be as long as the policy has them: the next one cannot begin before the last has
// ended, so that their Resets are at least one length apart.
func (d *driver) judgeLengths() {
	if d.isSuspected("reset-constant") || d.run.book.verdict("restored", d.name) == Broken || d.run.book.verdict("retry-after", d.name) == Broken {
		return
	}
	for limit, seen := range d.resets {
		lengths := d.lengthsOf(limit)
		if len(lengths) == 0 {
			continue
		}
		shortest := int64(slices.Min(lengths) / time.Second)
		resets := slices.Sorted(maps.Keys(seen))
		for i := 1; i < len(resets); i++ {
			if apart := resets[i] - resets[0]; apart < int64(i)*shortest-1 {
				d.broken("window", seen[resets[i]], "Reset of one window of %d is %d, and %d later %d, after %d s: such windows are %v long",
					limit, resets[0], i, resets[i], apart, slices.Min(lengths))
				return
			}
		}
	}
}

// refusing returns the last window that refused; nil: none did.
func (d *driver) refusing() *tally {
	for i := len(d.tallies) - 1; i >= 0; i-- {
		if d.tallies[i].refused > 0 {
			return d.tallies[i]
		}
	}
	return nil
}

// end returns when a window ends by the local clock, going by the clock that decides.
func (d *driver) end(t *tally) bracket {
	if d.otherClock(t) != "" {
		return t.byOwn
	}
	return t.ends
}

// A bracket is when something happens by the local clock: after from, at the latest at to.
type bracket struct {
	from, to time.Time
	torn     bool // what was heard of it cannot all be true
}

func (b bracket) isZero() bool { return b.from.IsZero() }

func (b bracket) width() time.Duration { return b.to.Sub(b.from) }

// narrow returns what both brackets say. Where they exclude one another, the later word counts.
func (b bracket) narrow(with bracket) bracket {
	if b.isZero() {
		return with
	}
	n := b
	if with.from.After(n.from) {
		n.from = with.from
	}
	if with.to.Before(n.to) {
		n.to = with.to
	}
	if n.from.After(n.to) {
		with.torn = true
		return with
	}
	return n
}

// in says when a window ends that ends some seconds after a time whose whole seconds an answer tells. Who says more than a lifetime is
// taken at that.
func (a *answer) in(seconds int64) bracket {
	const lifetime = 1 << 32
	length := time.Duration(min(max(seconds, -lifetime), lifetime)) * time.Second
	return bracket{from: a.sent.Add(length - time.Second), to: a.at.Add(length)}
}
