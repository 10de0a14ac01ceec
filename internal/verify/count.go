package verify

import (
	"fmt"
	"slices"
	"time"
)

// A tally is what was answered in one window of main's.
type tally struct {
	limit, reset int64
	admitted     []counted
	refused      int
	firstRefused *answer

	// What the 429s said of when the window ends, by the local clock: enough is the earliest time by which one said that waiting would
	// be enough; least the latest by which one said that it would not.
	enough, least      time.Time
	enoughBy, least429 *answer

	ends  bracket // by Date
	byOwn bracket // by Retry-After
}

// A counted is one answer to a request that was admitted.
type counted struct {
	number    int // of main's requests, in the order of their answers
	remaining int64
	*answer
}

// count adds an answer to main's window.
func (d *driver) count(a *answer) {
	if len(a.body) > shownBody {
		a.body = slices.Clone(a.body[:shownBody+1])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = a
	d.counted++
	if a.admitted() {
		if d.usual[a.status]++; d.served == nil || d.usual[a.status] >= d.usual[d.served.status] {
			d.served = a
		}
	} else {
		d.hammered++
	}
	if a.limit == absent || a.reset == absent {
		if t := d.newest(); t != nil && a.refused {
			t.refused++
			t.firstRefused = a
		}
		return
	}
	d.checkConstant(a)
	t := d.tallyOf(a)
	if a.date != absent {
		t.ends = t.ends.narrow(a.in(a.reset - a.date))
	}
	if a.admitted() {
		t.admitted = append(t.admitted, counted{d.counted, a.remaining, a})
		return
	}
	t.refused++
	if t.firstRefused == nil {
		t.firstRefused = a
	}
	d.countWait(t, a)
}

// countWait looks whether the 429s before this one were right.
func (d *driver) countWait(t *tally, a *answer) {
	if !t.enough.IsZero() && a.sent.After(t.enough) {
		d.broken("retry-after", a, "refused in the same window %s after a 429 that asked to wait %d s",
			seconds(a.sent.Sub(t.enoughBy.at)), t.enoughBy.retryAfter)
	}
	if a.retryAfter == absent || a.retryAfter > 1<<31 {
		return
	}
	b := a.in(a.retryAfter)
	t.byOwn = t.byOwn.narrow(b)
	if t.enough.IsZero() || b.to.Before(t.enough) {
		t.enough, t.enoughBy = b.to, a
	}
	if b.from.After(t.least) {
		t.least, t.least429 = b.from, a
	}
}

// tallyOf returns the tally that an answer belongs to.
func (d *driver) tallyOf(a *answer) *tally {
	for _, t := range slices.Backward(d.tallies) {
		if t.limit == a.limit && t.reset == a.reset {
			return t
		}
	}
	t := &tally{limit: a.limit, reset: a.reset}
	d.tallies = append(d.tallies, t)
	return t
}

// lose notes that a request has no answer.
func (d *driver) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++ // in whichever window: it may have been counted when that which is known had ended
}

// now returns the window that was seen last; nil: none was.
func (d *driver) now() *tally {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.newest()
}

func (d *driver) newest() *tally {
	var newest *tally
	for _, t := range d.tallies {
		if newest == nil || t.reset >= newest.reset {
			newest = t
		}
	}
	return newest
}

// checkConstant judges whether Reset moves. Two windows can be told apart by it: the later one cannot have begun before the earlier one's
// end, give or take a Date that is a second old.
func (d *driver) checkConstant(a *answer) {
	if a.date == absent || d.ambiguous(a.limit) {
		return
	}
	seen := d.resets[a.limit]
	if seen == nil {
		seen = make(map[int64]*answer)
		d.resets[a.limit] = seen
	}
	if before := seen[a.reset]; before == nil || a.date < before.date {
		seen[a.reset] = a
	}
	for reset, other := range seen {
		earlier, later := other, a
		if reset > a.reset {
			earlier, later = a, other
		}
		if earlier.reset < later.reset && later.date <= earlier.reset-2 {
			d.suspectMove(earlier.reset, later)
			return
		}
	}
}

// suspectMove notes that Reset has moved if Date is right. One that has moved by the verifier's clock as well is kept rather than another.
func (d *driver) suspectMove(reset int64, later *answer) {
	d.suspicions.Lock()
	defer d.suspicions.Unlock()
	if d.suspicions.by == nil {
		d.suspicions.by = make(map[string]suspicion)
	}
	if _, ok := d.suspicions.by["reset-constant"]; ok && later.at.Unix() > reset-2 {
		return
	}
	d.suspicions.by["reset-constant"] = suspicion{later, fmt.Sprintf("Reset was %d, and %d on an answer of %d, when that window had not ended", reset, later.reset, later.date), reset}
}

// ambiguous reports whether several windows have a limit, so that answers do not tell which of them they describe.
func (d *driver) ambiguous(limit int64) bool { return len(d.lengthsOf(limit)) > 1 }
