package fast

import (
	"net"
	"sync"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A handedListener gives another engine the connections that speak HTTP/2.
type handedListener struct {
	conns  chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

// hand reports whether the other engine has taken the connection. It takes none after Close.
func (l *handedListener) hand(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept is net.Listener's.
func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is net.Listener's.
func (l *handedListener) Addr() net.Addr { return l.addr }

// A begunConn is a connection of which some bytes were read, and are to be read first.
type begunConn struct {
	net.Conn
	begin []byte
}

// NetConn returns the connection below.
func (c *begunConn) NetConn() net.Conn { return c.Conn }

// Read is net.Conn's.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begin) > 0 {
		n := copy(p, c.begin)
		c.begin = c.begin[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite closes the sending half, if the connection has halves.
func (c *begunConn) CloseWrite() error { return pace.CloseWrite(c.Conn) }
