package redisstore

import (
	"sync"
	"sync/atomic"
	"time"
)

// A serverAhead is how far the server's clock is at least ahead of the leases' clock. A take from a
// pocket shows a time that is not before that of any earlier answer; on a cluster, whose machines
// may have different clocks, of any that the window's machine gave about it.
type serverAhead struct {
	mu  sync.Mutex
	low atomic.Int64 // ns
	any bool
}

// clockStep is what the known difference may be above the greatest possible one before it is
// dropped: answers have the server's clock in whole milliseconds.
const clockStep = int64(2 * time.Millisecond)

// learn records that the server's clock showed server, in Unix ns, between two moments.
func (s *serverAhead) learn(server int64, asked, answered time.Duration) {
	low, high := server-int64(answered), server-int64(asked)
	if known := s.low.Load(); known >= low && known <= high {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.low.Load(); !s.any || low > known || known > high+clockStep {
		s.low.Store(low)
		s.any = true
	}
}

// at returns the server's time in Unix ns.
func (s *serverAhead) at(now time.Duration) int64 { return int64(now) + s.low.Load() }

// raise records that the difference is not below low.
func (s *serverAhead) raise(low int64) {
	if s.low.Load() >= low {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low.Store(max(low, s.low.Load()))
	s.any = true
}

// when returns the leases' time at which at returns a whole second.
func (s *serverAhead) when(second int64) time.Duration {
	return time.Duration(second*int64(time.Second) - s.low.Load())
}

// aheadOf returns what is known for a window.
func (a *leases) aheadOf(e *leased) *serverAhead {
	if p := e.place.Load(); p != nil && p.slot != noSlot {
		return &e.ahead
	}
	return &a.ahead
}

// latestOf returns the latest that is known for windows of one machine, and makes it known for all
// of them: what is shown for one is not before what was shown for it with another.
func (a *leases) latestOf(entries []*leased) *serverAhead {
	latest := a.aheadOf(entries[0])
	for _, e := range entries[1:] {
		latest.raise(a.aheadOf(e).low.Load())
	}
	for _, e := range entries[1:] {
		a.aheadOf(e).raise(latest.low.Load())
	}
	return latest
}

// learnAhead is learn for the windows of a take, which one machine counts.
func (a *leases) learnAhead(entries []*leased, server int64, asked, answered time.Duration) {
	a.ahead.learn(server, asked, answered)
	for _, e := range entries {
		if e != nil && a.aheadOf(e) != &a.ahead {
			e.ahead.learn(server, asked, answered)
		}
	}
}
