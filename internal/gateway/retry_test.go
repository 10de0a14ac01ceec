package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A shakyConn fails after some more bytes.
type shakyConn struct {
	net.Conn
	passes atomic.Int64 // bytes that are still written
}

func (c *shakyConn) Write(p []byte) (int, error) {
	left := c.passes.Load()
	if int64(len(p)) <= left {
		c.passes.Add(int64(-len(p)))
		return c.Conn.Write(p)
	}
	c.passes.Store(0)
	n, err := c.Conn.Write(p[:left])
	if err == nil {
		err = &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// shaky makes connections to an address fail after so many bytes. conns are all that are made.
type shaky struct {
	at     string
	passes int64

	mu    sync.Mutex
	conns []*shakyConn
}

func (s *shaky) around(connect dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &shakyConn{Conn: c}
		conn.passes.Store(1 << 40)
		if address == s.at {
			conn.passes.Store(s.passes)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, conn)
		return conn, nil
	}
}

// fail makes the connections that there are fail after so many more bytes.
func (s *shaky) fail(passes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.passes.Store(passes)
	}
}

// echo answers with the method and the length of the body.
func echo(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %d %v", r.Method, n, err)
}

// retried are requests with their answers from echo.
var retried = map[string]struct{ request, answer string }{
	"GET":           {"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", "GET 0 <nil>"},
	"POST":          {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "POST 5 <nil>"},
	"a large POST":  {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), "POST 100000 <nil>"},
	"a PATCH":       {"PATCH /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "PATCH 5 <nil>"},
	"an empty POST": {"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "POST 0 <nil>"},
}

// A request of which no byte went out goes to another connection, whole and whatever its method.
func TestARequestThatWasNeverSentGoesToAnotherConnection(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	never := func(t *testing.T) string {
		o := newOrigin(t, func(s *served) {
			if s.request() != nil {
				t.Error("the request was sent before")
			}
		})
		var options Options
		o.use(&options)
		return options.Sites[0].Upstreams[0].Host
	}
	for how, first := range map[string]func(t *testing.T) string{
		"an address refuses":          func(*testing.T) string { return gone.Addr().String() },
		"a new connection ends":       never,
		"a kept connection has ended": nil,
	} {
		for name, test := range retried {
			t.Run(how+", "+name, func(t *testing.T) {
				s := new(shaky)
				e := open(t, nil, func(o *Options) {
					behind(t, echo)(o)
					o.dial = s.around
					if first != nil {
						s.at = first(t)
						before(t, "http://"+s.at)(o)
						other := Options{}
						behind(t, echo)(&other)
						o.Sites[0].Upstreams = append(o.Sites[0].Upstreams, other.Sites[0].Upstreams...)
					}
				})
				c := e.caller()
				if first == nil {
					c.request("GET /x")
					c.readAnswer("GET")
					eventually(t, "the connection is kept", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
					s.fail(0)
				}
				c.write("%s", test.request)
				if res, body := c.readAnswer("GET"); res.StatusCode != 200 || body != test.answer {
					t.Errorf("%d %q, want %q", res.StatusCode, body, test.answer)
				}
			})
		}
	}
}

// A request of which a byte went out is not sent again.
func TestARequestThatMayHaveBeenReadIsSentOnce(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for name, test := range retried {
			t.Run(fmt.Sprintf("%s, kept %v", name, kept), func(t *testing.T) {
				var asked atomic.Int64
				s := new(shaky)
				e := open(t, nil, func(o *Options) {
					count := func(w http.ResponseWriter, r *http.Request) { asked.Add(1); echo(w, r) }
					behind(t, count)(o)
					o.dial = s.around
					if !kept {
						other := Options{}
						behind(t, count)(&other)
						o.Sites[0].Upstreams = append(o.Sites[0].Upstreams, other.Sites[0].Upstreams...)
						s.at, s.passes = o.Sites[0].Upstreams[0].Host, 1
					}
				})
				c := e.caller()
				if kept {
					c.request("GET /x")
					c.readAnswer("GET")
					eventually(t, "the connection is kept", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
					s.fail(1)
					asked.Store(0)
				}
				c.write("%s", test.request)
				if res, body := c.readAnswer("GET"); res.StatusCode != 502 || asked.Load() != 0 {
					t.Errorf("%d %q, and it was sent %d times more", res.StatusCode, body, asked.Load())
				}
			})
		}
	}
}
