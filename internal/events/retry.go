package events

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	firstPause = time.Second // doubles before each further attempt, half more or less at random
	maxPause   = time.Minute
	maxTries   = 15
	maxAge     = 10 * time.Minute // no attempt begins later than this after the first
)

// send makes attempts until the receiver accepts the event or no further attempt is useful. Once
// Close has begun, it makes one attempt and does not wait.
func (s *Sender) send(e *Event) result {
	pauses := backoff.ExponentialBackOff{InitialInterval: firstPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxPause}
	first := time.Now()
	for try := 1; ; try++ {
		last := s.isClosing()
		err := s.hook.post(s.flush, e, time.Now())
		switch {
		case err == nil:
			return delivered
		case err.final:
			s.totals.note(err)
			return rejected
		case s.flush.Err() != nil || last:
			s.totals.note(err)
			return unsent
		}
		pause := max(pauses.NextBackOff(), err.after)
		if try == maxTries || time.Since(first)+pause > maxAge {
			s.totals.note(err)
			return expired
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
		}
	}
}

func (s *Sender) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}
