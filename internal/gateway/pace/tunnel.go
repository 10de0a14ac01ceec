package pace

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A Tunnel bounds two connections of which each is copied to the other. After one side has ended
// its half, what the other still sends is passed on for a while. A client that is gone and one that
// has only ended its half look the same, and so does an upstream that never notices the end. Set
// its fields before Start; its methods are safe for concurrent use.
type Tunnel struct {
	Idle time.Duration // without a byte; 0: no bound before a half has ended
	Half time.Duration // without a byte, after a half has ended
	Most time.Duration // in all after a half has ended
	End  func()        // closes both connections; may be called twice

	watched atomic.Bool  // the timer runs
	moved   atomic.Int64 // nanoseconds from start to the last byte

	mu    sync.Mutex
	over  bool
	start time.Time
	half  time.Time // when the first half ended; zero: none has
	timer *time.Timer
}

// Start is called when the tunnel opens.
func (t *Tunnel) Start() {
	if t.Idle > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.watch()
	}
}

// HalfEnded is called when a half has ended.
func (t *Tunnel) HalfEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.half.IsZero() {
		return
	}
	t.half = time.Now()
	t.watch()
	t.moved.Store(int64(t.half.Sub(t.start)))
	t.timer.Reset(t.left(t.half))
}

// watch starts the timer, unless that was done. The mutex is held.
func (t *Tunnel) watch() {
	if t.timer != nil {
		return
	}
	t.start = time.Now()
	t.watched.Store(true)
	t.timer = time.AfterFunc(t.left(t.start), t.look)
	if t.over {
		t.timer.Stop()
	}
}

// left returns for how long the tunnel may still be silent at now. The mutex is held.
func (t *Tunnel) left(now time.Time) time.Duration {
	quiet := now.Sub(t.start) - time.Duration(t.moved.Load())
	if t.half.IsZero() {
		return t.Idle - quiet
	}
	silence := t.Half
	if t.Idle > 0 {
		silence = min(silence, t.Idle)
	}
	return min(silence-quiet, t.Most-now.Sub(t.half))
}

// Note is called when bytes have passed.
func (t *Tunnel) Note() {
	if t.watched.Load() {
		t.moved.Store(int64(time.Since(t.start)))
	}
}

func (t *Tunnel) look() {
	t.mu.Lock()
	left := t.left(time.Now())
	ends := !t.over && left <= 0
	if !t.over && left > 0 {
		t.timer.Reset(left)
	}
	t.mu.Unlock()
	if ends {
		t.End()
	}
}

// Stop is called when both connections have ended.
func (t *Tunnel) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// OneWay is one way of a tunnel.
type OneWay struct {
	io.Reader
	Of *Tunnel
}

// Read notes what it reads.
func (o OneWay) Read(b []byte) (int, error) {
	n, err := o.Reader.Read(b)
	if n > 0 {
		o.Of.Note()
	}
	return n, err
}
