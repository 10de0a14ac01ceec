package fast

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// A conn is one client's connection. One goroutine serves it (which the poller may run, see task),
// and none while it waits long for a request (park). While a request's body is on its way to the
// upstream, a second one reads from the client; while an answer takes long, a watching one does.
type conn struct {
	engine   *Engine
	raw      net.Conn   // under TLS
	paced    *pace.Conn // raw; nil: it is something else
	net.Conn            // what is spoken through: raw, or TLS
	peer     string
	addr     netip.Addr  // of the peer
	ctx      connContext // ends with the connection
	task     task

	serverName string                // TLS: the name that the client asked for
	chains     [][]*x509.Certificate // TLS: of the client's certificate, as they verified
	cert       *identity.Certificate // TLS: that certificate
	covered    string                // TLS: the host of the last request, if it was not foreign

	in    wire.Reader // of the connection itself, see Read
	phase atomic.Int32
	taken bool // another engine serves the connection now
	fresh bool // TLS: a first byte is awaited, of the handshake or of a request's record
	asked bool // the head of a request has come, ever

	// The deadline of reads. It is moved only if it has to be, so that most requests pay nothing
	// for it.
	mu          sync.Mutex
	deadline    time.Time // zero: not known
	interrupted bool      // reads end at once, until resume

	watch atomic.Int32
	since atomic.Int64 // the tick at which the wait began
	up    atomic.Pointer[upstream.Conn]
	gone  atomic.Bool // the client went away during an exchange
	done  chan struct{}
	ahead []byte // read by the watch, or during a long wait; to be read first

	resting atomic.Int32 // the state of a wait for the next request
}

// The phases of a connection, as a drain sees them.
const (
	phaseBusy    int32 = iota
	phaseIdle          // no byte of a request has come
	phaseClosing       // the drain closes it
)

// serveConn serves one connection to its end.
func (e *Engine) serveConn(raw net.Conn) {
	c := &conn{engine: e, raw: raw, Conn: raw}
	c.paced, _ = raw.(*pace.Conn)
	c.fresh = true
	c.ctx.base = e.base
	c.phase.Store(phaseIdle) // a drain need not wait for a client that has asked for nothing yet
	e.add(c)
	c.goOn(func() { e.ServePart(&c.peer, c.begin, c.end) })
}

// begin serves a new connection.
func (c *conn) begin() (over bool) {
	e := c.engine
	c.moveDeadline(time.Now().Add(e.Limits.Idle))
	if e.ending.Load() {
		return true
	}
	c.peer = c.raw.RemoteAddr().String() // waits for a PROXY header
	c.addr = identity.ParsePeer(c.peer)
	if e.secure != nil && !c.handshake() {
		return true
	}
	c.in.Reset(c)
	return c.serve(c.next(time.Time{}))
}

// wake serves a connection that was parked.
func (c *conn) wake() {
	c.goOn(func() {
		c.engine.ServePart(&c.peer, func() (over bool) { return c.serve(c.readHead(c.awaitByte)) }, c.end)
	})
}

// end closes the connection, unless another engine has it.
func (c *conn) end() {
	defer c.engine.serving.Done()
	c.ctx.cancel()
	c.engine.remove(c)
	if c.taken {
		return
	}
	c.detach() // TLS writes that it ends
	_ = c.Conn.Close()
	c.engine.Open.Add(-1)
}

// serve answers one request after another, from the one whose head next has returned. It reports
// false if the connection is parked.
func (c *conn) serve(head string, err error) (over bool) {
	yielded := false
	for {
		switch {
		case err == errParked:
			return false
		case err != nil:
			c.refuse(err)
			return true
		case head == "":
			return true
		}
		x := c.engine.exchanges.Get().(*exchange)
		more := x.serve(c, head)
		waited := x.Reached
		now := x.over
		x.release()
		if !more {
			return true
		}
		switch {
		case !c.task.attached:
			// The next request of a busy client has usually come once other goroutines have run. A
			// client that never waits for an upstream does not yield each time: the runtime polls
			// the network when it has nothing else to do, and has to get there.
			if yielded = waited || !yielded; yielded {
				runtime.Gosched()
			}
		case len(c.in.Buffered()) > 0:
			c.detach() // other connections need not wait for a client with many requests
		}
		head, err = c.next(now)
	}
}

// Read is what the connection's wire.Reader reads from.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	if !c.task.awaits {
		c.detach()
	}
	return c.Conn.Read(p)
}

// CloseWrite closes the sending half, if the connection has halves.
func (c *conn) CloseWrite() error { return pace.CloseWrite(c.Conn) }

// refuse answers a head that is not one of a request, if the client is still there, and ends the
// connection: where the next request begins is not known.
func (c *conn) refuse(err error) {
	var refusal *wire.Refusal
	if !errors.As(err, &refusal) {
		return
	}
	x := c.engine.exchanges.Get().(*exchange)
	defer x.release()
	x.begin(c)
	x.refuse(refusal)
	c.linger()
}

// Closing a connection on which something is unread can destroy the answer on its way (RFC 9112,
// section 9.6). So it is read for a moment before it is closed.
const (
	lingerPause = 500 * time.Millisecond // nothing came for so long
	maxLinger   = 10 * time.Second       // for a client that continues to send
)

// linger closes the sending half and reads what the client still sends.
func (c *conn) linger() {
	c.detach()
	if c.CloseWrite() != nil {
		return
	}
	until := time.Now().Add(maxLinger)
	if c.engine.ending.Load() {
		until = time.Now().Add(lingerPause)
	}
	p := c.engine.copies.Borrow()
	defer func() { p.GiveBack() }()
	for now := time.Now(); now.Before(until); now = time.Now() {
		by := now.Add(lingerPause)
		if by.After(until) {
			by = until
		}
		c.moveDeadline(by)
		n, err := c.raw.Read(p.Room())
		if err != nil {
			return
		}
		p = p.After(n)
	}
}
