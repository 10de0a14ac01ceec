package fast

import "time"

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// allow gives the reads that follow d at least, and a quarter more at most.
func (c *conn) allow(now time.Time, d time.Duration) {
	if left := c.deadline.Sub(now); left < d || left > d+d/4 {
		c.moveDeadline(now.Add(d + d/8))
	}
}

func (c *conn) moveDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.interrupted {
		c.deadline = t
		_ = c.raw.SetReadDeadline(t)
	}
}

// interrupt ends a read that another goroutine is in, and every further one, until resume.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	_ = c.raw.SetReadDeadline(longAgo)
}

func (c *conn) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted, c.deadline = false, time.Time{}
}

func (c *conn) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}
