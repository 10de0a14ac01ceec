package weir

import (
	"context"
	"sync"
)

// waiters counts the goroutines that wait for a store, and bounds their number.
type waiters struct {
	max    int
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // not nil: close waits
}

func (w *waiters) acquire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.n == w.max {
		return false
	}
	w.n++
	return true
}

// acquireMore is acquire beyond the bound, and after close. It returns true.
func (w *waiters) acquireMore() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	return true
}

func (w *waiters) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n--; w.n == 0 && w.empty != nil {
		close(w.empty)
		w.empty = nil
	}
}

// close rejects more, and waits until the last has ended or ctx ends.
func (w *waiters) close(ctx context.Context) {
	w.mu.Lock()
	w.closed = true
	if w.n > 0 && w.empty == nil {
		w.empty = make(chan struct{})
	}
	empty := w.empty
	w.mu.Unlock()
	if empty == nil {
		return
	}
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
