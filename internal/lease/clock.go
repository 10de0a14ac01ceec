package lease

import (
	"sync/atomic"
	"time"
)

// A Clock shows the time since the machine started, also while it slept: Go's monotonic clock stops
// then. It is at most ClockError wrong. It is safe for concurrent use.
//
// A Clock asks the kernel once in 100 ms and adds what the monotonic clock counts from then on. If
// the wall clock has moved by another amount, the machine may have slept, and it asks at once. So a
// sleep is missed for 100 ms at most, and only if the wall clock was set back by as much meanwhile.
type Clock struct {
	read   func() (wall, monotonic time.Duration)
	boot   func() (time.Duration, bool)
	anchor atomic.Pointer[anchor]
}

// An anchor is one moment, by each clock.
type anchor struct{ wall, monotonic, boot time.Duration }

const (
	anchorLasts = 100 * time.Millisecond
	anchorError = time.Millisecond // of one reading, and of what the clocks may part by

	// ClockError is how much a Clock may be wrong.
	ClockError = 2 * anchorError
)

// NewClock returns the clock of this machine.
func NewClock() *Clock {
	start := time.Now()
	return &Clock{boot: sinceBoot, read: func() (wall, monotonic time.Duration) {
		t := time.Now()
		return time.Duration(t.UnixNano()), t.Sub(start)
	}}
}

// Now returns the time since the machine started. If ok is false, this system has no such clock,
// and nothing may be leased.
func (c *Clock) Now() (now time.Duration, ok bool) {
	wall, monotonic := c.read()
	if a := c.anchor.Load(); a != nil {
		passed := monotonic - a.monotonic
		parted := wall - a.wall - passed
		if passed >= 0 && passed < anchorLasts && -anchorError < parted && parted < anchorError {
			return a.boot + passed, true
		}
	}
	boot, ok := c.boot()
	if !ok {
		return 0, false
	}
	// If this goroutine did not run for a while in between, the clocks were not read at one moment.
	if later, after := c.read(); after-monotonic < anchorError && later-wall < anchorError {
		c.anchor.Store(&anchor{wall: wall, monotonic: monotonic, boot: boot})
	}
	return boot, true
}
