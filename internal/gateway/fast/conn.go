package fast

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// A fastConn is one caller's connection. One goroutine serves it; while a request's body is on its way to the upstream a
// second one reads, and while an answer is long in coming a watching one does.
type fastConn struct {
	engine   *fastEngine
	raw      net.Conn   // under TLS
	paced    *pacedConn // raw; nil: it is something else
	net.Conn            // what is spoken through: raw, or TLS
	peer     string
	ctx      connContext // ends with the connection

	in    wire.Reader // of the connection itself, see Read
	phase atomic.Int32
	taken bool // somebody else goes on with the connection
	fresh bool // TLS: a first byte is awaited, of the handshake or of a request's record
	asked bool // the head of a request has come, ever

	// The deadline of reads. Nearly all are moved only when they have to be, which costs a request nothing.
	mu          sync.Mutex
	deadline    time.Time // zero: not known
	interrupted bool      // reads end at once, until resume

	watch atomic.Int32
	since atomic.Int64 // the tick at which the wait began
	up    atomic.Pointer[upstream.Conn]
	gone  atomic.Bool // the client went away during an exchange
	done  chan struct{}
	ahead []byte // read by the watch, or by who waits long; to be read first

	resting atomic.Int32 // how a wait for the next request goes
}

// How a wait for the next request goes. It begins with a buffer to read into, and goes on without one where it takes long.
const (
	restOff   int32 = iota
	restBegun       // with a buffer, for less than two ticks
	restLong        // told to go on without
)

// The phases of a connection, as a drain sees them.
const (
	phaseBusy    int32 = iota
	phaseIdle          // no byte of a request has come
	phaseClosing       // the drain closes it
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// serveConn serves one connection to its end.
func (e *fastEngine) serveConn(raw net.Conn) {
	c := &fastConn{engine: e, raw: raw, Conn: raw}
	c.paced, _ = raw.(*pacedConn)
	c.fresh = true
	c.ctx.base = e.base
	c.phase.Store(phaseIdle) // until it has asked for something, a drain need not wait for it
	e.add(c)
	defer c.end()
	c.moveDeadline(time.Now().Add(e.limits.Idle))
	if e.ending.Load() {
		return
	}
	c.peer = raw.RemoteAddr().String() // waits for a PROXY header
	if e.secure != nil && !c.handshake() {
		return
	}
	c.in.Reset(c)
	c.serve()
}

// end lets go of the connection.
func (c *fastConn) end() {
	if failure := recover(); failure != nil {
		c.engine.log.Error("serving a connection panicked", "peer", c.peer, "panic", failure, "stack", string(debug.Stack()))
	}
	c.ctx.cancel()
	c.engine.remove(c)
	if c.taken {
		return
	}
	_ = c.Conn.Close()
	c.engine.open.add(-1)
}

// handshake speaks TLS. It is false where that was all: the handshake failed, or HTTP/2 was agreed on.
func (c *fastConn) handshake() bool {
	secured := tls.Server(&helloConn{Conn: c.raw, c: c}, c.engine.secure)
	if err := secured.HandshakeContext(&c.ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
			_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis port speaks HTTPS. Use https:// in the URL.\n")
		}
		c.engine.log.Debug("a TLS handshake failed", "peer", c.peer, "error", err)
		return false
	}
	c.Conn = secured
	if secured.ConnectionState().NegotiatedProtocol != "h2" {
		return true
	}
	c.hand(secured)
	return false
}

// A helloConn is what TLS is spoken over. The handshake has Limits.Header from its first byte, and so has the head of a request
// from the first byte of its TLS record.
type helloConn struct {
	net.Conn
	c       *fastConn
	records tlsRecords
}

// Read is net.Conn's.
func (h *helloConn) Read(p []byte) (int, error) {
	if !h.c.asked {
		p = h.records.room(p)
	}
	n, err := h.Conn.Read(p)
	if !h.c.asked {
		h.records.read(p[:n])
	}
	if n > 0 && h.c.fresh {
		h.c.fresh = false
		h.c.moveDeadline(time.Now().Add(h.c.engine.limits.Header))
		if h.c.phase.Load() == phaseClosing { // a drain does not wait for it
			_ = h.Conn.SetReadDeadline(longAgo)
		}
	}
	return n, err
}

// looksLikeHTTP reports whether the first bytes of what should be a TLS record are a method's.
func looksLikeHTTP(begin [5]byte) bool {
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// hand gives the connection to net/http.
func (c *fastConn) hand(as net.Conn) {
	c.asked = true // helloConn has nothing more to do
	_ = c.raw.SetReadDeadline(time.Time{})
	c.taken = c.engine.handed.hand(as)
}

// Read is where the engine's Reader reads.
func (c *fastConn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// serve answers one request after another.
func (c *fastConn) serve() {
	yielded := false
	for now, first := (time.Time{}), true; ; first = false {
		head, err := c.next(now, first)
		if err != nil {
			c.refuse(err)
			return
		}
		if head == "" {
			return
		}
		x := c.engine.exchanges.Get().(*fastExchange)
		more := x.serve(c, head)
		waited := x.reached
		now = x.over
		x.release()
		if !more {
			return
		}
		// The next request of a busy caller is there, mostly, once others have run. Not each time for who never waits for an
		// upstream: the runtime looks at connections when there is nothing else to do, and must not be kept from it.
		if yielded = waited || !yielded; yielded {
			runtime.Gosched()
		}
	}
}

// next waits for the head of a request. It is empty where none comes any more: there is nobody to tell. now is when the last
// answer was complete.
func (c *fastConn) next(now time.Time, first bool) (string, error) {
	if head := c.in.Head(); head != "" {
		c.asked = true
		return head, nil
	}
	begun := len(c.in.Buffered()) > 0 // then the time for a head runs
	switch {
	case begun:
		c.moveDeadline(time.Now().Add(c.engine.limits.Header))
	case first && c.engine.secure != nil: // the handshake's ends
		c.moveDeadline(time.Now().Add(c.engine.limits.Idle))
	case !first:
		c.allow(now, c.engine.limits.Idle)
	}
	c.fresh = !begun
	for idle := len(c.in.Buffered()) == 0; ; {
		if idle {
			c.phase.Store(phaseIdle)
			if c.engine.ending.Load() {
				return "", nil
			}
		}
		err := c.fill(idle)
		if idle && !c.phase.CompareAndSwap(phaseIdle, phaseBusy) && err != nil {
			wait := keptGrace
			if first {
				wait = freshGrace
			}
			err = c.lookAgain(err, wait)
		}
		idle = false
		if err != nil {
			return "", refusalOf(err)
		}
		if first && c.engine.secure == nil {
			switch isHTTP2(c.in.Buffered()) {
			case some:
				if !begun {
					begun = true
					c.moveDeadline(time.Now().Add(c.engine.limits.Header))
				}
				continue
			case all:
				c.hand(&begunConn{Conn: c.Conn, begin: append([]byte(nil), c.in.Buffered()...)})
				return "", nil
			}
		}
		if head := c.in.Head(); head != "" {
			c.fresh, c.asked = false, true
			return head, nil
		}
		if !begun && (c.engine.secure == nil || c.fresh) { // else helloConn has moved it
			begun = true
			c.moveDeadline(time.Now().Add(c.engine.limits.Header))
		}
	}
}

// How long a connection that a drain finds idle may still take to bring a request: one on which there was none yet has most likely been
// opened for one, and on others it may have come just now.
const (
	freshGrace = time.Second
	keptGrace  = time.Millisecond
)

// lookAgain is for a wait that a drain has ended.
func (c *fastConn) lookAgain(err error, wait time.Duration) error {
	if !isTimeout(err) {
		return err
	}
	now := time.Now()
	c.moveDeadline(now.Add(wait))
	if err := c.in.Fill(c.engine.limits.HeaderBytes); err != nil {
		return err
	}
	c.moveDeadline(now.Add(c.engine.limits.Header))
	return nil
}

// fill reads what comes next. Who waits for long gives the buffer away meanwhile: most connections of a server are idle.
func (c *fastConn) fill(idle bool) error {
	most := c.engine.limits.HeaderBytes
	if !idle {
		return c.in.Fill(most)
	}
	c.since.Store(c.engine.tick.Load())
	c.resting.Store(restBegun)
	err := c.in.Fill(most)
	if c.resting.Swap(restOff) == restBegun {
		return err
	}
	c.moveDeadline(c.deadline) // as it was
	if !isTimeout(err) || c.phase.Load() != phaseIdle {
		return err
	}
	var begin [1]byte
	if _, err := c.Conn.Read(begin[:]); err != nil {
		return err
	}
	c.ahead = append(c.ahead, begin[0])
	return c.in.Fill(most)
}

// rest has a connection that has waited for a while go on without a buffer.
func (c *fastConn) rest(tick int64) {
	if c.resting.Load() != restBegun || tick-c.since.Load() < 2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting.CompareAndSwap(restBegun, restLong) {
		_ = c.raw.SetReadDeadline(longAgo)
	}
}

// refusalOf returns the refusal that a failed read of a head is; nil where the connection ended or failed.
func refusalOf(err error) error {
	if errors.Is(err, wire.ErrFull) {
		return &wire.Refusal{Status: http.StatusRequestHeaderFieldsTooLarge, Reason: "the request's header is larger than is allowed here"}
	}
	return nil
}

// How much of HTTP/2's preface is there.
type share uint8

const (
	none share = iota
	some
	all
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func isHTTP2(begin []byte) share {
	if len(begin) >= len(preface) {
		if string(begin[:len(preface)]) == preface {
			return all
		}
		return none
	}
	if len(begin) > 0 && strings.HasPrefix(preface, string(begin)) {
		return some
	}
	return none
}

// allow gives the reads that follow at least d, and an eighth more at most, or a little.
func (c *fastConn) allow(now time.Time, d time.Duration) {
	if left := c.deadline.Sub(now); left < d || left > d+d/4 {
		c.moveDeadline(now.Add(d + d/8))
	}
}

func (c *fastConn) moveDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.interrupted {
		c.deadline = t
		_ = c.raw.SetReadDeadline(t)
	}
}

// interrupt ends a read that somebody else is in, and keeps him from another, until resume.
func (c *fastConn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	_ = c.raw.SetReadDeadline(longAgo)
}

func (c *fastConn) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted, c.deadline = false, time.Time{}
}

// CloseWrite closes the sending half, where there are halves.
func (c *fastConn) CloseWrite() error { return closeWrite(c.Conn) }

// Closing a connection on which something is unread can destroy the answer on its way (RFC 9112, section 9.6), so it is read
// for a moment.
const (
	lingerPause = 500 * time.Millisecond // nothing came for so long
	lingerMost  = 10 * time.Second       // for a client that goes on sending what nobody wants
)

func (c *fastConn) linger() {
	if closeWrite(c.Conn) != nil {
		return
	}
	until := time.Now().Add(lingerMost)
	if c.engine.ending.Load() {
		until = time.Now().Add(lingerPause)
	}
	p := c.engine.copies.borrow()
	defer func() { p.giveBack() }()
	for now := time.Now(); now.Before(until); now = time.Now() {
		by := now.Add(lingerPause)
		if by.After(until) {
			by = until
		}
		c.moveDeadline(by)
		n, err := c.raw.Read(p.room())
		if err != nil {
			return
		}
		p = p.after(n)
	}
}

// refuse answers what is no request, if there is anybody to tell, and ends the connection: nobody knows where the next
// request begins.
func (c *fastConn) refuse(err error) {
	var refusal *wire.Refusal
	if !errors.As(err, &refusal) {
		return
	}
	x := c.engine.exchanges.Get().(*fastExchange)
	defer x.release()
	x.begin(c)
	x.refuse(refusal)
	c.linger()
}
