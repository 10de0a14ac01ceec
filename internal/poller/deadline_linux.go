package poller

import (
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
	var by time.Duration
	if !t.IsZero() {
		by = max(1, t.Sub(began))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users.Load()&closing != 0 {
		return c.failed("set", net.ErrClosed)
	}
	// Where the timer fires earlier it is the timer that sees what has passed.
	sooner := by != 0 && (c.fires == 0 || by < c.fires)
	late := sooner && by <= time.Since(began)
	for _, s := range sides {
		s.by = by
		s.late.Store(late)
		if late {
			s.rouse()
		}
	}
	if sooner && !late {
		c.fireAt(by, by-time.Since(began))
	}
	return nil
}

// fireAt has the timer look at the deadlines at a time, which is after a while.
func (c *Conn) fireAt(at, after time.Duration) {
	c.fires = at
	if c.timer == nil {
		c.timer = time.AfterFunc(after, c.look)
		return
	}
	c.timer.Reset(after)
}

// look sees which deadlines have passed.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fires = 0
	if c.users.Load()&closing != 0 {
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
