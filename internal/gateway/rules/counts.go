package rules

import (
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Counts are what the engines of a gateway count together. The zero value is ready for use; all of
// it is safe for concurrent use.
type Counts struct {
	Active   Tally        // requests under way
	Open     Tally        // connections, those that a handler has taken over (websockets) left out
	Accepted atomic.Int64 // connections, ever

	Malformed StatusTally // messages that are not requests, by the status of our answer
}

// A Tally counts what is under way.
type Tally struct {
	n  atomic.Int64
	mu sync.Mutex // held to set or take zero
	// closed when the count reaches zero; nil: nothing waits for that. Wait sets it before it looks
	// at n, and Add looks at it after it has changed n.
	zero atomic.Pointer[chan struct{}]
}

// Load returns the count.
func (t *Tally) Load() int64 { return t.n.Load() }

// Add adds to the count.
func (t *Tally) Add(delta int64) {
	if t.n.Add(delta) > 0 || delta > 0 || t.zero.Load() == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if zero := t.zero.Swap(nil); zero != nil {
		close(*zero)
	}
}

// Wait waits for limit at most and reports whether the count has reached zero.
func (t *Tally) Wait(limit time.Duration) bool {
	t.mu.Lock()
	if t.zero.Load() == nil {
		zero := make(chan struct{})
		t.zero.Store(&zero)
	}
	zero := *t.zero.Load()
	t.mu.Unlock()
	if t.n.Load() == 0 {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-zero:
		return true
	case <-timer.C:
		return false
	}
}

// A StatusTally counts rare answers by their status.
type StatusTally struct{ n [600 - 400]atomic.Int64 }

// Add counts an answer with a status of 400 to 599.
func (t *StatusTally) Add(status int) {
	if i := status - 400; i >= 0 && i < len(t.n) {
		t.n[i].Add(1)
	}
}

// all returns what was counted, and an entry for each status that is named, counted or not.
func (t *StatusTally) all(named ...int) map[int]int64 {
	all := make(map[int]int64, len(named))
	for _, status := range named {
		all[status] = t.n[status-400].Load()
	}
	for i := range t.n {
		if n := t.n[i].Load(); n > 0 {
			all[400+i] = n
		}
	}
	return all
}

// AllMalformed returns the count for each status that Malformed may have.
func (c *Counts) AllMalformed() map[int]int64 {
	return c.Malformed.all(http.StatusBadRequest, http.StatusExpectationFailed, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported)
}

// ServePart does a part of a connection's work, and calls end if the part reports that the
// connection is over, or panics. Else the connection is parked, and may be in another goroutine's
// hands already. peer is for the log; the part may set it.
func (r *Rules) ServePart(peer *string, part func() (over bool), end func()) {
	over := true // also after a panic
	defer func() {
		if failure := recover(); failure != nil {
			r.Log.Error("serving a connection panicked", "peer", *peer, "panic", failure, "stack", string(debug.Stack()))
		}
		if over {
			end()
		}
	}()
	over = part()
}
