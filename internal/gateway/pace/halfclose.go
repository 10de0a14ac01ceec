package pace

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A HalfClose bounds a tunnel of which one side has ended its half. What the other side still sends
// is passed on while it comes. When nothing has come for a while, both connections end. A client
// that is gone and one that has only ended its half look the same, and so does an upstream that
// never notices the end. Its methods are safe for concurrent use.
type HalfClose struct {
	Max time.Duration // without a byte
	End func()        // closes both connections; may be called twice

	begun atomic.Bool
	moved atomic.Int64 // nanoseconds after start

	mu    sync.Mutex
	over  bool
	start time.Time
	timer *time.Timer
}

// Begin is called when a half has ended.
func (h *HalfClose) Begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.timer != nil {
		return
	}
	h.start = time.Now()
	h.begun.Store(true)
	h.timer = time.AfterFunc(h.Max, h.look)
}

// Note is called when bytes have passed.
func (h *HalfClose) Note() {
	if h.begun.Load() {
		h.moved.Store(int64(time.Since(h.start)))
	}
}

func (h *HalfClose) look() {
	h.mu.Lock()
	quiet := time.Since(h.start) - time.Duration(h.moved.Load())
	ends := !h.over
	if ends && quiet < h.Max {
		h.timer.Reset(h.Max - quiet)
		ends = false
	}
	h.mu.Unlock()
	if ends {
		h.End()
	}
}

// Stop is called when both connections have ended.
func (h *HalfClose) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// OneWay is one way of a tunnel.
type OneWay struct {
	io.Reader
	Half *HalfClose
}

// Read notes what it reads.
func (o OneWay) Read(b []byte) (int, error) {
	n, err := o.Reader.Read(b)
	if n > 0 {
		o.Half.Note()
	}
	return n, err
}
