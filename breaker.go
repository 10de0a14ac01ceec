package weir

import (
	"sync"
	"time"
)

const (
	breakerRow   = 20          // failures in a row that open the breaker
	breakerLeast = 20          // takes in a second below which the share of failures says nothing
	breakerWait  = time.Second // how long it stays open before one request tries again
)

// A breaker stops the waiting for a store that does not answer: after 20 failures in a row, or when over half of a
// second's takes failed. Then one request a second tries again, and the first answer closes it. The zero value is closed.
type breaker struct {
	mu      sync.Mutex
	row     int       // failures since the last success
	second  int64     // the Unix second that good and bad count
	good    int       // answers in it
	bad     int       // failures in it
	until   time.Time // open until then; zero: closed
	trying  bool      // one request is trying an open breaker
	failing bool      // what was last reported
	failed  time.Time // when a take last failed
}

// allows reports whether the store may be asked at now.
func (b *breaker) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.until.IsZero() {
		return true
	}
	if b.trying || now.Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

// record notes how a take ended, and whether that changed the store's state for whoever watches it: a store that answers
// every other take is failing, and has recovered when none failed for a second.
func (b *breaker) record(now time.Time, err error) (changed, failing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := now.Unix(); s != b.second {
		b.second, b.good, b.bad = s, 0, 0
	}
	if err == nil {
		b.row = 0
		b.good++
		b.until, b.trying = time.Time{}, false
	} else {
		b.failed = now
		b.row++
		b.bad++
		many := b.good+b.bad >= breakerLeast && b.bad > b.good
		if b.trying || b.row >= breakerRow || many {
			b.until, b.trying = now.Add(breakerWait), false
		}
	}
	changed = b.failing != (err != nil) && (err != nil || now.Sub(b.failed) >= time.Second)
	if changed {
		b.failing = err != nil
	}
	return changed, b.failing
}
