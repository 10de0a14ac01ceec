package redistest

import (
	"sync/atomic"
	"testing"
	"time"
)

// A Clock is the wall clock of a server, which stands still until it is told to move: a storetest.Clock. The server sees it to
// the microsecond, rounded down. What has seen a moment of it, a command or Now, is followed by nothing that sees an earlier
// one, but for a step back. It is safe for concurrent use.
type Clock struct{ ns *atomic.Int64 } // since 1970, in memory that the server shares

// Now returns the server's time, to the nanosecond.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()) }

// Advance moves the clock by d, which may be negative. Every command from then on sees it.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }

// StartWithClock is Start for a server with a clock of its own, which stands at a moment with a fraction of a second. Linux
// only.
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
