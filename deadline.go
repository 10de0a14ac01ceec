package weir

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadlineParts is into how many parts a deadline is cut: takes that are asked within one share a timer, and those that come
// late in it wait that much less.
const deadlineParts = 16

// deadlines bound the waiting for a store. Takes that are asked at about the same time share one timer and one channel: 0.1 µs
// a take, where context.WithTimeout costs 0.6 (BenchmarkDeadline). While nobody asks there is neither.
type deadlines struct {
	length  time.Duration
	start   time.Time // what current counts from
	current atomic.Pointer[deadline]
	mu      sync.Mutex // held to replace current
}

// A deadline is what the takes of one slice of time share.
type deadline struct {
	until time.Duration // since start: takes that are asked later need another
	at    time.Time
	done  chan struct{} // closed at that time
}

// bound returns a context for one take, which may be held for as long as anybody likes: with the values of ctx, without its
// cancellation, done when length has passed, or up to a sixteenth earlier.
func (d *deadlines) bound(ctx context.Context) context.Context {
	shared := d.current.Load()
	if shared == nil || time.Since(d.start) >= shared.until {
		shared = d.renew()
	}
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return &bounded{ctx, shared}
}

func (d *deadlines) renew() *deadline {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	passed := now.Sub(d.start)
	if shared := d.current.Load(); shared != nil && passed < shared.until {
		return shared
	}
	done := make(chan struct{})
	shared := &deadline{until: passed + d.length/deadlineParts, at: now.Add(d.length), done: done}
	time.AfterFunc(d.length, func() { close(done) })
	d.current.Store(shared)
	return shared
}

// A bounded context is one take's.
type bounded struct {
	context.Context // for its values; never done
	shared          *deadline
}

func (b *bounded) Deadline() (time.Time, bool) { return b.shared.at, true }

func (b *bounded) Done() <-chan struct{} { return b.shared.done }

func (b *bounded) Err() error {
	select {
	case <-b.shared.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
