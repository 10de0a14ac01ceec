package pace

import (
	"sync"
	"sync/atomic"
	"time"
)

// A sender is the client of one connection, as it sends. Progress is counted on the socket: TLS
// passes nothing on before a record is whole, and at the minimum rate a record of 16 KiB takes
// longer than the grace. The zero value is ready for use.
type sender struct {
	received atomic.Int64 // bytes that were read from the socket, ever
	awaited  atomic.Bool  // pace is set

	mu     sync.Mutex
	by     time.Time  // the read deadline; zero: there is none
	pace   *Allowance // of the HTTP/1 body that is being read; nil: none is
	limits *Limits    // for pace
	looked time.Time  // when pace was last charged
}

// Received returns how many bytes were read from the socket, ever.
func (c *Conn) Received() int64 { return c.sender.received.Load() }

// Read is net.Conn's. While an HTTP/1 body is read, each arrival moves the read deadline.
func (c *Conn) Read(p []byte) (int, error) {
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
func (c *Conn) SetReadDeadline(t time.Time) error {
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = t
	return c.Conn.SetReadDeadline(t)
}

// ReadDeadline returns the read deadline; zero if there is none.
func (c *Conn) ReadDeadline() time.Time {
	c.sender.mu.Lock()
	defer c.sender.mu.Unlock()
	return c.sender.by
}

// AwaitBody starts the wait for a piece of an HTTP/1 body. A nil connection counts nothing.
func (c *Conn) AwaitBody(a *Allowance, l *Limits, now time.Time) {
	if c == nil {
		return
	}
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace, s.limits, s.looked = a, l, now
	s.awaited.Store(true)
}

// EndAwait ends that wait, which brought n bytes of the body. It reports whether the client may
// continue.
func (c *Conn) EndAwait(a *Allowance, l *Limits, began time.Time, n int) bool {
	if c == nil {
		return a.Spend(l, time.Since(began), n)
	}
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace = nil
	s.awaited.Store(false)
	return a.Spend(l, time.Since(s.looked), 0) // arrived counted the bytes
}

// arrived charges the wait, counts n bytes of progress and moves the deadline. A deadline that has
// passed stays: the owner of the connection has ended the read with it.
func (c *Conn) arrived(n int) {
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == nil {
		return
	}
	now := time.Now()
	continues := s.pace.Spend(s.limits, now.Sub(s.looked), n)
	s.looked = now
	if !s.by.After(now) {
		return
	}
	by := now
	if continues {
		next := s.pace.Next(s.limits)
		if s.by.Sub(now) >= next-next/4 {
			return
		}
		by = now.Add(next)
	}
	s.by = by
	_ = c.Conn.SetReadDeadline(by)
}
