package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// Sequential requests use one connection. Of several kept connections, the one that
// was used last is used next.
func TestTheLastUsedUpstreamConnectionIsUsedNext(t *testing.T) {
	var gate sync.WaitGroup
	gate.Add(2)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.URL.Path == "/v1/wp/both" {
				gate.Done()
				gate.Wait()
			}
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", s.nth)
		}
	})
	e := open(t, nil, o.use)
	c := e.caller()
	for range 10 {
		c.request("GET /v1/wp/one")
		if _, body := c.readAnswer("GET"); body != "1" {
			t.Errorf("on connection %s, want 1", body)
		}
	}
	other := e.caller()
	c.request("GET /v1/wp/both")
	other.request("GET /v1/wp/both")
	_, first := c.readAnswer("GET")
	_, second := other.readAnswer("GET")
	if first == second || o.conns.Load() != 2 {
		t.Errorf("%s and %s, at a time; %d connections", first, second, o.conns.Load())
	}
	free := func() { // an answer may arrive before its connection is put back
		eventually(t, "every connection is put back", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
	}
	free()
	c.request("GET /v1/wp/one")
	_, last := c.readAnswer("GET")
	for range 5 {
		free()
		other.request("GET /v1/wp/one")
		if _, body := other.readAnswer("GET"); body != last {
			t.Errorf("on connection %s, want the last used, %s", body, last)
		}
	}
}

// If the upstream has closed a kept connection, it is not used. No request is lost
// on it, not even one that could not be repeated.
func TestAClosedConnectionIsDetectedBeforeItIsUsed(t *testing.T) {
	closed := make(chan bool)
	o := newOrigin(t, func(s *served) {
		if s.request() == nil {
			return
		}
		s.answers(ok200)
		s.Conn.Close()
		closed <- true
	})
	e := open(t, nil, o.use)
	c := e.caller()
	const method, body = "POST", "body"
	for n := range 20 {
		c.request(method+" /v1/wp/status", fmt.Sprintf("Content-Length: %d", len(body)))
		c.write("%s", body)
		if res, body := c.readAnswer(method); res.StatusCode != 200 {
			t.Fatalf("request %d: %d %s", n, res.StatusCode, body)
		}
		<-closed
	}
	if n := o.requests.Load(); n != 20 {
		t.Errorf("the upstream saw %d requests, want 20", n)
	}
}

// A kept connection may end while a request is on its way. A request that was sent
// is not repeated, because it may have been read, and was counted once. net/http
// would repeat some.
func TestNoRequestIsRepeated(t *testing.T) {
	for _, test := range []struct {
		line, field, body string
		partial           string // the bytes before the end
	}{
		{"GET /v1/wp/x", "", "", ""},
		{"HEAD /v1/wp/x", "", "", ""},
		{"GET /v1/wp/x", "Idempotency-Key: 1", "", ""},
		{"GET /v1/wp/x", "", "", "H"},
		{"GET /v1/wp/x", "", "", "HTTP/1.1 103 Early Hints\r\n\r\n"},
		{"POST /v1/wp/x", "", "", ""},
		{"POST /v1/wp/x", "Idempotency-Key: 1", "", ""},
		{"POST /v1/wp/x", "X-Idempotency-Key: 1", "", ""},
		{"PATCH /v1/wp/x", "", "", ""},
		{"PUT /v1/wp/x", "", "body", ""},
	} {
		asked := make(chan string, 10)
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.URL.Path == "/v1/wp/x" {
					asked <- r.Method
					s.answers("%s", test.partial)
					return
				}
				s.answers(ok200)
			}
		})
		e := open(t, nil, o.use)
		c := e.caller()
		c.request("GET /v1/wp/first")
		c.readAnswer("GET")
		fields := []string{fmt.Sprintf("Content-Length: %d", len(test.body))}
		if test.field != "" {
			fields = append(fields, test.field)
		}
		c.request(test.line, fields...)
		c.write("%s", test.body)
		status, h := c.head()
		for strings.HasPrefix(status, "103") {
			status, h = c.head()
		}
		if !strings.HasPrefix(status, "502") || len(asked) != 1 {
			t.Errorf("%s, %q, %q, %q: %s %v, asked %d times; want 502, asked once", test.line, test.field, test.body, test.partial, status, h, len(asked))
		}
	}
	// On a new connection no request is repeated.
	o := newOrigin(t, func(s *served) { s.request() })
	e := open(t, nil, o.use)
	want(t, e.ask("GET /v1/wp/x"), 502, "upstream_unavailable", wpPlugin)
	if n := o.requests.Load(); n != 1 {
		t.Errorf("the upstream saw %d requests, want 1", n)
	}
}

// Unrequested bytes are never taken for the beginning of the next answer, which may
// be another caller's, whatever the two callers speak.
func TestUnrequestedBytesAreNotAnAnswer(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Evil: 1\r\n\r\nevil"
	for name, test := range map[string]struct{ method, answer, later string }{
		"two answers at once":               {"GET", ok200 + evil, ""},
		"two answers, one after another":    {"GET", ok200, evil},
		"an empty answer, then another":     {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", evil},
		"a body to HEAD":                    {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 58\r\n\r\n", evil},
		"a body to HEAD at once":            {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 58\r\n\r\n" + evil, ""},
		"a body in a 204":                   {"GET", "HTTP/1.1 204 No Content\r\n\r\n", evil},
		"a body in a 204 at once":           {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 58\r\n\r\n" + evil, ""},
		"a body in a 304":                   {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 58\r\n\r\n", evil},
		"more than Content-Length":          {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + evil, ""},
		"more behind the last chunk":        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil, ""},
		"more behind the last chunk, later": {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", evil},
		"the second half of a head":         {"GET", ok200, "X-Evil: 1\r\nContent-Length: 4\r\n\r\nevil"},
		"one byte":                          {"GET", ok200, "H"},
	} {
		t.Run(name, func(t *testing.T) {
			came := make(chan bool)
			o := newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					if r.URL.Path == "/v1/wp/victim" {
						s.answers("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nvictim")
						continue
					}
					s.answers("%s", test.answer)
					if test.later != "" {
						<-came
						s.answers("%s", test.later)
					}
					came <- true
				}
			})
			e := open(t, nil, o.use)
			one := &http.Client{Transport: new(http.Transport)}
			t.Cleanup(one.CloseIdleConnections)
			two := h2c(t)
			for n := range 12 {
				attacker, victim := one, one
				if n%2 == 1 {
					attacker = two
				}
				if n%4 > 1 {
					victim = two
				}
				// net/http's client takes a 304 that declares a length for half an answer
				_, _ = io.Copy(io.Discard, do(t, attacker, test.method, e.url("/v1/wp/evil"), nil).Body)
				if test.later != "" {
					came <- true // the answer has ended
				}
				<-came
				res := do(t, victim, "GET", e.url("/v1/wp/victim"), nil)
				if body := text(t, res); body != "victim" || res.Header.Get("X-Evil") != "" {
					t.Fatalf("round %d, over %s: the next caller gets %d %q %v", n, res.Proto, res.StatusCode, body, res.Header)
				}
			}
		})
	}
}

// If an answer is there before its request, the kept connection is not used. If the
// upstream closes after an answer, or announces it, the connection ends.
func TestAConnectionThatIsToCloseIsNotUsed(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("%s", head) // without closing it
			}
		})
		e := open(t, nil, o.use)
		c := e.caller()
		for range 3 {
			c.request("GET /v1/wp/status")
			if res, body := c.readAnswer("GET"); body != "ok" || res.Close {
				t.Errorf("%q: %q, close %v", head, body, res.Close)
			}
		}
		if n := o.conns.Load(); n != 3 {
			t.Errorf("%q: %d connections for three requests", head, n)
		}
		eventually(t, "they are closed on this side", func() bool { return o.open.Load() == 0 })
	}
}

// If an answer is ambiguous or invalid, the caller gets a complete 502 with the
// fields. Nothing of the answer is forwarded, and its connection is not used again.
func TestAnInvalidAnswerIs502(t *testing.T) {
	for name, answer := range map[string]string{
		"both lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
		"signed length":      "HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nevil",
		"overflowing length": "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nevil",
		"bare line feeds":    "HTTP/1.1 200 OK\nContent-Length: 4\n\nevil",
		"obs-fold":           "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 4\r\n\r\nevil",
		"blank before colon": "HTTP/1.1 200 OK\r\nContent-Length : 4\r\n\r\nevil",
		"NUL":                "HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 4\r\n\r\nevil",
		"no status":          "HTTP/1.1 OK\r\nContent-Length: 4\r\n\r\nevil",
		"gzip coding":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n",
		"HTTP/2":             "HTTP/2 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"status 000":         "HTTP/1.1 000 Evil\r\nContent-Length: 4\r\n\r\nevil",
		"status 099":         "HTTP/1.1 099 Evil\r\nContent-Length: 4\r\n\r\nevil",
		"101 unasked":        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nevil",
		"a bomb of fields":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Evil: 1\r\n", 200<<10) + "\r\nevil",
		"an endless head":    "HTTP/1.1 200 OK\r\nX-Evil: " + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					s.answers("%s", answer)
				}
			})
			e := open(t, nil, o.use)
			c := e.caller()
			for range 2 {
				c.request("POST /v1/wp/status", "Content-Length: 0")
				res, body := c.readAnswer("POST")
				if res.StatusCode != 502 || !strings.Contains(body, "upstream_unavailable") || strings.Contains(body, "evil") || limitOf(res.Header) != wpPlugin || res.Close {
					t.Errorf("%s: %d %.200q, %.200v", name, res.StatusCode, body, res.Header)
				}
			}
			if n := o.conns.Load(); n != 2 {
				t.Errorf("%s: %d connections for two requests", name, n)
			}
			eventually(t, name+": nothing of it is in flight", func() bool { return o.open.Load() == 0 && e.gateway.Upstreams()[0].Busy == 0 })
		})
	}
}

// If one of several addresses is down, callers do not notice. If all are down,
// callers get an error. When they are back, requests succeed.
func TestAddressesFailAndRecover(t *testing.T) {
	var addrs []string
	var servers [2]*http.Server
	serve := func(i int) {
		l, err := net.Listen("tcp", append(addrs, "127.0.0.1:0", "127.0.0.1:0")[i])
		if err != nil {
			t.Fatal(err)
		}
		if len(addrs) < 2 {
			addrs = append(addrs, l.Addr().String())
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, i) })}
		servers[i] = s
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { s.Close() })
	}
	serve(0)
	serve(1)
	e := open(t, nil, func(o *Options) {
		o.Sites = To(&url.URL{Scheme: "http", Host: addrs[0]}, &url.URL{Scheme: "http", Host: addrs[1]})
	})
	c := e.caller()
	ask := func(method string) (int, string) {
		c.request(method+" /v1/wp/status", "Content-Length: 0")
		res, body := c.readAnswer(method)
		return res.StatusCode, body
	}
	seen := map[string]bool{}
	for range 6 {
		status, body := ask("GET")
		seen[body] = seen[body] || status == 200
	}
	if !seen["0"] || !seen["1"] {
		t.Errorf("only %v are asked", seen)
	}
	// Its connections end as well. A request in flight on one is lost, and was
	// counted.
	servers[0].Close()
	for range 20 {
		if status, body := ask("GET"); status != 200 || body != "1" && body != "0" {
			t.Errorf("one is down: %d %s", status, body)
		}
	}
	servers[1].Close()
	eventually(t, "both are down", func() bool { status, _ := ask("GET"); return status == 502 })
	for range 3 {
		if status, body := ask("POST"); status != 502 || !strings.Contains(body, "upstream_unavailable") {
			t.Errorf("both are down: %d %s", status, body)
		}
	}
	serve(0)
	eventually(t, "one is back", func() bool { status, _ := ask("GET"); return status == 200 })
	e.stop()
	if log := e.log.String(); !strings.Contains(log, "address is down") {
		t.Errorf("log %q", log)
	}
}

// Ten requests in one segment are answered in order, and each is counted.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			body, _ := io.ReadAll(r.Body)
			s.answers("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(r.URL.Path+string(body)), r.URL.Path+string(body))
		}
	})
	e := open(t, nil, func(options *Options) { o.use(options); allowing(t, "8 per hour by ip")(options) })
	var all strings.Builder
	for i := range 10 {
		switch i % 3 {
		case 0:
			fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: h\r\n\r\n", i)
		case 1:
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", i)
		default:
			fmt.Fprintf(&all, "PUT /%d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1;x\r\nb\r\n0\r\n\r\n", i)
		}
	}
	want := []string{"/0", "/1ab", "/2ab", "/3", "/4ab", "/5ab", "/6", "/7ab"}
	c := e.caller()
	c.write("%s", all.String())
	var got []string
	for i := range 10 {
		res, body := c.readAnswer("GET")
		if res.StatusCode != map[bool]int{true: 200, false: 429}[i < 8] {
			t.Errorf("%d: status %d", i, res.StatusCode)
		}
		if res.StatusCode == 200 {
			got = append(got, body)
		}
	}
	if !slices.Equal(got, want) || o.requests.Load() != 8 {
		t.Errorf("%q, %d requests upstream; want %q", got, o.requests.Load(), want)
	}
	if c.request("GET /healthz"); c.Buffered() != 0 {
		t.Error("there is more than ten answers")
	}
}

// A request is the same however it is split into segments.
func TestARequestMayArriveByteByByte(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			body, _ := io.ReadAll(r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	e := open(t, nil, o.use)
	for _, framing := range []string{"Content-Length: 9\r\n\r\nbody body", "Transfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n006;e=1\r\ny body\r\n0\r\nX: y\r\n\r\n"} {
		raw := "POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nX-Long: " + strings.Repeat("x", 40) + "\r\n" + framing
		if e.gateway.Fast() {
			raw = "\r\n" + raw // the empty line is skipped (RFC 9112, section 2.2)
		}
		for at := 1; at < len(raw); at += 1 + at%5 {
			c := e.caller()
			c.write("%s", raw[:at])
			eventually(t, "the first part is read", func() bool { return drained(c) })
			c.write("%s", raw[at:])
			if res, body := c.readAnswer("POST"); res.StatusCode != 200 || body != "body body" {
				t.Fatalf("cut at %d, %q: %d %q", at, framing, res.StatusCode, body)
			}
			c.Close()
		}
		c := e.caller()
		_ = c.Conn.(*net.TCPConn).SetNoDelay(true)
		for i := range raw {
			c.write("%s", raw[i:i+1])
		}
		if _, body := c.readAnswer("POST"); body != "body body" {
			t.Errorf("byte by byte: %q", body)
		}
	}
}

// drained waits a while for the sent part to be read separately. It is a guess, and
// affects only the segmentation.
func drained(c *caller) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Peek(1)
	_ = c.SetDeadline(time.Now().Add(patience))
	return pace.IsTimeout(err)
}
