package paced

import (
	"sync"
	"time"

	"github.com/weirlimit/weir/pacer"
)

// waits adds up how long nothing was sent because a budget was used up. Requests that wait for the
// same window wait at the same time, so that time counts once.
type waits struct {
	mu   sync.Mutex
	idle time.Duration
	wake time.Time // when the latest wait ends
}

// add counts the wait of one request, which begins now.
func (s *waits) add(w pacer.Wait, now time.Time) {
	if w.Reason == pacer.Probing { // takes no longer than a request
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := now
	if s.wake.After(begin) {
		begin = s.wake
	}
	if w.Until.After(begin) {
		s.idle += w.Until.Sub(begin)
		s.wake = w.Until
	}
}

// until returns the sum at now. A wait that an interruption has cut short counts until then.
func (s *waits) until(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.idle-max(s.wake.Sub(now), 0), 0)
}
