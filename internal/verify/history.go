package verify

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// A history is what main's requests were answered. Its methods are safe for concurrent use. Its
// fields may be read without the lock while no flood is running.
type history struct {
	part      *part
	responses *weir.Responses // of the policy

	mu        sync.Mutex
	last      *answer     // the last of main's
	served    *answer     // the last of main's admitted answers with their usual status
	statuses  map[int]int // how many were admitted, by status
	numbered  int         // how many were remembered
	refused   int         // how many were refused
	lost      int         // requests without an answer, which may have been counted nevertheless
	uncounted bool        // the endpoint has answered with a status that is not counted
	tallies   []*tally    // main's windows, in the order in which they were first seen
	resets    map[int64]map[int64]*answer
	answers   map[named]int64 // how many requests of any caller were admitted, by window
	moved     *move           // Reset moved within a window if Date is right

	refusal int         // the status other than 429 that refuses; 0: none
	strange map[int]int // how many answers may have refused with such a status
}

func (h *history) init(w *part, responses *weir.Responses) {
	h.part, h.responses = w, responses
	h.statuses, h.strange = make(map[int]int), make(map[int]int)
	h.resets = make(map[int64]map[int64]*answer)
	h.answers = make(map[named]int64)
}

// A named window is what answers call it. Windows of several callers may have the same name.
type named struct{ limit, reset int64 }

// A tally is what was answered in one of main's windows.
type tally struct {
	limit, reset int64
	admitted     []numbered
	refused      int
	firstRefused *answer

	// What the 429s implied about the window's end by the local clock. enough is the earliest time
	// by which waiting should be enough, tooSoon the latest time at which it should not be.
	enough, tooSoon      time.Time
	enoughBy, tooSoonWhy *answer

	ends  bracket // by Date
	byOwn bracket // by Retry-After
}

// A numbered answer is one of main's that was admitted.
type numbered struct {
	number    int // in the order of main's answers, from 1
	remaining int64
	*answer
}

// A move is a Reset that changed before its window had ended by Date.
type move struct {
	suspicion
	before int64 // the earlier Reset
}

// add adds an answer. refused is called for a 429 before its Retry-After is added to its window.
func (h *history) add(a *answer, refused func(*tally)) {
	if len(a.body) > shownBody {
		a.body = slices.Clone(a.body[:shownBody+1])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = a
	h.numbered++
	if a.admitted() {
		if h.statuses[a.status]++; h.served == nil || h.statuses[a.status] >= h.statuses[h.served.status] {
			h.served = a
		}
	} else {
		h.refused++
	}
	if a.limit == absent || a.reset == absent {
		if t := h.newest(); t != nil && a.refused {
			t.refused++
			t.firstRefused = a
		}
		return
	}
	h.addReset(a)
	t := h.tallyOf(a)
	if a.date != absent {
		t.ends = t.ends.narrow(a.in(a.reset - a.date))
	}
	if h.part.isUncounted(a) {
		h.uncounted = true
		return
	}
	if a.admitted() {
		t.admitted = append(t.admitted, numbered{h.numbered, a.remaining, a})
		return
	}
	t.refused++
	if t.firstRefused == nil {
		t.firstRefused = a
	}
	refused(t)
	t.addWait(a)
}

// addWait adds what a 429's Retry-After implies.
func (t *tally) addWait(a *answer) {
	if a.retryAfter == absent || a.retryAfter > 1<<31 {
		return
	}
	b := a.in(a.retryAfter)
	t.byOwn = t.byOwn.narrow(b)
	if t.enough.IsZero() || b.to.Before(t.enough) {
		t.enough, t.enoughBy = b.to, a
	}
	if b.from.After(t.tooSoon) {
		t.tooSoon, t.tooSoonWhy = b.from, a
	}
}

// tallyOf returns the window that an answer belongs to. It is called with the lock held.
func (h *history) tallyOf(a *answer) *tally {
	for _, t := range slices.Backward(h.tallies) {
		if t.limit == a.limit && t.reset == a.reset {
			return t
		}
	}
	t := &tally{limit: a.limit, reset: a.reset}
	h.tallies = append(h.tallies, t)
	return t
}

// addReset notes whether Reset moves. A later window cannot begin before the end of the earlier
// one, except that Date may be a second old. It is called with the lock held.
func (h *history) addReset(a *answer) {
	if a.date == absent || h.part.isAmbiguous(a.limit) {
		return
	}
	seen := h.resets[a.limit]
	if seen == nil {
		seen = make(map[int64]*answer)
		h.resets[a.limit] = seen
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
			h.addMove(earlier.reset, later)
			return
		}
	}
}

// addMove notes that Reset moved if Date is right. A move by the verifier's clock as well replaces
// one that is not.
func (h *history) addMove(before int64, later *answer) {
	if h.moved != nil && later.at.Unix() > before-2 {
		return
	}
	const format = "Reset was %d, and then %d on an answer of %d, before the window had ended"
	h.moved = &move{suspicion: suspicion{later, fmt.Sprintf(format, before, later.reset, later.date)}, before: before}
}

// resetMoved returns the move, or nil for a constant Reset.
func (h *history) resetMoved() *move {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moved
}

// lose notes that a request has no answer. Any window may have counted it.
func (h *history) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

func (h *history) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost > 0
}

// hasCounted reports whether one of main's requests was answered with a status that is counted.
func (h *history) hasCounted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for status := range h.statuses {
		if h.part.limiter.Count.Counts(status) {
			return true
		}
	}
	return false
}

// hasUncounted reports whether the endpoint has answered with a status that is not counted.
func (h *history) hasUncounted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uncounted
}

func (h *history) noteUncounted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uncounted = true
}

// now returns the window with the latest Reset, or nil before the first one.
func (h *history) now() *tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest()
}

func (h *history) newest() *tally {
	var newest *tally
	for _, t := range h.tallies {
		if newest == nil || t.reset >= newest.reset {
			newest = t
		}
	}
	return newest
}

// refusing returns the last window that refused, or nil if none did.
func (h *history) refusing() *tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range slices.Backward(h.tallies) {
		if t.refused > 0 {
			return t
		}
	}
	return nil
}

// hasRefused reports whether a window has refused. If answers do not identify windows, t is nil.
func (h *history) hasRefused(t *tally) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t == nil || t.refused > 0
}

// hasAdmitted reports whether the window that an answer describes has admitted a request.
func (h *history) hasAdmitted(a *answer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.tallies, func(t *tally) bool { return t.limit == a.limit && t.reset == a.reset && len(t.admitted) > 0 })
}

// noteAdmitted counts an answer that may not be main's, or is not remembered.
func (h *history) noteAdmitted(a *answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.admitted() && a.limit != absent && a.reset != absent {
		h.answers[named{a.limit, a.reset}]++
	}
}

// admittedWith returns how many requests the window of one of main's answers has admitted at most:
// those of attempts that outlasted the window before are not remembered as main's.
func (h *history) admittedWith(a *answer) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(1, int64(len(h.tallyOf(a).admitted)), h.answers[named{a.limit, a.reset}])
}

// lowest returns the window's answer with the lowest Remaining, or nil if none was admitted.
func (t *tally) lowest() *answer {
	var low *answer
	for _, s := range t.admitted {
		if s.complete() && (low == nil || s.remaining < low.remaining) {
			low = s.answer
		}
	}
	return low
}

// isInconclusive reports whether an answer is a server error that does not show the budget,
// although the request may have been counted.
func (h *history) isInconclusive(a *answer) bool {
	if a.isGatewayError() {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return a.status >= 500 && !a.complete() && h.served != nil && h.served.complete() && h.served.status != a.status
}

// isTrouble reports whether an answer is a server error that the endpoint does not usually answer.
func (h *history) isTrouble(a *answer) bool {
	return a.admitted() && a.status >= 500 && (h.served == nil || h.served.status != a.status)
}

// isLikeServed reports whether an answer is what the endpoint answers when it admits. If validation
// refuses the bodies, that is an error, and the error must be the same.
func (h *history) isLikeServed(a *answer) bool {
	if a.status < 300 {
		return h.served == nil || h.served.status < 300 || a.status == h.served.status
	}
	if a.status == unauthenticatedStatus(h.responses) {
		return false // the credential is checked first, so a 401 need not be the endpoint's
	}
	if a.status == http.StatusNotFound {
		return false // whatever is not an endpoint is answered so, too
	}
	return h.served != nil && a.status == h.served.status && sameError(a.body, h.served.body)
}

// isOtherBudget reports whether an answer is charged to another budget of the endpoint's limiter
// than the one that is spent.
func (h *history) isOtherBudget(t *tally, a *answer) bool {
	return h.isLikeServed(a) || a.complete() && a.limit == t.limit && a.remaining > 0
}
