package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// A gate is closed and opened again and again. The zero gate is open.
type gate struct {
	mu      sync.Mutex
	closing uint64                        // how often it was closed, also if it was closed already
	shut    atomic.Pointer[chan struct{}] // closed when it opens; nil: it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing++; g.shut.Load() == nil {
		shut := make(chan struct{})
		g.shut.Store(&shut)
	}
}

func (g *gate) isShut() bool { return g.shut.Load() != nil }

func (g *gate) closings() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closing
}

// open opens the gate, unless it was closed since closings returned the number.
func (g *gate) open(closings uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shut := g.shut.Load(); shut != nil && g.closing == closings {
		g.shut.Store(nil)
		close(*shut)
	}
}

// await waits until the gate is open, and reports whether it has waited. It returns an error if ctx
// or closed ends first.
func (g *gate) await(ctx, closed context.Context) (waited bool, err error) {
	shut := g.shut.Load()
	if shut == nil {
		return false, nil
	}
	select {
	case <-*shut:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	case <-closed.Done():
		return true, ErrClosed
	}
}

// connections are those to servers that count, in the order in which they began. A client of
// Sentinels uses a new one only a moment later, or never.
type connections struct {
	mu    sync.Mutex
	all   []*watchedConn
	stale map[string]*staleMaster // by address
}

// begin adds a connection, unless it is to a stale master.
func (c *connections) begin(w *watchedConn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.staleNow(w.address) != nil {
		return staleError(w.address)
	}
	c.all = append(c.all, w)
	return nil
}

// end removes a connection. Only the first call has an effect.
func (c *connections) end(w *watchedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.all, w); i >= 0 {
		c.all = slices.Delete(c.all, i, i+1)
	}
}

// newest returns the address of the last one that has begun and not ended, "" if it began before a
// time.
func (c *connections) newest(since int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.all); n > 0 && c.all[n-1].began >= since {
		return c.all[n-1].address
	}
	return ""
}
