package fast

import (
	"context"
	"sync"
	"time"
)

// A connContext ends with its connection, or when its base is cancelled. Most are never waited for,
// so one costs nothing until Done is called: a server keeps ten thousand of them.
type connContext struct {
	base context.Context

	mu   sync.Mutex
	over bool
	done chan struct{} // nil: Done was not called
	stop func() bool   // of the wait for base
}

var _ context.Context = (*connContext)(nil)

// Deadline implements context.Context. It is the base's.
func (c *connContext) Deadline() (deadline time.Time, ok bool) { return c.base.Deadline() }

// Value implements context.Context.
func (c *connContext) Value(key any) any { return c.base.Value(key) }

// Done implements context.Context.
func (c *connContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.over {
			close(c.done)
		} else {
			c.stop = context.AfterFunc(c.base, c.cancel)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *connContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return context.Canceled
	}
	return c.base.Err()
}

func (c *connContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	if c.stop != nil {
		c.stop()
	}
	if c.done != nil {
		close(c.done)
	}
}
