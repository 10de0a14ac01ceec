package failover

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	breakerRow = 20 // failures in a row that open the breaker
	// breakerRowFor is how long there must have been no answer: those who wait for one dead machine of many are told together,
	// and that is no row.
	breakerRowFor = 25 * time.Millisecond
	breakerLeast  = 20          // takes in a second below which the share of failures says nothing
	breakerWait   = time.Second // how long it stays open before a request tries again
)

// A breaker stops the waiting for a store that does not answer: after 20 failures in a row, or when over half of a
// second's takes failed. Then one request or probe a second tries again. The first answer ends that, but the breaker closes only when
// close says that the store has been given what was counted without it. The zero value is closed.
type breaker struct {
	open     atomic.Bool // until is not zero: while it is closed, which is nearly always, nobody reads the clock or waits for mu
	mu       sync.Mutex
	row      int       // failures since the last answer
	last     time.Time // answer
	second   int64     // the Unix second that good and bad count
	good     int       // answers in it
	bad      int       // failures in it
	until    time.Time // open, and nobody tries until then; zero: closed
	answered bool      // open, and nobody needs to try: the store answers again
}

// A turn is what a request may do.
type turn uint8

const (
	barred turn = iota // it may not ask the store
	asks
	tries // it is the one that asks an open breaker's store
)

// turn returns what a request may do. Who tries has a second to tell what came of it; then another one tries.
func (b *breaker) turn(clock func() time.Time) turn {
	if !b.open.Load() {
		return asks
	}
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.until.IsZero():
		return asks
	case b.answered || now.Before(b.until):
		return barred
	}
	b.until = now.Add(breakerWait)
	return tries
}

// pass lets the next request try: the one that did has learnt nothing.
func (b *breaker) pass(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.IsZero() {
		b.until = now
	}
}

// failure notes that a take or a ping failed.
func (b *breaker) failure(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(now)
	b.row++
	b.bad++
	many := b.good+b.bad >= breakerLeast && b.bad > b.good
	row := b.row >= breakerRow && now.Sub(b.last) >= breakerRowFor
	if !b.until.IsZero() || row || many {
		b.until, b.answered = now.Add(breakerWait), false
		b.open.Store(true)
	}
}

// answer notes that the store answered a take or a ping. Where the breaker is open, somebody must close it now, or open it again.
func (b *breaker) answer(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(now)
	b.row, b.last = 0, now
	b.good++
	b.answered = !b.until.IsZero()
}

func (b *breaker) count(now time.Time) {
	if s := now.Unix(); s != b.second {
		b.second, b.good, b.bad = s, 0, 0
	}
}

// waits reports whether the store has answered and the breaker is still open.
func (b *breaker) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered
}

// close lets requests ask the store again, if it still answers.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered {
		b.until, b.answered = time.Time{}, false
		b.open.Store(false)
	}
}

// reopen takes an answer back: the store has failed since, otherwise than in those.
func (b *breaker) reopen(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered {
		b.until, b.answered = now.Add(breakerWait), false
	}
}
