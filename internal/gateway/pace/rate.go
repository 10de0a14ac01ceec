package pace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Limits are how slow a peer may be.
type Limits struct {
	Stall  time.Duration // for a peer that makes no progress
	Take   time.Duration // for a client that acknowledges nothing of an answer
	Rate   int64         // bytes a second, the minimum of a client; 0 or negative: no minimum
	Grace  time.Duration // for how long in all a client may be slower
	Upload time.Duration // for how long in all the body of one request is waited for; 0: no bound
}

// OfAnswers returns the limits of a client that takes an answer. It may take as long as it likes in
// all. A slow application opens its window in large steps and acknowledges nothing between them, so
// the grace is Take at least.
func (l Limits) OfAnswers() Limits {
	l.Upload = 0
	l.Grace = max(l.Grace, l.Take)
	return l
}

// look returns how long a write waits before the Conn looks whether the client takes anything.
func (l *Limits) look() time.Duration {
	if l.Rate <= 0 {
		return l.Stall
	}
	return max(min(l.Stall, l.Grace/4), 1)
}

// ErrTooSlow ends an exchange with a client that sends less than Limits.Rate, or for longer than
// Limits.Upload. It is a time-out.
var ErrTooSlow = fmt.Errorf("the client is slower than is allowed: %w", os.ErrDeadlineExceeded)

// IsTimeout reports whether an error is a time-out.
func IsTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// An Allowance is how long a client may still be waited for in one direction. It starts as
// Limits.Grace. Waiting uses it up, and every byte gives 1/Limits.Rate of a second back, up to
// Limits.Grace. So a client at that rate or above lasts, and one that trickles ends after the
// grace, however much it sent before. Only time in which we wait for the client counts: a backend
// that pauses costs its clients nothing. Each stream of HTTP/2 has an Allowance, and all of a
// connection share one (see Direction). Begin must be called before the zero value is used.
type Allowance struct {
	left   time.Duration
	waited time.Duration // in all
}

// Begin starts with the whole grace.
func (a *Allowance) Begin(l *Limits) { *a = Allowance{left: l.Grace} }

// Next returns how long the next wait may last: Limits.Stall at most.
func (a *Allowance) Next(l *Limits) time.Duration {
	d := a.NextOfStream(l)
	if l.Rate > 0 {
		d = min(d, a.left)
	}
	return max(d, 1)
}

// NextOfStream is Next for a stream of HTTP/2, which its own allowance alone does not end.
func (a *Allowance) NextOfStream(l *Limits) time.Duration {
	d := l.Stall
	if l.Upload > 0 {
		d = min(d, l.Upload-a.waited)
	}
	return max(d, 1)
}

// IsOver reports whether the client was waited for as long as Limits.Upload allows.
func (a *Allowance) IsOver(l *Limits) bool { return l.Upload > 0 && a.waited >= l.Upload }

// Spend records that the client was waited for and sent n bytes meanwhile. It reports whether the
// client may continue.
func (a *Allowance) Spend(l *Limits, waited time.Duration, n int) bool {
	a.waited += waited
	if l.Rate > 0 {
		earned := time.Duration(min(float64(n)/float64(l.Rate), l.Grace.Seconds()) * float64(time.Second))
		a.left = max(0, min(l.Grace, a.left-waited+earned))
		if a.left <= 0 {
			return false
		}
	}
	return !a.IsOver(l)
}
