package pace

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/unsent"
)

// A Conn gives every write a deadline of its own. A peer that stops reading, or a client that reads
// more slowly than Limits.Rate, fails a write; a long stream to a slow reader and a quiet stream
// live on. Large writes go out in pieces for the same reason. It also counts what the client sends,
// see AwaitBody. Make one with NewConn or by a Listener.
type Conn struct {
	net.Conn
	patience time.Duration
	clock    *Clock
	// when the write deadline was last moved, by clock; 0: the next write has to move it
	moved    atomic.Int64
	explicit atomic.Bool // whether the owner of the connection has set a write deadline

	// how a client has to take what is written; nil: it has patience for each 64 KiB
	taking   *Limits
	reader   atomic.Pointer[reader] // nil: no write had to wait yet; most never do
	accepted atomic.Int64
	sender   sender

	streams atomic.Pointer[directions] // nil: no stream of HTTP/2 was waited for yet
}

// directions are those of HTTP/2's streams on one connection.
type directions struct{ uploads, answers Direction }

// Uploads returns what HTTP/2's streams share of the way from the client.
func (c *Conn) Uploads() *Direction { return &c.directions().uploads }

// Answers returns what HTTP/2's streams share of the way to the client.
func (c *Conn) Answers() *Direction { return &c.directions().answers }

func (c *Conn) directions() *directions {
	if d := c.streams.Load(); d != nil {
		return d
	}
	c.streams.CompareAndSwap(nil, new(directions))
	return c.streams.Load()
}

// NewConn returns a Conn on which each 64 KiB that is written may take for patience. It does not
// look at what the other side acknowledges, so it suits a connection to an upstream.
func NewConn(c net.Conn, patience time.Duration, clock *Clock) *Conn {
	return &Conn{Conn: c, patience: patience, clock: clock}
}

// A Listener accepts the connections of clients as Conns, which take answers within Limits.
// (Limits.OfAnswers makes them.)
type Listener struct {
	net.Listener
	Limits Limits
	Clock  *Clock
}

// Accept returns a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, patience: l.Limits.look(), clock: l.Clock, taking: &l.Limits}, nil
}

// CountAccepted returns l, which adds the connections that it accepts to n.
func CountAccepted(l net.Listener, n *atomic.Int64) net.Listener { return countingListener{l, n} }

type countingListener struct {
	net.Listener
	n *atomic.Int64
}

// Accept implements net.Listener.
func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

// A Clock is what the write deadlines of connections are measured by. It counts from when it was
// made, so a system clock that is set meanwhile moves nothing. It is safe for concurrent use.
type Clock struct {
	began  time.Time
	coarse atomic.Int64 // the last Tick, in nanoseconds after began; 0: there was none
}

// NewClock returns a Clock that reads the system's clock for every write until Tick is called.
func NewClock() *Clock { return &Clock{began: time.Now()} }

// Tick notes the time, so that writes need not read the system's clock. After the first Tick it
// must be called several times a second for as long as connections use the clock.
func (c *Clock) Tick() { c.coarse.Store(c.at(time.Now())) }

// at returns the nanoseconds from began to now, and 1 at least.
func (c *Clock) at(now time.Time) int64 { return max(1, int64(now.Sub(c.began))) }

// A reader is a client that takes an answer. A write that waits ends now and then to look how much
// the client has acknowledged since the last look. So a client that takes its time lives, and one
// that takes a byte at a time does not. How much the socket has taken is no measure: Linux lets a
// writer continue when a third of a buffer of megabytes is free.
type reader struct {
	mu           sync.Mutex
	pace         Allowance
	acknowledged int64         // at the last look
	looked       time.Time     // when that was
	stalled      time.Duration // for how long nothing was acknowledged
}

// mayWait reports whether a client that a write has waited for may be waited for again.
func (c *Conn) mayWait() bool {
	r := c.reader.Load()
	if r == nil {
		r = new(reader)
		r.pace.Begin(c.taking)
		if !c.reader.CompareAndSwap(nil, r) {
			r = c.reader.Load()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	waited := now.Sub(r.looked)
	// this write's first look; it has waited for three quarters at least
	if waited > c.patience+c.patience/4 {
		waited = c.patience - c.patience/4
	}
	r.looked = now
	acknowledged := c.Acknowledged()
	progress := acknowledged - r.acknowledged
	r.acknowledged = acknowledged
	if r.stalled += waited; progress > 0 {
		r.stalled = 0
	}
	return r.pace.Spend(c.taking, waited, int(max(progress, 0))) && r.stalled < c.taking.Take
}

// Accepted returns how many bytes the socket has taken of what was written to it as a client's
// connection.
func (c *Conn) Accepted() int64 { return c.accepted.Load() }

// Acknowledged returns how many of these bytes the client's kernel has acknowledged; where that is
// not known, Accepted. It asks the system.
func (c *Conn) Acknowledged() int64 { return c.accepted.Load() - unsent.Unacknowledged(c) }

// maxPiece is the size of the largest write that one deadline covers.
const maxPiece = 64 << 10

// Write is net.Conn's.
func (c *Conn) Write(p []byte) (n int, err error) {
	for {
		if err := c.moveWriteDeadline(); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(p[n:min(len(p), n+maxPiece)])
		n += m
		if c.taking != nil {
			c.accepted.Add(int64(m))
			if err != nil && n < len(p) && IsTimeout(err) && !c.explicit.Load() && c.mayWait() {
				c.moved.Store(0)
				continue
			}
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// moveWriteDeadline moves the deadline once in a quarter of its length, which saves most of the
// cost. A write has at least three quarters of it.
func (c *Conn) moveWriteDeadline() error {
	if c.explicit.Load() {
		return nil
	}
	moved := c.moved.Load()
	if coarse := c.clock.coarse.Load(); coarse != 0 && moved != 0 && coarse-moved < int64(c.patience/4) {
		return nil
	}
	now := time.Now()
	passed := c.clock.at(now)
	if moved != 0 && passed-moved < int64(c.patience/4) {
		return nil
	}
	c.moved.Store(passed)
	return c.Conn.SetWriteDeadline(now.Add(c.patience))
}

// SetWriteDeadline sets an explicit deadline in place of the Conn's own. The zero time, which
// net/http sets after every request, returns to the Conn's own.
func (c *Conn) SetWriteDeadline(t time.Time) error {
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
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// CloseWrite closes the sending half, if the connection has halves. A proxied upgrade uses it.
func (c *Conn) CloseWrite() error { return CloseWrite(c.socket()) }

// SyscallConn returns access to the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn(c.socket()) }

// socket returns the connection itself, without the layer that has taken a PROXY header off it
// (proxyproto.Conn).
func (c *Conn) socket() net.Conn {
	if layer, ok := c.Conn.(interface{ Raw() net.Conn }); ok {
		return layer.Raw()
	}
	return c.Conn
}

// CloseWrite closes the sending half of c. The error is errors.ErrUnsupported if c has no halves.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// rawConn returns access to the socket of c; errors.ErrUnsupported if it has none.
func rawConn(c net.Conn) (syscall.RawConn, error) {
	if socket, ok := c.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
