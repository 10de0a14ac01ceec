package failover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadlineSlices is the number of slices of a deadline's length. Takes that begin within one slice
// share a timer, so the later ones wait up to a slice less.
const deadlineSlices = 16

// deadlines bound the wait for a store. Takes that begin at about the same time share one timer
// and one channel. That costs 0.1 µs a take, and context.WithTimeout costs 0.6 (BenchmarkDeadline).
// Without takes there is no timer.
type deadlines struct {
	length  time.Duration
	start   time.Time // deadline.until counts from it
	current atomic.Pointer[deadline]
	mu      sync.Mutex // held to replace current
}

// A deadline is shared by the takes of one slice.
type deadline struct {
	until time.Duration // since deadlines.start; takes that begin later need another deadline
	at    time.Time
	done  chan struct{} // closed at that time
}

// context returns the context of one take. It has the values of ctx and not its cancellation. It
// is done when length has passed since its end was first asked for, or up to a sixteenth earlier.
// A store that answers at once never asks, and then the clock is not read. The store may keep the
// context for any time.
func (d *deadlines) context(ctx context.Context) context.Context {
	return &takeContext{values: ctx, deadlines: d}
}

// now returns the deadline of a take that begins now.
func (d *deadlines) now() *deadline {
	if current := d.current.Load(); current != nil && time.Since(d.start) < current.until {
		return current
	}
	return d.renew()
}

func (d *deadlines) renew() *deadline {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	passed := now.Sub(d.start)
	if current := d.current.Load(); current != nil && passed < current.until {
		return current
	}
	done := make(chan struct{})
	next := &deadline{until: passed + d.length/deadlineSlices, at: now.Add(d.length), done: done}
	time.AfterFunc(d.length, func() { close(done) })
	d.current.Store(next)
	return next
}

// A takeContext is the context of one take.
type takeContext struct {
	values    context.Context
	deadlines *deadlines
	own       atomic.Pointer[deadline] // nil until the store asks for it
}

func (c *takeContext) deadline() *deadline {
	if own := c.own.Load(); own != nil {
		return own
	}
	c.own.CompareAndSwap(nil, c.deadlines.now())
	return c.own.Load()
}

// Value hides the cancellation of the parent, which package context reads by Value.
func (c *takeContext) Value(key any) any { return context.WithoutCancel(c.values).Value(key) }

func (c *takeContext) Deadline() (time.Time, bool) { return c.deadline().at, true }

func (c *takeContext) Done() <-chan struct{} { return c.deadline().done }

func (c *takeContext) Err() error {
	select {
	case <-c.deadline().done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
