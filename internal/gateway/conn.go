package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/weirlimit/weir/internal/poller"
	"github.com/weirlimit/weir/internal/unsent"
)

// A pacedConn gives every write a deadline of its own, so that a peer that stops reading, or a client that reads less than
// Limits.Rate, is let go while a long stream to one that reads slowly, or a quiet one, lives as long as it likes. Large writes go out in pieces for the same reason.
type pacedConn struct {
	net.Conn
	patience time.Duration
	began    time.Time    // what nanoseconds are counted from here: a clock that is set meanwhile moves nothing
	moved    atomic.Int64 // when the write deadline was last moved, in nanoseconds; 0: it must be, at the next write
	explicit atomic.Bool  // whether somebody else has set it

	recent *atomic.Int64 // a clock that is a little late, in nanoseconds, for who writes often; nil: the machine's

	reader   *reader // how the other side takes what is written; nil: it has patience for each 64 KiB
	accepted atomic.Int64
	sender   sender

	uploads, answers direction // of HTTP/2's streams
}

// A reader is a client that takes an answer. A write that has to wait ends now and then to look how much the client has
// acknowledged since the last look, so that one which takes its time lives, and one that takes a byte at a time does not. How much
// the socket has taken says little: Linux lets a writer go on when a third of a buffer of megabytes is free.
type reader struct {
	limits *Limits

	mu           sync.Mutex
	pace         allowance
	acknowledged int64         // at the last look
	looked       time.Time     // when that was
	stalled      time.Duration // for how long nothing was acknowledged
}

// goesOn reports whether a client for which a write has waited may go on.
func (c *pacedConn) goesOn() bool {
	r := c.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	waited := now.Sub(r.looked)
	if waited > c.patience+c.patience/4 { // this write's first look; it has waited for three quarters at least
		waited = c.patience - c.patience/4
	}
	r.looked = now
	acknowledged := c.accepted.Load() - unsent.Unacknowledged(c)
	progress := acknowledged - r.acknowledged
	r.acknowledged = acknowledged
	if r.stalled += waited; progress > 0 {
		r.stalled = 0
	}
	return r.pace.spend(r.limits, waited, int(max(progress, 0))) && r.stalled < r.limits.Take
}

// writePiece is the most that one deadline covers.
const writePiece = 64 << 10

func (c *pacedConn) Write(p []byte) (n int, err error) {
	for {
		if err := c.pace(); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(len(p), n+writePiece)])
		n += m
		if c.reader != nil {
			c.accepted.Add(int64(m))
			if err != nil && n < len(p) && isTimeout(err) && !c.explicit.Load() && c.goesOn() {
				c.moved.Store(0)
				continue
			}
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// pace moves the deadline once in a quarter of its length, which saves most of the cost: a write has at least three
// quarters of it.
func (c *pacedConn) pace() error {
	if c.explicit.Load() {
		return nil
	}
	moved := c.moved.Load()
	if c.recent != nil && moved != 0 && c.recent.Load()-moved < int64(c.patience/4) {
		return nil
	}
	now := time.Now()
	passed := max(1, int64(now.Sub(c.began)))
	if moved != 0 && passed-moved < int64(c.patience/4) {
		return nil
	}
	c.moved.Store(passed)
	return c.Conn.SetWriteDeadline(now.Add(c.patience))
}

// SetWriteDeadline puts an explicit deadline in the place of the pace; the zero time, which net/http sets after every
// request, brings the pace back.
func (c *pacedConn) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		if c.explicit.Swap(false) {
			c.moved.Store(0)
		}
		return nil
	}
	c.explicit.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (c *pacedConn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// CloseWrite closes the sending half where the connection has halves, which a proxied upgrade makes use of.
func (c *pacedConn) CloseWrite() error { return closeWrite(c.under()) }

// SyscallConn returns what reaches the socket.
func (c *pacedConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.under().(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// socketUnder returns what TLS, if any, is spoken over.
func socketUnder(c net.Conn) net.Conn {
	if secured, ok := c.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return c
}

// under returns the connection itself, without the layer that has taken a PROXY header off it.
func (c *pacedConn) under() net.Conn {
	if layer, ok := c.Conn.(*proxyproto.Conn); ok {
		return layer.Raw()
	}
	return c.Conn
}

// A pacedListener paces the connections it accepts.
type pacedListener struct {
	net.Listener
	limits Limits
	began  time.Time
	recent *atomic.Int64
}

func (l *pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r := &reader{limits: &l.limits}
	r.pace.begin(r.limits)
	return &pacedConn{Conn: c, patience: l.limits.look(), began: l.began, recent: l.recent, reader: r}, nil
}

// listener puts the layers around l: for the fast engine who waits for its connections, the PROXY protocol, then the pace of writing.
// TLS comes above.
func (g *Gateway) listener(l net.Listener) net.Listener {
	if g.Fast() {
		l = poller.Listen(l)
	}
	if g.options.ProxyProtocol {
		l = &proxyproto.Listener{
			Listener:          l,
			ConnPolicy:        g.proxyPolicy,
			ValidateHeader:    checkProxyHeader,
			ReadHeaderTimeout: g.limits.ProxyHeader,
		}
	}
	l = &pacedListener{l, g.answers, g.began, g.recent()}
	if !g.Fast() {
		l = spareListener{l, g.limits.Header, g.limits.Idle, g.cert != nil}
	}
	return l
}

// proxyPolicy requires the header from trusted peers and refuses it from all others (D12).
func (g *Gateway) proxyPolicy(c proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
	if peer, err := netip.ParseAddrPort(c.Upstream.String()); err == nil && g.trusts(peer.Addr()) {
		return proxyproto.REQUIRE, nil
	}
	return proxyproto.REJECT, nil
}

func (g *Gateway) trusts(peer netip.Addr) bool {
	peer = peer.Unmap().WithZone("")
	return slices.ContainsFunc(g.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// checkProxyHeader refuses a header that names no TCP peer. A LOCAL one, which a proxy's health check sends, names none
// and leaves the connection's own peer.
func checkProxyHeader(h *proxyproto.Header) error {
	if h.Command.IsLocal() {
		return nil
	}
	source, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok || source.IP == nil {
		return fmt.Errorf("PROXY header: source %v is no TCP address", h.SourceAddr)
	}
	return nil
}
