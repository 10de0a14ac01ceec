package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway/pace"
)

// A caller is a client's connection that returns raw bytes. It fails on a timeout.
type caller struct {
	t testing.TB
	net.Conn
	*bufio.Reader
}

func (e *edge) caller() *caller {
	e.t.Helper()
	c := e.dial()
	return &caller{e.t, c, bufio.NewReader(c)}
}

func (c *caller) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func (c *caller) WriteTo(w io.Writer) (int64, error) { return c.Reader.WriteTo(w) }

// write sends text unchanged.
func (c *caller) write(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// request sends a request without a body. Its answer has the whole of patience, however many there
// were before on the connection.
func (c *caller) request(line string, header ...string) {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	c.write("%s", line+" HTTP/1.1\r\nHost: weir.test\r\n"+strings.Join(append(header, ""), "\r\n")+"\r\n")
}

// head reads the head of an answer, including interim ones.
func (c *caller) head() (status string, h textproto.MIMEHeader) {
	c.t.Helper()
	r := textproto.NewReader(c.Reader)
	line, err := r.ReadLine()
	if err != nil {
		c.t.Fatalf("an answer's first line: %v", err)
	}
	h, err = r.ReadMIMEHeader()
	if err != nil {
		c.t.Fatalf("the header behind %q: %v", line, err)
	}
	return strings.TrimPrefix(line, "HTTP/1.1 "), h
}

// readAnswer reads a whole answer to a request with that method.
func (c *caller) readAnswer(method string) (*http.Response, string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("an answer to %s: %v", method, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("an answer to %s: %d, then %q and %v", method, res.StatusCode, body, err)
	}
	return res, string(body)
}

// reads expects exactly that text next.
func (c *caller) reads(want string) {
	c.t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(c.Reader, b); err != nil || string(b) != want {
		c.t.Fatalf("%q and %v, want %q", b[:n], err, want)
	}
}

// ends expects the end of the connection, regular or by a reset.
func (c *caller) ends() {
	c.t.Helper()
	if b, err := c.ReadByte(); err == nil {
		c.t.Errorf("%q follows, want the end of the connection", b)
	} else if pace.IsTimeout(err) {
		c.t.Errorf("the connection is open, want its end")
	}
}

// An origin is an upstream whose bytes the test writes. It counts requests and
// connections.
type origin struct {
	use      func(*Options)
	conns    atomic.Int64
	requests atomic.Int64
	open     atomic.Int64 // connections

	mu  sync.Mutex
	all []net.Conn
}

// A served is one connection at an origin.
type served struct {
	net.Conn
	*bufio.Reader
	nth int64 // number of the connection, from 1
	of  *origin
}

func (s *served) Read(p []byte) (int, error)              { return s.Reader.Read(p) }
func (s *served) WriteTo(w io.Writer) (int64, error)      { return s.Reader.WriteTo(w) }
func (s *served) ReadFrom(r io.Reader) (n int64, e error) { return io.Copy(s.Conn, r) }

// newOrigin starts an origin. serve handles each connection, which ends when it
// returns.
func newOrigin(t testing.TB, serve func(s *served)) *origin {
	t.Helper()
	o := new(origin)
	o.use = rawUpstream(t, func(c net.Conn) {
		nth := o.conns.Add(1)
		o.open.Add(1)
		defer o.open.Add(-1)
		o.mu.Lock()
		o.all = append(o.all, c)
		o.mu.Unlock()
		serve(&served{c, bufio.NewReader(c), nth, o})
	})
	t.Cleanup(o.hangUp)
	return o
}

// hangUp closes every connection.
func (o *origin) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.all {
		c.Close()
	}
	o.all = nil
}

// request reads the head of the next request, without its body. It returns nil if
// none arrives.
func (s *served) request() *http.Request {
	r, err := http.ReadRequest(s.Reader)
	if err != nil {
		return nil
	}
	s.of.requests.Add(1)
	return r
}

// answers writes text unchanged.
func (s *served) answers(format string, args ...any) { fmt.Fprintf(s.Conn, format, args...) }

// answering is an origin that reads every request completely and sends the same
// answer.
func answering(t testing.TB, answer string) *origin {
	return newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers("%s", answer)
		}
	})
}

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// allowing is a policy of one limiter for all requests.
func allowing(t testing.TB, window string) func(*Options) {
	t.Helper()
	w, err := weir.ParseWindow(window)
	if err != nil {
		t.Fatal(err)
	}
	route, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "all", Routes: []weir.Route{route}, Windows: []weir.Window{w}}}}
	return func(o *Options) { o.Decider = testDecider(t, p) }
}

// within waits for an event.
func within[T any](t testing.TB, d time.Duration, what string, event <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v = <-event:
	case <-timer.C:
		t.Fatalf("waited %v in vain: %s", d, what)
	}
	return v
}
