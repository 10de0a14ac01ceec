package http2

import (
	"golang.org/x/net/http2"
)

// What bounds a client that misbehaves, beside the windows (window.go), the size of heads (head.go)
// and the times (look.go, body.go, send.go). Frames that cost the client little and bring no
// request forward count; every frame of a body, either way, and every answer gives them back, and
// so does time. With more than maxCheap the connection ends with ENHANCE_YOUR_CALM.
const (
	maxCheap  = 1000
	cheapBack = 10 // in each tick
	// Frames of data with less than this bring no request forward; one without data is cheap.
	cheapData = 128
	// A reset costs the client less than us: a request was read, judged and begun.
	costOfReset = 4
)

// maxHeadFrames is how many frames one head may come in.
const maxHeadFrames = 16

// bounds count what a client sends cheaply. The mutex of the connection guards them.
type bounds struct {
	cheap int
	at    int64 // the tick at which cheap was brought up to date
	over  bool
	// WINDOW_UPDATEs for what was sent, which are not cheap frames whenever they come
	updates int
}

// maxUpdates is how many WINDOW_UPDATEs a client may owe: it may read what it has received late,
// and in small parts. Go's acknowledges 4 KiB at a time, on the stream and on the connection.
const maxUpdates = 64 << 10

// count counts a cheap frame. The mutex is held.
func (b *bounds) count(c *conn, cost int) {
	if tick := c.engine.tick.Load(); tick != b.at {
		b.cheap = max(0, b.cheap-int(min(tick-b.at, maxCheap))*cheapBack)
		b.at = tick
	}
	if b.cheap += cost; b.cheap > maxCheap {
		b.over = true
	}
}

// countUpdate counts a WINDOW_UPDATE. The mutex is held.
func (b *bounds) countUpdate(c *conn) {
	if b.updates > 0 {
		b.updates--
		return
	}
	b.count(c, 1)
}

// sent records that n bytes of a body are sent: a client may acknowledge them in small parts, on
// their stream and on the connection. The mutex is held.
func (b *bounds) sent(n int) {
	b.updates = min(b.updates+2+n/256, maxUpdates)
	b.progress(n)
}

// progress records that n bytes of a body have come, or are sent. The mutex is held.
func (b *bounds) progress(n int) { b.cheap = max(0, b.cheap-2-n/256) }

// done records that an answer is complete. The mutex is held.
func (b *bounds) done() { b.cheap = max(0, b.cheap-2*costOfReset) }

// checkFlood returns the error that ends a connection with too many cheap frames.
func (c *conn) checkFlood() error {
	c.mu.Lock()
	over := c.bounds.over
	c.mu.Unlock()
	if over {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
