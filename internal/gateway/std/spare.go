package std

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A spareConn is a connection that net/http serves. A client may open one ahead of its first
// request, so until a byte comes it has Limits.Idle, as between two requests. Then the TLS
// handshake, or the head, has Limits.Header. net/http gives both Limits.Header from the start.
//
// A connection that ends in a time-out before a head is complete is closed without an answer.
// net/http would take the part of a line that has come for all of it, and answer 400.
type spareConn struct {
	net.Conn
	header, idle time.Duration
	records      *pace.Records // nil: no TLS

	mu        sync.Mutex
	fresh     bool // no head has come
	head      bool // a head is awaited
	idling    bool // no read deadline was set since the last answer
	expires   bool // the read deadline was in the future when it was set
	untouched bool // no byte has come since it was set
	silent    bool // writes fail
}

// NetConn returns the connection below.
func (c *spareConn) NetConn() net.Conn { return c.Conn }

// Listener returns a listener for Server: its connections give a client more time before its first
// request.
func (e *Engine) Listener(l net.Listener) net.Listener {
	return spareListener{l, e.Limits.Header, e.Limits.Idle, e.options.TLS != nil}
}

type spareListener struct {
	net.Listener
	header, idle time.Duration
	secure       bool
}

// Accept returns a *spareConn.
func (l spareListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	spare := &spareConn{Conn: c, header: l.header, idle: l.idle, fresh: true, head: true}
	if l.secure {
		spare.records = new(pace.Records)
	}
	return spare, nil
}

// note records net/http's state of the connection.
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
	spare, _ := pace.UnderTLS(c).(*spareConn)
	return spare
}

// SetReadDeadline is net.Conn's. Before the first head a deadline starts with the first byte.
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

// SetWriteDeadline is net.Conn's. It ignores the one that net/http sets for a TLS handshake, which
// runs from the start. Writes have the deadlines of the pace.Conn below instead.
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
		p = records.Room(p)
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if records != nil {
		records.Read(p[:n])
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

// CloseWrite closes the sending half, if the connection has halves.
func (c *spareConn) CloseWrite() error { return pace.CloseWrite(c.Conn) }

// SyscallConn returns access to the socket.
func (c *spareConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
