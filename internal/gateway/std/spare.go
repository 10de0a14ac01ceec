package std

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// A spareConn is a connection that net/http serves. A client may open one ahead of its first request, so until a byte comes it
// is as idle as between two requests; once a byte has come the TLS handshake, or the head, has Limits.Header. net/http gives
// both Limits.Header from the start.
//
// A connection that ends in a time-out before a head is complete is closed without a word. net/http takes what it has of a
// line for all of it then, and answers 400.
type spareConn struct {
	net.Conn
	header, idle time.Duration
	records      *tlsRecords // as they are read; nil: no TLS

	mu        sync.Mutex
	fresh     bool // no head has come
	head      bool // a head is awaited
	idling    bool // no read deadline was set since the last answer
	expires   bool // the read deadline was in the future when it was set
	untouched bool // no byte has come since it was set
	silent    bool // nothing is said any more
}

type spareListener struct {
	net.Listener
	header, idle time.Duration
	secure       bool
}

func (l spareListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	spare := &spareConn{Conn: c, header: l.header, idle: l.idle, fresh: true, head: true}
	if l.secure {
		spare.records = new(tlsRecords)
	}
	return spare, nil
}

// tlsRecords follow what is read of TLS records, so that no read but the first takes more than one. What a client sends right
// behind its handshake would lie with TLS otherwise, and nobody here could know that a head has begun.
type tlsRecords struct {
	begun  bool
	header [5]byte
	known  int // of header
	left   int // of the record behind it
}

// room returns the part of p that the next read may fill.
func (r *tlsRecords) room(p []byte) []byte {
	switch {
	case !r.begun: // a hello, or no TLS at all
		return p
	case r.left > 0:
		return p[:min(len(p), r.left)]
	}
	return p[:min(len(p), len(r.header)-r.known)]
}

// read notes what was read into room.
func (r *tlsRecords) read(p []byte) {
	for r.begun = r.begun || len(p) > 0; len(p) > 0; {
		if r.left > 0 {
			n := min(r.left, len(p))
			r.left -= n
			p = p[n:]
			continue
		}
		n := copy(r.header[r.known:], p)
		p = p[n:]
		if r.known += n; r.known == len(r.header) {
			r.known, r.left = 0, int(r.header[3])<<8|int(r.header[4])
		}
	}
}

// note follows net/http's state of a connection.
func (c *spareConn) note(state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive, http.StateHijacked:
		c.fresh, c.head = false, false
	case http.StateIdle:
		c.head, c.idling = true, true
	}
}

// spareUnder returns the spareConn under a connection of net/http; nil if there is none.
func spareUnder(c net.Conn) *spareConn {
	spare, _ := socketUnder(c).(*spareConn)
	return spare
}

// SetReadDeadline is net.Conn's. Before the first head a deadline waits for the first byte.
func (c *spareConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.expires = t.After(now)
	c.untouched = c.expires && (c.fresh || c.idling)
	if c.idling = false; c.fresh && c.expires {
		t = now.Add(c.idle)
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline is net.Conn's. The one that net/http sets for a TLS handshake runs from the start, so the pace of writes
// stands in for it.
func (c *spareConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	fresh := c.fresh
	c.mu.Unlock()
	if fresh && t.After(time.Now()) {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is net.Conn's.
func (c *spareConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Read is net.Conn's.
func (c *spareConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	records := c.records
	if !c.fresh {
		records = nil
	}
	c.mu.Unlock()
	if records != nil {
		p = records.room(p)
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if records != nil {
		records.read(p[:n])
	}
	if n > 0 && c.untouched {
		c.untouched = false
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.header))
	}
	if c.head && c.expires && errors.Is(err, os.ErrDeadlineExceeded) {
		c.silent = true
	}
	return n, err
}

// Write is net.Conn's.
func (c *spareConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	silent := c.silent
	c.mu.Unlock()
	if silent {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the sending half, where there are halves.
func (c *spareConn) CloseWrite() error { return closeWrite(c.Conn) }

// SyscallConn returns what reaches the socket.
func (c *spareConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
