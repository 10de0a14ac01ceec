package upstream

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
)

// errSentOnce is why net/http gives up a request whose kept connection ended.
var errSentOnce = errors.New("the kept connection ended before an answer came, and the request went out")

// A CountedConn counts what is written to it, so that Transport can tell a request that went out from one that did not. It takes
// nothing where Transport has found that it is not as it was left.
type CountedConn struct {
	net.Conn
	raw   syscall.RawConn // of the socket; nil: unknown
	sent  atomic.Int64
	stale atomic.Bool
}

// Count returns c counted. socket is what is below it all, and is tried before each request but the first; one that has no
// syscall.RawConn is not.
func Count(c, socket net.Conn) *CountedConn {
	counted := &CountedConn{Conn: c}
	if s, ok := socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			counted.raw = raw
		}
	}
	return counted
}

// try has writes fail where the other side has ended the connection, or sent anything, and net/http does not know it yet. It sends
// the request on another one then.
func (c *CountedConn) try() {
	if c.raw == nil {
		return
	}
	quiet := true
	if err := c.raw.Control(func(fd uintptr) { quiet = isQuiet(fd) }); err != nil || !quiet {
		c.stale.Store(true)
	}
}

// Write is net.Conn's.
func (c *CountedConn) Write(p []byte) (int, error) {
	if c.stale.Load() {
		return 0, ErrStale
	}
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// CloseWrite closes the sending half where the connection has halves.
func (c *CountedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// got remembers the connection of an attempt, under TLS too.
func (l *link) got(c net.Conn) {
	for {
		if counted, ok := c.(*CountedConn); ok {
			if l.reused.Load() {
				counted.try()
			}
			l.before.Store(counted.sent.Load())
			l.conn.Store(counted)
			return
		}
		under, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			l.conn.Store(nil)
			return
		}
		c = under.NetConn()
	}
}

// wrote reports whether anything may have gone out on the connection since the attempt has it.
func (l *link) wrote() bool {
	c := l.conn.Load()
	return c == nil || c.sent.Load() != l.before.Load()
}

// sendOnce keeps net/http from sending a request without a body again once something of it went out: it was counted once. net/http does
// so where a kept connection ends, for methods that may be repeated, and for any where a field names a key for that.
func (l *link) sendOnce(r *http.Request) {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions: // of which net/http tries whether a body is none
		r.Body, r.GetBody = nothing{}, func() (io.ReadCloser, error) {
			if l.wrote() {
				return nil, errSentOnce
			}
			return nothing{}, nil
		}
	default:
		for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
			if values, ok := r.Header[name]; ok {
				r.Header = maps.Clone(r.Header)
				delete(r.Header, name)
				r.Header[strings.ToLower(name)] = values // names are the same in any case, but net/http looks for this one
			}
		}
	}
}

// nothing is a body without a byte. It is not http.NoBody, with which a request counts as one that may be sent again.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }
func (nothing) Close() error             { return nil }
