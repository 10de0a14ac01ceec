package http2

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A callContext ends with a stream, or with a connection. It costs no goroutine, and next to
// nothing until Done is called: context.AfterFunc uses its AfterFunc. When its base ends, all
// connections are being closed, and their streams end with them.
type callContext struct {
	base context.Context

	mu    sync.Mutex
	over  bool
	done  chan struct{} // nil: Done was not called
	after []*func()     // to be called at the end
	first func()        // too; most contexts have no other; nil: none
	turn  int           // of first
}

var _ context.Context = (*callContext)(nil)

// Deadline implements context.Context. It is the base's.
func (c *callContext) Deadline() (deadline time.Time, ok bool) { return c.base.Deadline() }

// Value implements context.Context.
func (c *callContext) Value(key any) any { return c.base.Value(key) }

// Done implements context.Context.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.over {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return context.Canceled
	}
	return nil
}

// AfterFunc has f called in a goroutine of its own after the end, as context.AfterFunc asks. stop
// reports whether it has kept f from being called.
func (c *callContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		go f()
		return func() bool { return false }
	}
	if c.first == nil {
		c.first = f
		c.turn++
		turn := c.turn
		return func() bool { return c.stopFirst(turn) }
	}
	other := f // so that only this way allocates
	return c.add(&other)
}

// stopFirst keeps first from being called.
func (c *callContext) stopFirst(turn int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil || c.turn != turn {
		return false
	}
	c.first = nil
	return true
}

// add adds a function to be called at the end. The mutex is held.
func (c *callContext) add(key *func()) (stop func() bool) {
	c.after = append(c.after, key)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, key)
		if i < 0 {
			return false
		}
		c.after = slices.Delete(c.after, i, i+1)
		return true
	}
}

// isFree reports whether the context has not ended, and nothing waits for that.
func (c *callContext) isFree() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.over && c.done == nil && c.first == nil && len(c.after) == 0
}

func (c *callContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	if c.done != nil {
		close(c.done)
	}
	if c.first != nil {
		go c.first()
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.first, c.after = nil, nil
}
