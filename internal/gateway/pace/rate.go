package pace

import (
	"fmt"
	"os"
	"time"
)

// errTooSlow ends an exchange with a client that sends less than Limits.Rate, or for longer than Limits.Upload. It is a
// time-out.
var errTooSlow = fmt.Errorf("the client is slower than is allowed: %w", os.ErrDeadlineExceeded)

// An allowance is how long a client may still be waited for in one direction. It begins as Limits.Grace, waiting uses it up, and
// every byte gives 1/Limits.Rate of a second back, never beyond Limits.Grace: a client at that rate or above it lasts, one that
// trickles ends after the grace, however much it sent before. Only time in which we wait for the client counts, so that a
// backend that pauses is not held against its clients. Streams of HTTP/2 have one each and share one (see direction). The zero value
// has to begin.
type allowance struct {
	left   time.Duration
	waited time.Duration // in all
}

func (a *allowance) begin(l *Limits) { *a = allowance{left: l.Grace} }

// next returns how long the next wait may last: Limits.Stall at most.
func (a *allowance) next(l *Limits) time.Duration {
	d := a.nextOfStream(l)
	if l.Rate > 0 {
		d = min(d, a.left)
	}
	return max(d, 1)
}

// nextOfStream returns the same for a stream, whose own allowance does not end it alone.
func (a *allowance) nextOfStream(l *Limits) time.Duration {
	d := l.Stall
	if l.Upload > 0 {
		d = min(d, l.Upload-a.waited)
	}
	return max(d, 1)
}

// isOver reports whether the client was waited for as long as Limits.Upload allows.
func (a *allowance) isOver(l *Limits) bool { return l.Upload > 0 && a.waited >= l.Upload }

// spend notes that the client was waited for and that n bytes came of it. It reports whether the client may go on.
func (a *allowance) spend(l *Limits, waited time.Duration, n int) bool {
	a.waited += waited
	if l.Rate > 0 {
		earned := time.Duration(min(float64(n)/float64(l.Rate), l.Grace.Seconds()) * float64(time.Second))
		a.left = max(0, min(l.Grace, a.left-waited+earned))
		if a.left <= 0 {
			return false
		}
	}
	return !a.isOver(l)
}

// ofAnswers returns the limits of a client that takes an answer, which may take as long as it likes in all. An application that is
// slow opens its window in large steps, and acknowledges nothing between them, so the grace is Take at least.
func (l Limits) ofAnswers() Limits {
	l.Upload = 0
	l.Grace = max(l.Grace, l.Take)
	return l
}

// look returns how long a write waits before somebody looks whether the client takes anything.
func (l *Limits) look() time.Duration {
	if l.Rate <= 0 {
		return l.Stall
	}
	return max(min(l.Stall, l.Grace/4), 1)
}
