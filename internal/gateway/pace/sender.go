package pace

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A sender is the client of one connection, as it sends. Progress is counted on the socket: TLS hands nothing on before a record
// is whole, and a record of 16 KiB takes longer than the grace at the least rate. The zero value is ready for use.
type sender struct {
	received atomic.Int64 // bytes that were read from the socket, ever
	awaited  atomic.Bool  // pace is set

	mu     sync.Mutex
	by     time.Time  // the read deadline; zero: there is none
	pace   *allowance // of the HTTP/1 body that is being read; nil: none is
	limits *Limits    // for pace
	looked time.Time  // when pace was last charged
}

// Read is net.Conn's. While an HTTP/1 body is read each arrival moves the read deadline.
func (c *pacedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sender.received.Add(int64(n))
		if c.sender.awaited.Load() {
			c.arrived(n)
		}
	}
	return n, err
}

// SetReadDeadline is net.Conn's.
func (c *pacedConn) SetReadDeadline(t time.Time) error {
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = t
	return c.Conn.SetReadDeadline(t)
}

// readDeadline returns the read deadline; zero if there is none.
func (c *pacedConn) readDeadline() time.Time {
	c.sender.mu.Lock()
	defer c.sender.mu.Unlock()
	return c.sender.by
}

// awaitBody begins the wait for a piece of an HTTP/1 body. A nil connection counts nothing.
func (c *pacedConn) awaitBody(a *allowance, l *Limits, now time.Time) {
	if c == nil {
		return
	}
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace, s.limits, s.looked = a, l, now
	s.awaited.Store(true)
}

// endAwait ends that wait, which brought n bytes of the body. It reports whether the client may go on.
func (c *pacedConn) endAwait(a *allowance, l *Limits, began time.Time, n int) bool {
	if c == nil {
		return a.spend(l, time.Since(began), n)
	}
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace = nil
	s.awaited.Store(false)
	return a.spend(l, time.Since(s.looked), 0) // arrived counted the bytes
}

// arrived charges the wait, counts n bytes of progress and moves the deadline. A deadline that has passed stays: somebody ended the
// read with it.
func (c *pacedConn) arrived(n int) {
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == nil {
		return
	}
	now := time.Now()
	goesOn := s.pace.spend(s.limits, now.Sub(s.looked), n)
	s.looked = now
	if !s.by.After(now) {
		return
	}
	by := now
	if goesOn {
		next := s.pace.next(s.limits)
		if s.by.Sub(now) >= next-next/4 {
			return
		}
		by = now.Add(next)
	}
	s.by = by
	_ = c.Conn.SetReadDeadline(by)
}

// A direction is the sum of all streams of one HTTP/2 connection in one direction. They share one allowance, because they share
// one link: any byte on the socket is progress, and the clock runs once, however many streams wait. A stream is ended if both its
// own allowance and the connection's are used up. The zero value has to begin.
type direction struct {
	mu      sync.Mutex
	pace    allowance
	begun   bool
	waiting int       // streams that wait for the client
	looked  time.Time // when pace was last charged
	moved   int64     // bytes on the socket by then

	// Uploads only: how much of what the client sent may lie unread here, at most, is moved-consumed.
	open     int // bodies that have not ended
	consumed int64
}

// windowHeld is how much unread data may close the window of an HTTP/2 connection. The window is 1 MiB; the margin covers
// what the server gives back late.
const windowHeld = 768 << 10

// charge brings the allowance up to date. Nobody is charged while unread data may fill the window: the client may not send then,
// because some backend does not read.
func (d *direction) charge(l *Limits, now time.Time, total int64) {
	if !d.begun {
		d.begun = true
		d.pace.begin(l)
	}
	var waited time.Duration
	if d.waiting > 0 && (d.open == 0 || total-d.consumed < windowHeld) {
		waited = now.Sub(d.looked)
	}
	d.pace.spend(l, waited, int(total-d.moved))
	d.looked, d.moved = now, total
}

// await notes that a stream begins to wait for the client. total is the number of bytes on the socket so far.
func (d *direction) await(l *Limits, now time.Time, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charge(l, now, total)
	d.waiting++
}

// endAwait notes that the wait is over. It reports whether the client, with all its streams, is fast enough.
func (d *direction) endAwait(l *Limits, now time.Time, total int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.charge(l, now, total)
	d.waiting--
	return l.Rate <= 0 || d.pace.left > 0
}

// openBody notes that a request with a body has come.
func (d *direction) openBody() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
}

// closeBody notes that a body has ended, or that nobody reads it any more: the server gives its window back.
func (d *direction) closeBody(total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 {
		d.consumed = total
	}
}

// read notes that n bytes of a body were read, and whether that was all there was.
func (d *direction) read(n int, emptied bool, total int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.consumed += int64(n)
	if emptied && d.waiting+1 == d.open { // every other body is waited for, so nothing lies unread
		d.consumed = total
	}
}

// connKey is under which a request's context has its *pacedConn.
type connKey struct{}

// withConn is http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, pacedUnder(c))
}

// pacedConnOf returns the connection of a request; nil if it came another way than by Serve.
func pacedConnOf(ctx context.Context) *pacedConn {
	c, _ := ctx.Value(connKey{}).(*pacedConn)
	return c
}

// pacedUnder returns the pacedConn under the layers of a connection; nil if there is none.
func pacedUnder(c net.Conn) *pacedConn {
	for {
		switch layer := c.(type) {
		case *pacedConn:
			return layer
		case *tls.Conn:
			c = layer.NetConn()
		case *helloConn:
			c = layer.Conn
		case *spareConn:
			c = layer.Conn
		case *begunConn:
			c = layer.Conn
		default:
			return nil
		}
	}
}
