package std

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// An exchange is one request under way: the ResponseWriter that everything behind writes to, the request's body, and
// what the access log will say. It is the one allocation that the gateway makes for a request.
type exchange struct {
	http.ResponseWriter // the server's own
	gateway             *Gateway
	request             *http.Request // as the handlers get it
	record

	hijacked   bool
	leave      context.CancelFunc // of an upgrade: it closes the upstream's connection; nil: none was asked for
	identified bool               // client is known

	cors      *crossOrigin // nil: not a surface that browsers call
	origin    string       // the Origin that the answer allows
	preflight bool         // the answer is one to a preflight, complete as it is

	http2    bool
	explicit atomic.Bool // the handler has set a write deadline of its own
	pending  int         // HTTP/2: bytes that the server holds back, at most
	taken    allowance   // HTTP/2: of a client that takes the answer
	conn     *pacedConn  // HTTP/2: of the answer, once it is written; nil: not known

	body requestBody
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader completes the header with the fields for browsers. Informational answers pass as they are, but to HTTP/1.0, which
// knows none.
func (x *exchange) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols && !x.request.ProtoAtLeast(1, 1) {
		return
	}
	if status >= 200 && x.status == 0 {
		x.status = status
		if status >= http.StatusInternalServerError && x.hasLeft() {
			x.gone = true // and what failed may have failed for that
		}
		h := x.Header()
		if x.cors != nil && !x.preflight {
			x.cors.complete(httpHeader(h), x.origin)
		}
		if _, typed := h["Content-Type"]; !typed && x.gateway.proxy != nil {
			h["Content-Type"] = nil // what the upstream did not declare is not guessed here
		}
		x.farewell()
	}
	x.ResponseWriter.WriteHeader(status)
}

// hasLeft reports whether the client has ended the request. (A body that comes too slowly ends it as well.)
func (x *exchange) hasLeft() bool {
	return x.request.Context().Err() != nil && !isTimeout(x.body.failure())
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	var n int
	var err error
	if x.http2 {
		n, err = x.writeStream(p)
	} else {
		n, err = x.ResponseWriter.Write(p)
	}
	if x.request.Method != http.MethodHead {
		x.written += int64(n)
	}
	return n, err
}

// streamPiece is the most of an HTTP/2 stream that one deadline covers.
const streamPiece = 8 << 10

// writeStream writes to an HTTP/2 stream, at the least rate. The server holds back up to 4 KiB: until then nothing can stall.
func (x *exchange) writeStream(p []byte) (n int, err error) {
	limits := &x.gateway.answers
	for {
		piece := p[n:min(len(p), n+streamPiece)]
		if x.pending += len(piece); x.pending < 4<<10 {
			m, err := x.ResponseWriter.Write(piece)
			return n + m, err
		}
		x.pending = 0
		if x.taken == (allowance{}) {
			x.taken.begin(limits)
			x.conn = pacedConnOf(x.request.Context())
		}
		c := x.conn
		began, done := time.Now(), x.paceStream()
		if c != nil {
			c.answers.await(limits, began, c.accepted.Load())
		}
		m, err := x.ResponseWriter.Write(piece)
		done()
		now := time.Now()
		goesOn := x.taken.spend(limits, now.Sub(began), m)
		if c != nil {
			goesOn = c.answers.endAwait(limits, now, c.accepted.Load()) || goesOn
		}
		if n += m; err == nil && !x.explicit.Load() && !goesOn {
			err = errTooSlow
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

// FlushError is what http.ResponseController flushes by.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.http2 {
		x.pending = 0
		defer x.paceStream()()
	}
	return http.NewResponseController(x.ResponseWriter).Flush()
}

// paceStream gives one write to an HTTP/2 stream a deadline: a peer that reads the connection can still starve a stream
// of its window. Between writes there is none, so that a quiet stream lives. (HTTP/1 is paced by its connection.)
func (x *exchange) paceStream() (done func()) {
	if x.explicit.Load() {
		return func() {}
	}
	deadline := http.NewResponseController(x.ResponseWriter)
	_ = deadline.SetWriteDeadline(time.Now().Add(x.gateway.limits.Take))
	return func() { _ = deadline.SetWriteDeadline(time.Time{}) }
}

// SetWriteDeadline is how http.ResponseController puts a handler's own deadline in the place of the pace; the zero time
// brings the pace back.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.explicit.Store(!t.IsZero())
	return http.NewResponseController(x.ResponseWriter).SetWriteDeadline(t)
}

// Hijack implements http.Hijacker. The connection is closed when the gateway has drained.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.hijacked = true
	if x.status == 0 {
		x.status = http.StatusSwitchingProtocols
	}
	x.gateway.conns.add(c)
	x.body.finish()
	_ = c.SetReadDeadline(time.Time{})
	missVanished(socketUnder(c))
	taken := &hijackedConn{Conn: c, conns: &x.gateway.conns}
	taken.half.most = x.gateway.limits.Stall
	taken.half.end = func() {
		if _ = taken.Close(); x.leave != nil {
			x.leave()
		}
	}
	return taken, rw, nil
}

// finish is called once the handlers are done.
func (x *exchange) finish() {
	if x.http2 {
		// What the server still holds back goes out after us, under this deadline; it dies with the stream.
		_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.gateway.limits.Take))
	}
	if x.status == 0 {
		x.farewell() // the server says 200 by itself
	}
	if !x.hijacked {
		x.body.finish()
	}
	if !x.reached && !x.aborted {
		x.body.discard()
	}
	if form := x.request.MultipartForm; form != nil {
		_ = form.RemoveAll() // the server would, had it seen it
	}
}

// settle lets go of a body that is not wanted any more, once the access log has its line: the answer came before it, and the client
// waits to be asked for it, or the proxy's transport reads on in a goroutine of its own.
func (x *exchange) settle() {
	if x.hijacked || !x.body.isLeft() {
		return
	}
	read := x.body.isRead()
	if read && !x.aborted {
		// The server decides now whether it closes the connection. If not, it reads the body first.
		_ = http.NewResponseController(x.ResponseWriter).Flush()
		read = x.body.isRead()
	}
	switch {
	case x.aborted:
		x.body.settle(0)
	case read || x.request.Header["Expect"] != nil && x.request.ProtoAtLeast(1, 1):
		x.body.settle(discardPatience)
	}
}

// exchangeOf finds the exchange under whatever has been wrapped around it.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		if x, ok := w.(*exchange); ok {
			return x
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
}

// A connSet holds the connections that handlers took over.
type connSet struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (s *connSet) add(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = make(map[net.Conn]struct{})
	}
	s.conns[c] = struct{}{}
}

func (s *connSet) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// closeAll closes every connection that is still there.
func (s *connSet) closeAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// A hijackedConn leaves the set when it is closed. Once either half has ended it does not stay quiet for long.
type hijackedConn struct {
	net.Conn
	conns *connSet
	half  halfClose
}

// Read is net.Conn's.
func (c *hijackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.half.note()
	}
	if errors.Is(err, io.EOF) {
		c.half.begin()
	}
	return n, err
}

// Write is net.Conn's.
func (c *hijackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.half.note()
	}
	return n, err
}

// Close is net.Conn's.
func (c *hijackedConn) Close() error {
	c.half.stop()
	c.conns.remove(c.Conn)
	return c.Conn.Close()
}

// CloseWrite closes the sending half, where there are halves.
func (c *hijackedConn) CloseWrite() error {
	c.half.begin()
	return closeWrite(c.Conn)
}

// identify finds out who is calling, from the writer that the innermost handler was given or, where none was reached,
// anew. It returns what an upstream is told in X-Forwarded-For.
func (x *exchange) identify(w http.ResponseWriter) (chain string) {
	x.identified = true
	caller, ok := httplimit.CallerOf(w)
	if !ok {
		caller = new(identity.Caller)
		x.gateway.options.Identity.Start(caller, &identity.HTTPRequest{Request: x.request})
	}
	x.client = caller.Addr()
	if x.gateway.proxy == nil {
		return ""
	}
	return caller.Chain()
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	httplimit.WriteError(w, status, code, message)
}
