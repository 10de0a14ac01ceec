package verify

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/weirlimit/weir"
)

// A server may refuse with another status than 429. Such a status is recognized by three answers
// that came when the budget should be spent, to the very request that was answered otherwise while
// there was budget.

// refusedStatus returns the status of refusals that the policy declares.
func refusedStatus(w *weir.Responses) int {
	return cmp.Or(w.Answers.Refused.Status, http.StatusTooManyRequests)
}

// unauthenticatedStatus returns the status for a credential that is missing or invalid that the
// policy declares.
func unauthenticatedStatus(w *weir.Responses) int {
	return cmp.Or(w.Answers.Unauthenticated.Status, http.StatusUnauthorized)
}

// isDeclaredRefusal reports whether an answer refuses with the status that the policy declares. A
// backend or a proxy may answer with that status too, but not with all fields of a refusal.
func isDeclaredRefusal(w *weir.Responses, a *answer) bool {
	return a.status == refusedStatus(w) && a.complete() && a.remaining == 0 && a.retryAfter != absent
}

// certainAfter is how many answers with a status show that it refuses.
const certainAfter = 3

// neverRefusal are client error statuses that have nothing to do with a limit.
var neverRefusal = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests}

// mayRefuse reports whether a status other than 429 could refuse: a client error, or 503 and the
// statuses that some servers use like it.
func mayRefuse(status int) bool {
	return status >= 400 && status < 500 && !slices.Contains(neverRefusal, status) || status == http.StatusServiceUnavailable || status == 509 || status == 529
}

// seemsRefusal reports whether an answer to main's plain request may refuse with another status
// than 429. Answers can overtake one another. If units or slots come back, Remaining is 0 and the
// next request is admitted all the same: then such a status is taken for the backend's. It is
// called with the lock held.
func (h *history) seemsRefusal(a *answer) bool {
	return !h.part.limiter.Settles() && mayRefuse(a.status) && h.statuses[a.status] == 0 && h.refused == 0 && (h.seemsSpent() || h.served != nil && a.remaining == 0)
}

// seemsSpent reports whether main's budget should be spent. It is called with the lock held.
func (h *history) seemsSpent() bool {
	var all int64
	for _, n := range h.statuses {
		all += int64(n)
	}
	if !h.part.light && !h.part.countsSome() && all >= h.part.window.Limit/h.part.cost {
		return true
	}
	t := h.newest()
	return t != nil && slices.ContainsFunc(t.admitted, func(s numbered) bool { return s.remaining >= 0 && s.remaining < h.part.costOf(s.limit) })
}

// isHeld notes whether an answer may refuse with another status, and reports whether it must be
// ignored because that is not yet certain.
func (h *history) isHeld(a *answer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.status == h.refusal { // it was under way when the status was recognized
		a.refused = true
	}
	if !a.admitted() || !h.seemsRefusal(a) {
		return false
	}
	h.strange[a.status]++
	if h.strange[a.status] < certainAfter {
		return true
	}
	h.refusal = a.status
	a.refused = true
	return false
}

// mark sets whether an answer refuses with another status than 429.
func (h *history) mark(a *answer) *answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.refused = h.refusal != 0 && a.status == h.refusal || isDeclaredRefusal(h.responses, a)
	return a
}

// is503 reports whether a 503 without the fields may be the limiter's, and not a proxy's.
func (h *history) is503(a *answer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return a.status == http.StatusServiceUnavailable && (h.refusal == a.status || h.seemsRefusal(a))
}
