package redistest

import (
	"sync/atomic"
	"testing"
	"time"
)

// A Clock is the wall clock of a server, which only Advance moves: a storetest.Clock. The server
// sees it in microseconds, rounded down. After a command or Now has read a time, no later read
// returns an earlier one, except after a step back. It is safe for concurrent use.
type Clock struct{ ns *atomic.Int64 } // since 1970, in memory that the server shares

// Now returns the server's time in nanoseconds.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()) }

// Advance moves the clock by d, which may be negative. Every later command sees it.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }

// StartWithClock is Start for a server with a clock of its own, which starts at a time with a
// fraction of a second. It needs Linux.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	s := newServer(t, args)
	return s, s.startWithClock(t)
}

func (s *Server) startWithClock(t testing.TB) *Clock {
	t.Helper()
	clock, env := newClock(t)
	clock.ns.Store(time.Unix(1_800_000_000, 123_456_789).UnixNano())
	s.env = env
	s.start(t)
	return clock
}

// Run moves the clock with the system's, by a millisecond at a time, until the test ends. Advance
// makes it differ.
func (c *Clock) Run(t testing.TB) {
	tick, done := time.NewTicker(time.Millisecond), make(chan struct{})
	t.Cleanup(func() {
		tick.Stop()
		close(done)
	})
	last := time.Now()
	go func() {
		for {
			select {
			case <-tick.C:
				now := time.Now()
				c.Advance(now.Sub(last))
				last = now
			case <-done:
				return
			}
		}
	}()
}
