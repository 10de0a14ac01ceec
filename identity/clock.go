package identity

import (
	"sync/atomic"
	"time"
)

// A wallClock is time.Now at about half its cost, which is much of what a session in the cache
// costs: it advances by the monotonic clock alone, and reads the wall clock every wallEvery. So it
// follows a wall clock that is set, and is late by wallEvery at most. The zero value is ready for
// use. It is safe for concurrent use.
type wallClock struct{ last atomic.Pointer[time.Time] }

const wallEvery = 100 * time.Millisecond

func (c *wallClock) now() time.Time {
	if last := c.last.Load(); last != nil {
		if passed := time.Since(*last); passed < wallEvery {
			return last.Add(passed)
		}
	}
	now := time.Now()
	c.last.Store(&now)
	return now
}

// now returns the time by which the credentials of c are judged.
func (r *Resolver) now(c *Caller) time.Time {
	switch {
	case r.options.Now != nil:
		return r.options.Now()
	case c.known&knowsTime != 0:
		return c.arrived
	}
	return r.clock.now()
}

// latest is now, but read anew: a request may have arrived long ago, if its body was read since.
func (r *Resolver) latest() time.Time {
	if r.options.Now != nil {
		return r.options.Now()
	}
	return time.Now()
}
