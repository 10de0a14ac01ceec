package failover

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFailures is the number of consecutive failures that opens the breaker.
	maxFailures = 20
	// minSilence is the time without an answer that consecutive failures must span. If one of
	// several machines dies, all takes that wait for it fail at the same moment.
	minSilence = 25 * time.Millisecond
	// minTakes is the number of takes in a second below which the share of failures is ignored.
	minTakes = 20
	// retryAfter is the time from one trial of an open breaker to the next.
	retryAfter = time.Second
)

// A breaker is a circuit breaker. It opens after 20 consecutive failures, or if more than half of
// a second's takes fail. While it is open, one take or probe a second tries the store. The breaker
// does not close at the first success, but when close is called: the store must first receive what
// was counted without it. The zero value is closed.
type breaker struct {
	// notClosed makes the usual case cheap: while it is false, enter reads no clock and takes no
	// lock.
	notClosed atomic.Bool

	mu          sync.Mutex
	consecutive int       // failures since the last success
	lastSuccess time.Time // the time of that success
	second      int64     // the Unix second that successes and failures count
	successes   int
	failures    int
	retryAt     time.Time // the time of the next trial; zero if the breaker is closed
	recovered   bool      // the store answers again, and the breaker is still open: no more trials
}

// A state is the state in which a take finds the breaker.
type state uint8

const (
	closed   state = iota // the take may ask the store
	open                  // the take must not ask the store
	halfOpen              // the take may ask the store, as the only trial of this second
)

// enter returns the state for one take. A take that gets halfOpen has a second to report its
// result; after that, another take gets halfOpen.
func (b *breaker) enter(clock func() time.Time) state {
	if !b.notClosed.Load() {
		return closed
	}
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.retryAt.IsZero():
		return closed
	case b.recovered || now.Before(b.retryAt):
		return open
	}
	b.retryAt = now.Add(retryAfter)
	return halfOpen
}

// release lets the next take be the trial, because the last trial had no result.
func (b *breaker) release(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.retryAt.IsZero() {
		b.retryAt = now
	}
}

// failure records that a take or a ping failed.
func (b *breaker) failure(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startSecond(now)
	b.consecutive++
	b.failures++
	majority := b.successes+b.failures >= minTakes && b.failures > b.successes
	inARow := b.consecutive >= maxFailures && now.Sub(b.lastSuccess) >= minSilence
	if !b.retryAt.IsZero() || inARow || majority {
		b.retryAt, b.recovered = now.Add(retryAfter), false
		b.notClosed.Store(true)
	}
}

// success records that the store answered a take or a ping. If the breaker is open, the caller
// must call close or reopen afterwards.
func (b *breaker) success(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startSecond(now)
	b.consecutive, b.lastSuccess = 0, now
	b.successes++
	b.recovered = !b.retryAt.IsZero()
}

func (b *breaker) startSecond(now time.Time) {
	if s := now.Unix(); s != b.second {
		b.second, b.successes, b.failures = s, 0, 0
	}
}

// waitsToClose reports whether the store has answered and the breaker is still open.
func (b *breaker) waitsToClose() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recovered
}

// close closes the breaker, unless the store has failed since its last success.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recovered {
		b.retryAt, b.recovered = time.Time{}, false
		b.notClosed.Store(false)
	}
}

// reopen undoes the last success, because the store failed at something else than a take.
func (b *breaker) reopen(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recovered {
		b.retryAt, b.recovered = now.Add(retryAfter), false
	}
}
