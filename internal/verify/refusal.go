package verify

import (
	"net/http"
	"slices"
)

// A server may refuse with another status than 429. Such a status is known by three answers that
// came when the budget was spent, to the very request that was answered otherwise while there was
// budget.

// surely is how many answers with a status show that it refuses.
const surely = 3

// neverRefusal are statuses of the client's doing that say nothing about a limit.
var neverRefusal = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests}

// mayRefuse reports whether a status other than 429 could be meant for one: an error of the
// client's, or 503 and what some use like it.
func mayRefuse(status int) bool {
	return status >= 400 && status < 500 && !slices.Contains(neverRefusal, status) || status == http.StatusServiceUnavailable || status == 509 || status == 529
}

// seemsRefusal reports whether an answer to main's plain request may refuse by another status than
// 429. It is called with the driver locked.
func (d *driver) seemsRefusal(a *answer) bool {
	return mayRefuse(a.status) && d.usual[a.status] == 0 && d.hammered == 0 && (d.seemsSpent() || d.served != nil && a.remaining == 0) // answers overtake one another
}

// seemsSpent reports whether main's budget should be spent. It is called with the driver locked.
func (d *driver) seemsSpent() bool {
	var all int64
	for _, n := range d.usual {
		all += int64(n)
	}
	if all >= d.part.window.Limit/d.part.cost {
		return true
	}
	t := d.newest()
	return t != nil && slices.ContainsFunc(t.admitted, func(s counted) bool { return s.remaining >= 0 && s.remaining < d.part.cost })
}

// isHeld takes note of an answer that may refuse by another status, and reports whether it is to be
// set aside, since that is not sure.
func (d *driver) isHeld(a *answer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.status == d.refusal { // it was on its way when that was found out
		a.refused = true
	}
	if !a.admitted() || !d.seemsRefusal(a) {
		return false
	}
	d.strange[a.status]++
	if d.strange[a.status] < surely {
		return true
	}
	d.refusal = a.status
	a.refused = true
	return false
}

// mark takes note of whether an answer refuses.
func (d *driver) mark(a *answer) *answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.refused = d.refusal != 0 && a.status == d.refusal
	return a
}

// is503 reports whether a 503 without the fields may be the limiter's own word, and not that of
// something in between.
func (d *driver) is503(a *answer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return a.status == http.StatusServiceUnavailable && (d.refusal == a.status || d.seemsRefusal(a))
}
