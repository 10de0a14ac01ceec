package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"

	"github.com/weirlimit/weir/headers"
)

// Settle tells what a request has cost, in units: 0 or more. w is its handler's ResponseWriter, or
// one around it that has Unwrap. The windows that count units are changed by what the request was
// charged more or less before it was served. A request whose status is not counted costs nothing.
//
// If Settle is called before the head of the response is written, its fields have the result.
// Afterwards, until the handler returns, or closes a connection that it has hijacked, only later
// responses do. The same goroutine must write the response.
//
// Settle returns an error if it has no effect: units is negative, the request is settled already
// (by an earlier call, or by a field of its response), no limiter covers it, the handler has
// returned, or the store cannot give units back.
func Settle(w http.ResponseWriter, units int64) error {
	e := exchangeUnder(w)
	if e == nil {
		return fmt.Errorf("settle %d units: no limiter covers the request, its handler has returned, or its ResponseWriter is wrapped in one without Unwrap", units)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.judge.Spent(e.request.Context(), &e.answer, units)
}

// settleHead settles what the status and the header of the handler's response tell. If the client
// has left, the status is not what it got.
func (e *exchange) settleHead(h http.Header, status int) {
	ctx := e.request.Context()
	if ctx.Err() != nil {
		status = 0
	}
	e.reads = e.judge.Head(ctx, &e.answer, status, func(name string) []string { return linesOf(h, name) })
	if e.left = -1; e.answer.Settles() {
		e.left = lengthOf(e.question.Method, status, h)
	}
}

// lengthOf returns the length of the body of a response, or -1 if it is not known, or the
// connection is taken over.
func lengthOf(method string, status int, h http.Header) int64 {
	switch {
	case status == http.StatusSwitchingProtocols:
		return -1
	case method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		return 0
	}
	if length := h["Content-Length"]; len(length) == 1 {
		if n, err := headers.ParseInt("Content-Length", length[0]); err == nil {
			return n
		}
	}
	return -1
}

// linesOf returns the lines of a field, however a handler has spelled its name. The server reads
// Trailer in its canonical spelling alone.
func linesOf(h http.Header, name string) (lines []string) {
	if lines = h[name]; name == "Trailer" {
		return lines
	}
	for spelled, values := range h {
		if len(spelled) == len(name) && spelled != name && strings.EqualFold(spelled, name) {
			lines = append(lines[:len(lines):len(lines)], values...)
		}
	}
	return lines
}

// isRead reports whether the body of the response is read: for its cost, or for its end.
func (x *response) isRead() bool {
	return x.exchange != nil && (x.exchange.reads || x.exchange.left > 0)
}

// read reads a part of the body that is about to be sent, if isRead. The last part of a body of a
// known length settles the request, and gives back its slot, so that a client that has the response
// finds it so.
func (x *response) read(p []byte) {
	e := x.exchange
	e.judge.Read(&e.answer, p)
	if e.left <= 0 {
		return
	}
	if e.left -= int64(len(p)); e.left <= 0 {
		e.served()
	}
}

// served is called before the last bytes of the response are sent.
func (e *exchange) served() {
	e.reads, e.left = false, -1
	e.judge.Served(e.request.Context(), &e.answer)
}

// readString is read without a copy of s.
func (x *response) readString(s string) {
	var part [512]byte
	for len(s) > 0 && x.isRead() {
		n := copy(part[:], s)
		x.read(part[:n])
		s = s[n:]
	}
}

// A source is what ReadFrom reads, if the body is read on its way.
type source struct {
	io.Reader
	to *response
}

func (s source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.to.isRead() {
		s.to.read(p[:n])
	}
	return n, err
}

// ownRequest returns r with a header and a URL that a handler may change. A percentage that is
// reported when the request is settled is one of the caller that r had until then. If plain is
// true, it has no Accept-Encoding: a compressed body cannot be read for its cost.
func ownRequest(r *http.Request, plain bool) *http.Request {
	out := new(http.Request)
	*out = *r
	out.Header, out.URL = r.Header.Clone(), new(url.URL)
	*out.URL = *r.URL
	if plain {
		delete(out.Header, "Accept-Encoding")
	}
	return out
}

// passBack gives the server's request what a handler has set in its copy: the server removes the
// files of a form.
func passBack(to, from *http.Request) {
	to.Pattern, to.MultipartForm = from.Pattern, from.MultipartForm
}

// hold returns the connection that a handler has hijacked, and its buffers. The request ends when
// the connection is closed or breaks, or when the handler has dropped both unclosed: Go closes such
// a connection too.
func (e *exchange) hold(c net.Conn, rw *bufio.ReadWriter) (net.Conn, *bufio.ReadWriter) {
	e.shown, e.held, e.reads, e.left = true, true, false, -1
	end := sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.judge.End(e.request.Context(), &e.answer)
	})
	held := &heldConn{Conn: c, end: end}
	held.dropped = runtime.AddCleanup(held, func(end func()) { end() }, end)
	if rw == nil {
		return held, nil
	}
	return held, bufio.NewReadWriter(held.reader(rw.Reader), bufio.NewWriterSize(held, rw.Writer.Size()))
}

// A heldConn is a hijacked connection whose request holds a slot, or is to be settled.
type heldConn struct {
	net.Conn
	end     func()
	dropped runtime.Cleanup // calls end when the handler has dropped the connection
}

// reader returns a reader of what is left in r, and then of c.
func (c *heldConn) reader(r *bufio.Reader) *bufio.Reader {
	left, _ := r.Peek(r.Buffered()) // there is no error: it is all there
	if len(left) == 0 {
		return bufio.NewReaderSize(c, r.Size())
	}
	out := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(left)), c), r.Size())
	_, _ = out.Peek(len(left)) // so that it is buffered, as in r
	return out
}

// Read is net.Conn's.
func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != io.EOF { // the other half may be in use
		c.note(err)
	}
	return n, err
}

// Write is net.Conn's.
func (c *heldConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.note(err)
	return n, err
}

// note ends the request after an error by which the connection is broken.
func (c *heldConn) note(err error) {
	var failure net.Error
	if err != nil && !(errors.As(err, &failure) && failure.Timeout()) {
		c.end()
	}
}

// Close is net.Conn's.
func (c *heldConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// CloseWrite closes the sending half. The error is errors.ErrUnsupported if c has no halves.
func (c *heldConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection that was hijacked. The handler may go on with that one alone, and
// has not dropped it then: only Close, or an error, ends the request.
func (c *heldConn) NetConn() net.Conn {
	c.dropped.Stop()
	return c.Conn
}
