package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// The phases of a request in which its client goes away, and the access log's text
// for each.
var goneIn = []struct {
	name, logs string
	leave      func(e *edge, c *caller, arrived <-chan bool)
}{
	{"before the answer", "status=499", func(_ *edge, c *caller, arrived <-chan bool) {
		c.request("GET /v1/wp/quiet")
		<-arrived
	}},
	{"before the answer, with a body", "status=499", func(_ *edge, c *caller, arrived <-chan bool) {
		c.request("POST /v1/wp/quiet", "Content-Length: 4")
		c.write("body")
		<-arrived
	}},
	{"in a streamed upload", "status=499", func(_ *edge, c *caller, arrived <-chan bool) {
		c.request("POST /v1/wp/quiet", "Transfer-Encoding: chunked")
		c.write("4\r\nbody\r\n")
		<-arrived
	}},
	{"in a long upload", "status=499", func(_ *edge, c *caller, arrived <-chan bool) {
		c.request("POST /v1/wp/quiet", "Content-Length: 1000000000")
		c.write("%s", strings.Repeat("x", 1<<20))
		<-arrived
	}},
	{"in an answer", "aborted=true", func(_ *edge, c *caller, _ <-chan bool) {
		c.request("GET /v1/wp/flood")
		c.head()
	}},
	{"in a quiet event stream", "aborted=true", func(_ *edge, c *caller, _ <-chan bool) {
		c.request("GET /v1/wp/events")
		c.head()
	}},
	{"in a websocket", "status=101", func(_ *edge, c *caller, _ <-chan bool) {
		c.request("GET /v1/wp/socket", "Connection: Upgrade", "Upgrade: websocket")
		c.head()
	}},
}

// If a client goes away in any phase, its request to the upstream ends at once. The log reports the
// client, and no failure of the upstream. No goroutine, file or half-used connection is left.
func TestAClientThatGoesAwayEndsItsRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for _, in := range goneIn {
		for _, how := range []string{"ends", "resets"} {
			arrived := make(chan bool, 1)
			o := newOrigin(t, func(s *served) {
				r := s.request()
				if r == nil {
					return
				}
				arrived <- true
				switch r.URL.Path {
				case "/v1/wp/socket":
					s.answers(switching)
				case "/v1/wp/events":
					s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
				case "/v1/wp/flood":
					s.answers("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
					_, _ = io.Copy(s.Conn, zeros{})
				}
				_, _ = io.Copy(io.Discard, s)
			})
			e := open(t, nil, o.use)
			c := e.caller()
			in.leave(e, c, arrived)
			if how == "resets" {
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
			// No timeout ends it: see lasting.
			eventually(t, in.name+": the upstream's request ends", func() bool { return o.open.Load() == 0 })
			e.stop()
			line := e.access.String()
			if !strings.Contains(line, in.logs) || strings.Count(line, "\n") != 1 {
				t.Errorf("%s, %s: access log %q, want %s", in.name, how, line, in.logs)
			}
			if log := e.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
				t.Errorf("%s, %s: log %q", in.name, how, log)
			}
			if n := e.gateway.InFlight(); n != 0 {
				t.Errorf("%s, %s: %d requests are left", in.name, how, n)
			}
			// the goroutine of a connection may subtract it after the drain
			eventually(t, in.name+", "+how+": no connection is left", func() bool { return e.gateway.rules.Open.Load() == 0 })
		}
	}
}

// If a client goes away while the upstream is being connected to, its request ends at once too.
func TestAClientThatGoesAwayEndsTheConnectingForIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connected := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			connected <- c // and answers no TLS hello
		}
	}()
	site := before(t, "https://"+l.Addr().String())
	e := open(t, nil, func(o *Options) { site(o); o.Limits.Connect = time.Hour })
	c := e.caller()
	c.request("GET /v1/wp/quiet")
	upstream := <-connected
	defer upstream.Close()
	c.Close()
	eventually(t, "the request ends", func() bool { return e.gateway.InFlight() == 0 })
	e.stop()
	if line := e.access.String(); !strings.Contains(line, "status=499") || strings.Count(line, "\n") != 1 {
		t.Errorf("access log %q, want status=499", line)
	}
}

// A client has sent more requests than are read ahead. If it goes away, that is
// detected; if it stays, all are answered.
func TestAPipeliningClientThatGoesAwayIsDetected(t *testing.T) {
	for _, how := range []string{"ends", "resets", "ends his half", "stays"} {
		more := make(chan bool)
		o := newOrigin(t, func(s *served) {
			if s.request() == nil {
				return
			}
			s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
			if how != "stays" {
				_, _ = io.Copy(io.Discard, s)
				return
			}
			<-more
			s.answers("0\r\n\r\n")
			for s.request() != nil {
				s.answers(ok200)
			}
		})
		e := open(t, nil, o.use)
		if !e.gateway.Fast() || runtime.GOOS != "linux" {
			return // net/http reads one byte ahead
		}
		c := e.caller()
		c.request("GET /v1/wp/events")
		c.head()
		const behind = 400
		for range behind {
			c.request("GET /v1/wp/one", "X-Long: "+strings.Repeat("x", 100))
		}
		eventually(t, "the read-ahead is full", func() bool {
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "pace.AwaitHangup")
		})
		switch how {
		case "stays":
			close(more)
			if rest, err := io.ReadAll(httputil.NewChunkedReader(c.Reader)); string(rest) != ":\n\n" || err != nil {
				t.Errorf("the stream: %q, %v", rest, err)
			}
			_, _ = c.Reader.Discard(2) // the end of its trailers
			for n := range behind {
				if res, body := c.readAnswer("GET"); res.StatusCode != 200 || body != "ok" {
					t.Fatalf("request %d after it: %d %q", n, res.StatusCode, body)
				}
			}
		case "resets":
			_ = c.Conn.(*net.TCPConn).SetLinger(0)
			c.Close()
		case "ends":
			c.Close()
		default:
			_ = c.Conn.(*net.TCPConn).CloseWrite()
		}
		if how != "stays" {
			eventually(t, how+": the upstream's request ends", func() bool { return o.open.Load() == 0 })
		}
		e.stop()
	}
}

// files counts this process's open files; it returns 0 if the system does not
// report them.
func files() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// Many clients go away in every phase. They leave nothing behind while the gateway
// serves on.
func TestClientsThatGoAwayLeaveNothingBehind(t *testing.T) {
	arrived := make(chan bool, 1)
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		arrived <- true
		if r.URL.Path == "/v1/wp/socket" {
			s.answers(switching)
		} else if r.URL.Path != "/v1/wp/quiet" {
			s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
		}
		_, _ = io.Copy(io.Discard, s)
	})
	e := open(t, nil, o.use)
	round := func(many int) (goroutines, open int) {
		for _, in := range goneIn {
			for range many {
				c := e.caller()
				in.leave(e, c, arrived)
				select {
				case <-arrived: // a phase that does not wait for it
				default:
				}
				c.Close()
			}
		}
		settled := func() bool {
			return e.gateway.InFlight() == 0 && e.gateway.rules.Open.Load() == 0 && o.open.Load() == 0
		}
		eventually(t, "all have gone", settled)
		return runtime.NumGoroutine(), files()
	}
	goroutines, open := round(1)
	round(8)
	eventually(t, "goroutines and files are as many as after one round", func() bool {
		runtime.GC() // client connections of the test
		return runtime.NumGoroutine() <= goroutines+2 && files() <= open+2
	})
}

// A client that goes away does not affect its address: the next caller is served,
// on a connection that is not half-used.
func TestAClientThatGoesAwayAffectsNoOtherCaller(t *testing.T) {
	arrived := make(chan bool, 1)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.URL.Path == "/v1/wp/quiet" {
				arrived <- true
				_, _ = io.Copy(io.Discard, s)
				s.answers("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers(ok200)
		}
	})
	e := open(t, nil, o.use)
	other := e.caller()
	for _, in := range goneIn[:4] {
		c := e.caller()
		in.leave(e, c, arrived)
		c.Close()
		eventually(t, "its request ends", func() bool { return e.gateway.InFlight() == 0 })
		for range 3 {
			other.request("GET /v1/wp/status")
			if res, body := other.readAnswer("GET"); res.StatusCode != http.StatusOK || body != "ok" {
				t.Errorf("after a client went away %s: %d %q", in.name, res.StatusCode, body)
			}
		}
	}
	e.stop()
	if log := e.log.String(); log != "" {
		t.Errorf("log %q", log)
	}
}

// Each step has a timeout. At its end the peer gets an error if possible, and the
// connection is closed.
func TestEveryStepHasATimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const short = 200 * time.Millisecond
	stuck := func(s *served) { s.request(); _, _ = io.Copy(io.Discard, s) }
	half := func(s *served) {
		s.request()
		s.answers("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		_, _ = io.Copy(io.Discard, s)
	}
	halfHead := func(s *served) {
		s.request()
		s.answers("HTTP/1.1 200 OK\r\nContent-Le")
		_, _ = io.Copy(io.Discard, s)
	}
	flood := func(s *served) {
		s.request()
		s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for {
			if _, err := fmt.Fprintf(s.Conn, "%x\r\n%s\r\n", 1<<16, make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}
	for _, test := range []struct {
		name     string
		upstream func(*served)
		limit    func(*Limits)
		write    string
		status   string // empty if the connection ends without an answer
		unread   bool   // the client does not read
	}{
		{"nothing comes", nil, func(l *Limits) { l.Idle = short }, "", "", false},
		{"a header that trickles", nil, func(l *Limits) { l.Header = short }, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX", "", false},
		{"a small body that stalls", stuck, func(l *Limits) { l.Stall = short }, "POST /v1/wp/x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nha", "408", false},
		{"a large body that stalls", stuck, func(l *Limits) { l.Stall = short }, "POST /v1/wp/x HTTP/1.1\r\nHost: h\r\nContent-Length: 99999\r\n\r\nha", "408", false},
		{"a chunked body that stalls", stuck, func(l *Limits) { l.Stall = short }, "POST /v1/wp/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha", "408", false},
		{"an upstream without an answer", stuck, func(l *Limits) { l.Upstream = short }, "GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\n", "504", false},
		{"an upstream with half a head", halfHead, func(l *Limits) { l.Upstream = short }, "GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\n", "504", false},
		{"an upstream with half a body", half, func(l *Limits) { l.Stall = short }, "GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\n", "200", false},
		{"a client that does not read", flood, func(l *Limits) { l.Stall = short }, "GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\n", "", true},
		{"a kept connection without a request", nil, func(l *Limits) { l.Idle = short }, "GET /v1/wp/x HTTP/1.1\r\nHost: h\r\n\r\n", "200", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.upstream == nil {
				test.upstream = func(s *served) {
					for r := s.request(); r != nil; r = s.request() {
						s.answers(ok200)
					}
				}
			}
			o := newOrigin(t, test.upstream)
			e := open(t, nil, func(options *Options) { o.use(options); test.limit(&options.Limits) })
			c := e.caller()
			began := time.Now()
			c.write("%s", test.write)
			if test.unread {
				eventually(t, "the connection is closed", func() bool { return o.conns.Load() == 1 && o.open.Load() == 0 && e.gateway.rules.Open.Load() == 0 })
				return
			}
			if test.status == "504" || test.name == "a small body that stalls" {
				if status, h := c.head(); !strings.HasPrefix(status, test.status) || limitOf(http.Header(h)) != wpPlugin {
					t.Errorf("%s: %s %v", test.name, status, h)
				}
			} else {
				b, err := io.ReadAll(c)
				if pace.IsTimeout(err) || !strings.HasPrefix(string(b), strings.TrimSuffix("HTTP/1.1 "+test.status, "HTTP/1.1 ")) {
					t.Errorf("%s: %q, %v", test.name, b, err)
				}
			}
			if took := time.Since(began); took < short/2 {
				t.Errorf("%s: over after %v, want %v", test.name, took, short)
			}
		})
	}
}
