package upstream

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// errSentOnce makes net/http give up a request whose kept connection ended. It would send it again
// if its method is idempotent, or a field has an idempotency key; but the request was counted once.
var errSentOnce = errors.New("the kept connection ended before an answer came, and the request went out")

// A CountedConn counts what is written to it, so that Transport knows whether a request went out.
// Its writes fail once Transport has found that it must not be used again.
type CountedConn struct {
	net.Conn
	raw   syscall.RawConn // of the socket; nil: unknown
	sent  atomic.Int64
	stale atomic.Bool
	busy  atomic.Int32  // writes under way
	spent atomic.Bool   // no request may follow on it
	turn  chan struct{} // has one element while an exchange has not been judged

	mu      sync.Mutex
	reading bool          // a Read is under way
	begun   chan struct{} // closed when one begins; nil: nothing waits for that
}

// Count returns a CountedConn over c. socket is the connection at the bottom, and is checked before
// each request but the first, unless it has no syscall.RawConn.
func Count(c, socket net.Conn) *CountedConn {
	return &CountedConn{Conn: c, raw: rawOf(socket), turn: make(chan struct{}, 1)}
}

// judgedWithin is for how long an exchange waits until the one before it on the same connection is
// judged. That takes some microseconds: net/http returns the connection of an answer without a body
// to its pool just before it hands the answer over.
const judgedWithin = time.Second

// begin takes the connection for an exchange, which ends with judged. Writes fail from then on if
// no request may follow the last one.
func (c *CountedConn) begin() (taken bool) {
	select {
	case c.turn <- struct{}{}:
		taken = true
	default:
		late := time.NewTimer(judgedWithin)
		defer late.Stop()
		select {
		case c.turn <- struct{}{}:
			taken = true
		case <-late.C:
		}
	}
	if !taken || c.spent.Load() {
		c.stale.Store(true)
	}
	return taken
}

// judged ends the exchange that begin started.
func (c *CountedConn) judged() { <-c.turn }

// spend allows no further request on the connection. An answer can still be read from it.
func (c *CountedConn) spend() { c.spent.Store(true) }

// handOver is for how long net/http may take to hand over an answer without a body, whose
// connection is in its pool already. It takes some microseconds.
const handOver = 10 * time.Millisecond

// try makes writes fail if the other side has ended the connection, or sent anything, and net/http
// does not know it yet. net/http sends the request on another one then. That breaks the connection,
// together with an answer that has not been handed over. So try first waits until net/http reads
// from it again.
func (c *CountedConn) try() {
	if c.raw == nil {
		return
	}
	quiet := true
	if err := c.raw.Control(func(fd uintptr) { quiet = isQuiet(fd) }); err == nil && quiet {
		return
	}
	if begun := c.nextRead(); begun != nil {
		late := time.NewTimer(handOver)
		defer late.Stop()
		select {
		case <-begun:
		case <-late.C:
		}
	}
	c.stale.Store(true)
}

// nextRead returns a channel that is closed when a Read begins; nil while one is under way.
func (c *CountedConn) nextRead() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading {
		return nil
	}
	if c.begun == nil {
		c.begun = make(chan struct{})
	}
	return c.begun
}

// Read is net.Conn's.
func (c *CountedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.reading = true
	if c.begun != nil {
		close(c.begun)
		c.begun = nil
	}
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	c.reading = false
	c.mu.Unlock()
	return n, err
}

// Write is net.Conn's.
func (c *CountedConn) Write(p []byte) (int, error) {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	if c.stale.Load() {
		return 0, ErrStale
	}
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// bar makes every further write fail, and reports whether none is under way: what was sent is known
// then.
func (c *CountedConn) bar() (known bool) {
	c.stale.Store(true)
	return c.busy.Load() == 0
}

// CloseWrite closes the sending half of a connection with halves.
func (c *CountedConn) CloseWrite() error { return closeWrite(c.Conn) }

// asks is called before net/http looks for a connection. If it does so again after something went
// out, the attempt ends, and a connection that it still gets is closed unused.
func (l *link) asks() {
	if l.stage.Load() == sending && l.wrote() {
		l.over.Store(true)
		l.end(errSentOnce)
		return
	}
	l.stage.Store(asking)
}

// got is called with the connection that net/http has found, which may be TLS. If no request may go
// out on it, every write to it fails from now on, and the request's body is not read meanwhile, so
// the request can go out on another connection.
func (l *link) got(c net.Conn, reused bool) {
	if l.over.Load() {
		_ = c.Close()
		return
	}
	l.reused.Store(reused)
	counted := countedUnder(c)
	l.judged()
	if counted != nil {
		l.taken = counted.begin()
		if reused && !counted.stale.Load() {
			counted.try()
		}
		if counted.stale.Load() {
			l.body.withhold()
		}
		l.before.Store(counted.sent.Load())
	}
	l.conn.Store(counted)
	l.stage.Store(sending)
}

// unsent reports whether an attempt failed because of the connection that it got, before a byte of
// the request went out or a byte of its body was read. Nothing goes out on that connection any
// more. It is for attempts that have failed.
func (l *link) unsent() bool {
	c := l.conn.Load()
	return l.stage.Load() == sending && c != nil && c.bar() && !l.wrote() && !l.body.touched()
}

// judged lets the next exchange begin on the attempt's connection.
func (l *link) judged() {
	if c := l.conn.Load(); c != nil && l.taken {
		l.taken = false
		c.judged()
	}
}

// judge decides by the head of an answer whether a request may follow on its connection.
//   - If the answer has no body and declares one, the connection is closed at once: the body may
//     come all the same, and would be taken for the next answer.
//   - If the answer came before the request's body was read whole, the connection is closed when
//     the answer ends: the upstream may take the rest of the body for its next request.
//
// net/http keeps both kinds. Until it notices that they are closed, it may use them for the next
// request, which finds them spent (see got).
func (l *link) judge(res *http.Response) {
	c := l.conn.Load()
	if c == nil || res.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	more := declaresMore(res)
	if more || !l.body.isWhole() {
		c.spend()
	}
	if more || isBodyless(res) {
		l.answerEnded()
	}
}

// answerEnded closes the attempt's connection if no request may follow on it. Its answer has been
// read, and net/http has given the rest of the request its time to go out.
func (l *link) answerEnded() {
	if c := l.conn.Load(); c != nil && c.spent.Load() {
		_ = c.Close()
	}
}

// isBodyless reports whether an answer has no body to read.
func isBodyless(res *http.Response) bool { return res.Body == nil || res.Body == http.NoBody }

// declaresMore reports whether an answer that has no body declares one.
func declaresMore(res *http.Response) bool {
	switch {
	case res.StatusCode == http.StatusNoContent, res.StatusCode == http.StatusNotModified, res.Request != nil && res.Request.Method == http.MethodHead:
		length := res.Header.Get("Content-Length")
		return length != "" && length != "0" || len(res.TransferEncoding) > 0
	}
	return false
}

// wrote reports whether anything may have gone out on the connection that the attempt has got.
func (l *link) wrote() bool {
	c := l.conn.Load()
	return c == nil || c.sent.Load() != l.before.Load()
}

// countedUnder returns the CountedConn under c; nil if there is none.
func countedUnder(c net.Conn) *CountedConn {
	for {
		if counted, ok := c.(*CountedConn); ok {
			return counted
		}
		under, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = under.NetConn()
	}
}
