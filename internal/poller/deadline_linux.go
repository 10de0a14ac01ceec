package poller

import (
	"math"
	"net"
	"time"
)

// SetDeadline sets the deadlines of reads and writes.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads, &c.writes) }

// SetReadDeadline sets the time after which reads return os.ErrDeadlineExceeded; the zero time
// means never. Moving a deadline to a later time costs about ten nanoseconds, because the timer is
// left as it is and is set again when it fires.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads) }

// SetWriteDeadline is SetReadDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writes) }

func (c *Conn) setDeadlines(t time.Time, sides ...*side) error {
	by := after(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosing() {
		return c.failed("set", net.ErrClosed)
	}
	// If the timer fires before the new deadline it stays, and checkDeadlines sets it again.
	sooner := by != 0 && (c.fireTime == 0 || by < c.fireTime)
	var wait time.Duration
	if sooner {
		wait = by - time.Since(epoch)
	}
	expired := sooner && wait <= 0
	for _, s := range sides {
		s.deadline = by
		s.expired.Store(expired)
		if expired {
			s.recheck()
		}
	}
	if sooner && !expired {
		c.fireAt(by, wait)
	}
	return nil
}

// after returns the time from epoch to t, at least one nanosecond. It returns 0 for the zero time.
func after(t time.Time) time.Duration {
	switch {
	case t.IsZero():
		return 0
	case t == t.Round(0): // wall clock only, which may have been set since epoch
		now := time.Now()
		return max(1, now.Sub(epoch)+min(t.Sub(now), math.MaxInt64/2))
	}
	return max(1, t.Sub(epoch))
}

// fireAt sets the timer to fire at a time since epoch, which is wait from now.
func (c *Conn) fireAt(at, wait time.Duration) {
	c.fireTime = at
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.checkDeadlines)
		return
	}
	c.timer.Reset(wait)
}

// checkDeadlines is called by the timer. It marks the deadlines that have passed as expired and
// wakes the goroutines that wait, and sets the timer for the next one.
func (c *Conn) checkDeadlines() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fireTime = 0
	if c.isClosing() {
		return
	}
	now := time.Since(epoch)
	var next time.Duration
	for _, s := range [...]*side{&c.reads, &c.writes} {
		switch {
		case s.deadline == 0 || s.expired.Load():
		case s.deadline <= now:
			s.expired.Store(true)
			s.recheck()
		case next == 0 || s.deadline < next:
			next = s.deadline
		}
	}
	if next != 0 {
		c.fireAt(next, next-now)
	}
}
