package poller

import (
	"math"
	"net"
	"time"
)

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.reads, &c.writes) }

// SetReadDeadline sets until when a read may wait; the zero time: for ever. After it reads fail with os.ErrDeadlineExceeded until
// another is set. To move one to a later time costs some ten nanoseconds: the timer stays as it is and finds out.
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
	// Where the timer fires earlier it is the timer that sees what has passed.
	sooner := by != 0 && (c.fires == 0 || by < c.fires)
	var wait time.Duration
	if sooner {
		wait = by - time.Since(began)
	}
	late := sooner && wait <= 0
	for _, s := range sides {
		s.by = by
		s.late.Store(late)
		if late {
			s.rouse()
		}
	}
	if sooner && !late {
		c.fireAt(by, wait)
	}
	return nil
}

// after returns how long after began a time is, at least one nanosecond; 0 for the zero time.
func after(t time.Time) time.Duration {
	switch {
	case t.IsZero():
		return 0
	case t == t.Round(0): // by the clock on the wall, which may have been set since
		now := time.Now()
		return max(1, now.Sub(began)+min(t.Sub(now), math.MaxInt64/2))
	}
	return max(1, t.Sub(began))
}

// fireAt has the timer look at the deadlines at a time, which comes after wait.
func (c *Conn) fireAt(at, wait time.Duration) {
	c.fires = at
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.look)
		return
	}
	c.timer.Reset(wait)
}

// look sees which deadlines have passed.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fires = 0
	if c.isClosing() {
		return
	}
	now := time.Since(began)
	var next time.Duration
	for _, s := range [...]*side{&c.reads, &c.writes} {
		switch {
		case s.by == 0 || s.late.Load():
		case s.by <= now:
			s.late.Store(true)
			s.rouse()
		case next == 0 || s.by < next:
			next = s.by
		}
	}
	if next != 0 {
		c.fireAt(next, next-now)
	}
}
