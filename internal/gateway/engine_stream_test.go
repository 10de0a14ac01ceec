package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// An answer may begin, and continue, while the request is still arriving.
func TestBothWaysStreamAtOnce(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil {
			return
		}
		s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		s.echoes(r)
	})
	e := open(t, nil, o.use)
	c := e.caller()
	c.request("POST /v1/wp/status", "Transfer-Encoding: chunked")
	if status, h := c.head(); status != "200 OK" || h.Get("Transfer-Encoding") != "chunked" {
		t.Fatalf("%s %v before the body", status, h)
	}
	for _, b := range []string{"a", "b", "c"} {
		c.write("1\r\n%s\r\n", b)
		c.reads("1\r\n" + b + "\r\n")
	}
	c.write("0\r\n\r\n")
	c.reads("0\r\n\r\n")
}

// If a client is answered before its upload is complete, it gets the whole answer
// with Connection: close, and the connection ends.
func TestAnEarlyAnswerArrivesWhole(t *testing.T) {
	for _, framing := range []string{"Content-Length: 100000000", "Transfer-Encoding: chunked"} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("HTTP/1.1 413 Content Too Large\r\nContent-Length: 20\r\n\r\n%s", strings.Repeat("x", 20))
			}
		})
		e := open(t, nil, o.use)
		c := e.caller()
		c.request("POST /v1/wp/status", framing)
		piece := strings.Repeat("a", 1000)
		if strings.HasPrefix(framing, "T") {
			piece = "3e8\r\n" + piece + "\r\n"
		}
		c.write("%s", piece)
		res, body := c.readAnswer("POST")
		if res.StatusCode != 413 || len(body) != 20 || !res.Close {
			t.Errorf("%s: %d %q, close %v", framing, res.StatusCode, body, res.Close)
		}
		c.ends()
		// The upstream's connection holds half a body, and is not used again.
		c = e.caller()
		c.request("GET /v1/wp/status")
		c.readAnswer("GET")
		if n := o.conns.Load(); n != 2 {
			t.Errorf("%s: %d connections to the upstream, want 2", framing, n)
		}
	}
}

// So it does if another ResponseWriter is put around the server's, as traces do.
func TestAnEarlyAnswerArrivesWholeThroughAWrapper(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		if s.request() != nil {
			s.answers("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, s)
		}
	})
	e := open(t, nil, func(options *Options) {
		o.use(options)
		options.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(wrapped{w}, r) })
		}
	})
	for _, begin := range []string{"Content-Length: 100000\r\n\r\nbegin", "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n"} {
		c := e.caller()
		c.write("POST /v1/wp/x HTTP/1.1\r\nHost: h\r\n%s", begin)
		if res, body := c.readAnswer("POST"); res.StatusCode != 413 || body != "no" || !res.Close {
			t.Errorf("%d %q, close %v", res.StatusCode, body, res.Close)
		}
		c.ends()
	}
}

// A wrapped is a ResponseWriter that has nothing of the server's own but Unwrap.
type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.w.Header() }
func (w wrapped) WriteHeader(status int)      { w.w.WriteHeader(status) }
func (w wrapped) Write(b []byte) (int, error) { return w.w.Write(b) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.w }

// A body may turn out to be too long at the moment when its answer comes. The client gets one of
// the two answers, whole.
func TestATooLongBodyMeetsItsAnswer(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		if s.request() != nil {
			s.answers("HTTP/1.1 413 Content Too Large\r\nX-A: 1\r\nX-B: 2\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, s)
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); options.Limits.Body = 20_000 })
	for range 50 {
		c := e.caller()
		c.request("POST /v1/wp/x", "Transfer-Encoding: chunked")
		c.write("5000\r\n%s\r\n", strings.Repeat("x", 0x5000))
		res, body := c.readAnswer("POST")
		if res.StatusCode != http.StatusRequestEntityTooLarge || limitOf(res.Header) != wpPlugin || body != "no" && !strings.Contains(body, "too_large") {
			t.Fatalf("%d %q %v", res.StatusCode, body, res.Header)
		}
		c.Close()
	}
}

// If an upload is complete before its answer, both connections are kept.
func TestACompleteUploadKeepsBothConnections(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			n, _ := io.Copy(io.Discard, r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n%07d", n)
		}
	})
	e := open(t, nil, o.use)
	c := e.caller()
	for range 20 {
		c.request("POST /v1/wp/status", "Content-Length: 100000")
		c.write("%s", strings.Repeat("a", 100000))
		if res, body := c.readAnswer("POST"); body != "0100000" || res.Close {
			t.Errorf("%q, close %v", body, res.Close)
		}
		c.request("POST /v1/wp/status", "Transfer-Encoding: chunked")
		c.write("186a0\r\n%s\r\n0\r\n\r\n", strings.Repeat("a", 100000))
		if res, body := c.readAnswer("POST"); body != "0100000" || res.Close {
			t.Errorf("chunked: %q, close %v", body, res.Close)
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections to the upstream, want 1", n)
	}
}

// Bodies of any length and framing are forwarded in little memory, in both
// directions.
func TestHugeBodiesPassThroughLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	const size, most = 64 << 20, 32 << 20
	o := newOrigin(t, func(s *served) {
		piece := make([]byte, 128<<10)
		for r := s.request(); r != nil; r = s.request() {
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, piece)
			if r.Method == "PUT" {
				s.answers("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d", len(fmt.Sprint(n)), n)
				continue
			}
			chunked := r.URL.Path == "/v1/wp/chunked"
			if s.answers("HTTP/1.1 200 OK\r\n"); chunked {
				s.answers("Transfer-Encoding: chunked\r\n\r\n")
			} else {
				s.answers("Content-Length: %d\r\n\r\n", size)
			}
			for sent := 0; sent < size && err == nil; sent += len(piece) {
				if chunked {
					s.answers("%x\r\n", len(piece))
				}
				_, err = s.Conn.Write(piece)
				if chunked {
					s.answers("\r\n")
				}
			}
			if chunked {
				s.answers("0\r\n\r\n")
			}
		}
	})
	e := open(t, nil, o.use)
	before, stop := heap(), make(chan bool)
	highest := make(chan uint64)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for high := uint64(0); ; high = max(high, heap()) {
			select {
			case <-stop:
				highest <- high
				return
			case <-tick.C:
			}
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/v1/wp/known", "/v1/wp/chunked"} {
		req, err := http.NewRequest("PUT", e.url(path), io.LimitReader(struct{ io.Reader }{zeros{}}, size))
		if err != nil {
			t.Fatal(err)
		}
		if path == "/v1/wp/known" {
			req.ContentLength = size
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if body := text(t, res); body != fmt.Sprint(size) {
			t.Errorf("%s: %q arrived", path, body)
		}
		res, err = client.Get(e.url(path))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{res.Body}, make([]byte, 128<<10))
		res.Body.Close()
		if n != size || err != nil {
			t.Errorf("%s: %d bytes came back, %v", path, n, err)
		}
	}
	close(stop)
	if high := <-highest; high > before+most {
		t.Errorf("the heap grew by %d MiB, more than %d", (high-before)>>20, most>>20)
	}
}

// heap returns the number of reachable bytes. Garbage is excluded, because its
// amount depends on the machine's load.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtime.GC()
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// socket opens a websocket through e.
func (e *edge) socket() *caller {
	e.t.Helper()
	c := e.caller()
	c.request("GET /api/v1/widget/events", "Connection: Upgrade", "Upgrade: websocket")
	if status, _ := c.head(); status != "101 Switching Protocols" {
		e.t.Fatal(status)
	}
	return c
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// Each side of a websocket may close its half, and still receives the other's data.
func TestAWebsocketEndsOneHalfAtATime(t *testing.T) {
	received := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(switching + "all of it")
		_ = s.Conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(s)
		received <- string(b)
	})
	e := open(t, nil, o.use)
	c := e.socket()
	if b, err := io.ReadAll(c); string(b) != "all of it" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	c.write("and all of that")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if got := within(t, patience, "the upstream receives the end", received); got != "and all of that" {
		t.Errorf("the upstream receives %q after its own end", got)
	}

	o = newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(switching)
		b, _ := io.ReadAll(s) // until the client has closed its half
		s.answers("heard %s", b)
	})
	e = open(t, nil, o.use)
	c = e.socket()
	c.write("all of it")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "heard all of it" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// Large frames are forwarded in both directions at once. If one side breaks off,
// the other's connection is closed, and nothing is left.
func TestAWebsocketForwardsLargeFramesAndEndsWithEitherSide(t *testing.T) {
	ended := make(chan bool, 1)
	o := newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(switching)
		_, _ = io.Copy(s.Conn, s.Reader)
		ended <- true
	})
	e := open(t, nil, o.use)
	c := e.socket()
	frame := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	go func() { _, _ = c.Conn.Write(frame) }()
	got := make([]byte, len(frame))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("a frame of %d bytes comes back changed, %v", len(frame), err)
	}
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
	within(t, patience, "the upstream's end", ended)
	c = e.socket()
	o.hangUp()
	c.ends()
	c.Close()
	within(t, patience, "the upstream's end", ended)
	eventually(t, "nothing is in flight", func() bool { return e.gateway.InFlight() == 0 && o.open.Load() == 0 })
}

// If a client behind a PROXY protocol balancer is refused, it gets the answer
// though its body was not read: the connection stays open for a while.
func TestARefusalSurvivesAnUnreadBody(t *testing.T) {
	for _, proxied := range []string{"", "PROXY TCP4 203.0.113.7 127.0.0.1 1 2\r\n"} {
		o := answering(t, ok200)
		e := open(t, nil, func(options *Options) {
			o.use(options)
			allowing(t, "1 per hour by ip")(options)
			options.ProxyProtocol, options.TrustedProxies = proxied != "", loopback
		})
		ask := func() *caller { c := e.caller(); c.write("%s", proxied); return c }
		c := ask()
		c.request("GET /")
		c.readAnswer("GET")
		for range 20 {
			c := ask()
			c.request("POST /", "Content-Length: 10000000")
			c.write("%s", strings.Repeat("x", 100000))
			if res, _ := c.readAnswer("POST"); res.StatusCode != 429 || !res.Close {
				t.Fatalf("%q: %d, close %v", proxied, res.StatusCode, res.Close)
			}
			c.Close()
		}
	}
}

// echoes answers each byte of a request's body with a chunk, as it comes.
func (s *served) echoes(r *http.Request) {
	b := make([]byte, 1)
	for {
		if _, err := r.Body.Read(b); err != nil {
			break
		}
		s.answers("1\r\n%s\r\n", b)
	}
	s.answers("0\r\n\r\n")
}
