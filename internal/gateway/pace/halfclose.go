package pace

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A halfClose bounds a tunnel of which one side has ended its half: what the other still says is passed on while it comes, and
// when nothing has come for a while both connections end. A client that is gone and one that has only ended its half look the
// same, and so does an upstream that never notices the end. Its methods may be called by several goroutines.
type halfClose struct {
	most time.Duration // without a byte
	end  func()        // closes both connections; may be called twice

	begun atomic.Bool
	moved atomic.Int64 // nanoseconds after start

	mu    sync.Mutex
	over  bool
	start time.Time
	timer *time.Timer
}

// begin is called when a half has ended.
func (h *halfClose) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.timer != nil {
		return
	}
	h.start = time.Now()
	h.begun.Store(true)
	h.timer = time.AfterFunc(h.most, h.look)
}

// note is called when bytes have passed.
func (h *halfClose) note() {
	if h.begun.Load() {
		h.moved.Store(int64(time.Since(h.start)))
	}
}

func (h *halfClose) look() {
	h.mu.Lock()
	quiet := time.Since(h.start) - time.Duration(h.moved.Load())
	over := h.over
	if !over && quiet < h.most {
		h.timer.Reset(h.most - quiet)
		over = true
	}
	h.mu.Unlock()
	if !over {
		h.end()
	}
}

// stop is called when both connections have ended.
func (h *halfClose) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// oneHalf is one way of a tunnel.
type oneHalf struct {
	io.Reader
	half *halfClose
}

func (p oneHalf) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.half.note()
	}
	return n, err
}
