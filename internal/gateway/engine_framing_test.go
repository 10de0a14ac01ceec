package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Hop-by-hop fields, and those that Connection names, are not forwarded, in either
// direction (TestTheUpstreamGetsTheDecidedFields). Fields that every hop needs are
// kept, even if Connection names them.
func TestHopByHopFieldsAreNotForwarded(t *testing.T) {
	heads := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		head, _ := readHead(s.Conn)
		heads <- head
		s.answers("HTTP/1.1 200 OK\r\nConnection: X-Evil-One, keep-alive\r\nConnection: x-evil-two, Date, x-ratelimit-limit\r\nX-Evil-One: 1\r\nx-evil-TWO: 1\r\n" +
			"Keep-Alive: timeout=6\r\nProxy-Connection: evil\r\nProxy-Authenticate: evil\r\nTE: evil\r\nTrailer: evil\r\nUpgrade: evil\r\n" +
			"X-Kept: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 4\r\n\r\nbody")
	})
	e := open(t, nil, o.use)
	c := e.caller()
	c.request("POST /v1/wp/status", "Connection: keep-alive, Host, Content-Length, x-forwarded-for, X-Forwarded-Proto", "Connection: X-Evil", "X-Evil: 1",
		"Proxy-Authorization: evil", "Content-Length: 0", "Cookie: a=1", "Cookie: b=2")
	head := <-heads
	for _, field := range []string{"\r\nHost: weir.test\r\n", "\r\nContent-Length: 0\r\n", "\r\nX-Forwarded-For: 127.0.0.1\r\n", "\r\nX-Forwarded-Proto: http\r\n", "\r\nCookie: a=1\r\n"} {
		if strings.Count(head, field) != 1 {
			t.Errorf("%q does not occur exactly once:\n%s", field, head)
		}
	}
	if strings.Contains(strings.ToLower(head), "evil") {
		t.Errorf("the upstream receives\n%s", head)
	}
	res, body := c.readAnswer("POST")
	if body != "body" || res.Close || res.Header.Get("X-Kept") != "1" || len(res.Header["Set-Cookie"]) != 2 || limitOf(res.Header) != wpPlugin || res.Header.Get("Date") == "" {
		t.Errorf("%q, %v", body, res)
	}
	for name, values := range res.Header {
		if strings.Contains(strings.ToLower(name+strings.Join(values, " ")), "evil") || name == "Keep-Alive" {
			t.Errorf("the client receives %s: %q", name, values)
		}
	}
}

// The client is asked for its body only if the upstream asks, and not before. An
// earlier 100 would precede the 103.
func TestABodyIsRequestedWhenTheUpstreamRequestsIt(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			s.answers("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nRetry-After: 6\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n")
			if r.Header.Get("Expect") == "" {
				s.answers("HTTP/1.1 500 Not Asked\r\nContent-Length: 0\r\n\r\n")
				return
			}
			s.answers("HTTP/1.1 100 Continue\r\n\r\n")
			body, _ := io.ReadAll(r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	e := open(t, nil, o.use)
	for _, framing := range [][2]string{{"Content-Length: 4", "body"}, {"Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n"}} {
		c := e.caller()
		c.request("POST /v1/wp/status", "Expect: 100-continue", framing[0])
		status, h := c.head()
		if status != "103 Early Hints" || h.Get("Link") != "</x>" || h.Get("X-Hop") != "" {
			t.Errorf("%s: %q %v", framing[0], status, h)
		}
		if status, _ := c.head(); status != "100 Continue" {
			t.Errorf("%s: %q, want 100", framing[0], status)
		}
		c.write("%s", framing[1])
		if res, body := c.readAnswer("POST"); res.StatusCode != 200 || body != "body" || res.Close {
			t.Errorf("%s: %d %q, close %v", framing[0], res.StatusCode, body, res.Close)
		}
	}
}

// If an upstream ignores Expect, it waits for the body, and gets it after a second.
func TestAnUpstreamThatIgnoresExpectGetsTheBody(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		if r := s.request(); r != nil {
			body, _ := io.ReadAll(r.Body)
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
	e := open(t, nil, o.use)
	c := e.caller()
	c.request("POST /v1/wp/status", "Expect: 100-continue", "Content-Length: 4")
	if status, _ := c.head(); status != "100 Continue" {
		t.Errorf("%q, want 100", status)
	}
	c.write("body")
	if _, body := c.readAnswer("POST"); body != "body" {
		t.Errorf("%q", body)
	}
}

// If the answer does not need the body, the client is not asked for it. The
// connection ends, because the client may or may not send the body.
func TestAFinalAnswerDoesNotRequestTheBody(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	for _, status := range []int{413, 417, 200} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("HTTP/1.1 %d Word\r\nContent-Length: 2\r\n\r\nno", status)
			}
		})
		e := open(t, nil, o.use)
		for n := range 2 {
			c := e.caller()
			c.request("POST /v1/wp/status", "Expect: 100-continue", "Content-Length: 4")
			res, body := c.readAnswer("POST")
			if res.StatusCode != status || body != "no" {
				t.Errorf("%d: %d %q", status, res.StatusCode, body)
			}
			if c.ends(); !res.Close {
				t.Errorf("%d: the answer has no Connection: close", status)
			}
			if got := o.conns.Load(); got != int64(n+1) {
				t.Errorf("%d: %d connections to the upstream for %d requests: it waits for a body on the first", status, got, n+1)
			}
		}
	}
}

// The limiter refuses before the body is requested.
func TestARefusalDoesNotRequestTheBody(t *testing.T) {
	o := answering(t, ok200)
	e := open(t, nil, func(options *Options) { o.use(options); allowing(t, "1 per hour by ip")(options) })
	e.ask("GET /")
	// A short body could still arrive.
	for _, length := range []string{"Content-Length: 1000000", "Content-Length: 4"} {
		c := e.caller()
		c.request("POST /", "Expect: 100-continue", length)
		res, body := c.readAnswer("POST")
		if res.StatusCode != 429 || !res.Close || !strings.Contains(body, "rate_limited") {
			t.Errorf("%s: %d %q, close %v", length, res.StatusCode, body, res.Close)
		}
		c.ends()
	}
	if n := o.requests.Load(); n != 1 {
		t.Errorf("the upstream saw %d requests, 1 was admitted", n)
	}
	// If a body is already on its way, but too long to wait for, the connection
	// ends, and the answer has Connection: close.
	c := e.caller()
	c.request("POST /", "Content-Length: 1000000000")
	if res, _ := c.readAnswer("POST"); res.StatusCode != 429 || !res.Close {
		t.Errorf("%d, close %v", res.StatusCode, res.Close)
	}
	c.ends()
	// A short body is read, and the connection is kept.
	c = e.caller()
	c.request("POST /", "Content-Length: 4")
	c.write("body")
	c.request("GET /")
	for range 2 {
		if res, _ := c.readAnswer("POST"); res.StatusCode != 429 || res.Close {
			t.Errorf("%d, close %v", res.StatusCode, res.Close)
		}
	}
}

// The framing of answers without a body. The caller's connection is kept; the
// upstream's is kept if no body was declared.
func TestAnswersWithoutABody(t *testing.T) {
	for _, test := range []struct {
		method, answer string
		length         string // the length that the client receives
	}{
		{"HEAD", "200 OK\r\nContent-Length: 12345", "12345"},
		{"HEAD", "200 OK", ""},
		{"HEAD", "200 OK\r\nTransfer-Encoding: chunked", ""},
		{"HEAD", "404 Not Found\r\nContent-Length: 7", "7"},
		{"GET", "204 No Content", ""},
		{"GET", "204 No Content\r\nContent-Length: 0", ""},
		{"GET", "304 Not Modified\r\nETag: \"x\"", ""},
		// A SHOULD NOT that the engines interpret differently.
		{"GET", "304 Not Modified\r\nContent-Length: 12345", "?"},
		{"GET", "200 OK\r\nContent-Length: 0", "0"},
	} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("HTTP/1.1 %s\r\n\r\n", test.answer)
			}
		})
		e := open(t, nil, o.use)
		c := e.caller()
		for n := range 3 {
			c.request(test.method + " /v1/wp/status")
			status, h := c.head()
			if word, _, _ := strings.Cut(test.answer, "\r\n"); status != word {
				t.Errorf("%s, %q: %q", test.method, test.answer, status)
			}
			if got := h.Get("Content-Length"); got != test.length && test.length != "?" {
				t.Errorf("%s, %q: Content-Length %q, want %q", test.method, test.answer, got, test.length)
			}
			if te := h.Get("Transfer-Encoding"); te != "" && test.method != "HEAD" || h.Get("Connection") != "" {
				t.Errorf("%s, %q: %v", test.method, test.answer, h)
			}
			conns := int64(1)
			if test.method == "HEAD" && test.answer != "200 OK" || strings.Contains(test.answer, "12345") {
				// A declared body could still arrive, and be taken for the next
				// answer.
				conns = int64(n + 1)
			}
			if n, m := o.requests.Load(), int64(n+1); n != m || o.conns.Load() != conns {
				t.Errorf("%s, %q: %d requests on %d connections, want %d on %d", test.method, test.answer, n, o.conns.Load(), m, conns)
			}
		}
	}
}

// Each framing of an answer reaches each kind of client completely. The connection
// is kept if possible.
func TestEveryFramingReachesEveryClient(t *testing.T) {
	const goesOn, closes = true, false
	for _, test := range []struct {
		answer string
		// Whether the connection is kept, for a client of HTTP/1.1, HTTP/1.0, and
		// HTTP/1.0 with keep-alive.
		new, old, keptOld bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world", goesOn, closes, goesOn},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n", goesOn, closes, closes},
		{"HTTP/1.1 200 OK\r\n\r\nhello world", goesOn, closes, closes},
		{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello world", goesOn, closes, goesOn},
		{"HTTP/1.0 200 OK\r\n\r\nhello world", goesOn, closes, closes},
		{"HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\nhello world", goesOn, closes, goesOn},
		{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 11\r\n\r\nhello world", goesOn, closes, goesOn},
	} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				s.answers("%s", test.answer)
				if !strings.Contains(test.answer, "Length") && !strings.Contains(test.answer, "chunked") || strings.Contains(test.answer, "close") {
					return
				}
			}
		})
		e := open(t, nil, o.use)
		for kind, on := range map[string]bool{"1.1\r\nHost: h": test.new, "1.0\r\nHost: h": test.old, "1.0\r\nHost: h\r\nConnection: keep-alive": test.keptOld} {
			c := e.caller()
			for range 2 {
				c.write("GET /v1/wp/status HTTP/%s\r\n\r\n", kind)
				res, body := c.readAnswer("GET")
				if body != "hello world" || res.StatusCode != 200 || limitOf(res.Header) != wpPlugin {
					t.Errorf("%q to %q: %d %q", test.answer, kind, res.StatusCode, body)
				}
				if strings.HasPrefix(kind, "1.0") && len(res.TransferEncoding) > 0 {
					t.Errorf("%q to %q: %v", test.answer, kind, res.TransferEncoding)
				}
				if connection := res.Header.Get("Connection"); strings.HasPrefix(kind, "1.0") && on != (connection == "keep-alive") {
					t.Errorf("%q to %q: Connection: %q", test.answer, kind, connection)
				}
				if !on {
					c.ends()
					break
				}
			}
		}
	}
}

// A client of HTTP/1.0 gets no interim answers.
func TestAnHTTP10ClientGetsNoInterimAnswers(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			s.answers("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n%s", ok200)
		}
	})
	e := open(t, nil, o.use)
	c := e.caller()
	c.write("GET /v1/wp/status HTTP/1.0\r\nHost: h\r\n\r\n")
	if status, _ := c.head(); !strings.HasSuffix(status, "200 OK") {
		t.Errorf("%q", status)
	}
	c = e.caller()
	c.write("POST /v1/wp/status HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")
	if status, _ := c.head(); !strings.HasSuffix(status, "200 OK") {
		t.Errorf("%q", status)
	}
}

// If an upstream sends interim answers without end, it is cut off.
func TestAFloodOfInterimAnswersEnds(t *testing.T) {
	for _, line := range []string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"} {
		flooded := make(chan error, 1)
		o := newOrigin(t, func(s *served) {
			if s.request() != nil {
				for {
					if _, err := io.WriteString(s.Conn, strings.Repeat(line, 50)); err != nil {
						flooded <- err
						return
					}
				}
			}
		})
		e := open(t, nil, o.use)
		for _, framing := range []string{"GET", "POST"} {
			c := e.caller()
			if framing == "GET" {
				c.request("GET /v1/wp/status")
			} else { // a body in flight, which delays the timeout
				c.request("POST /v1/wp/status", "Transfer-Encoding: chunked")
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
			within(t, patience, "the upstream is cut off", flooded)
		}
	}
}

// Announced trailers are forwarded, except for those that could be taken for fields
// of the decision.
func TestTrailersOnTheWire(t *testing.T) {
	requests := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		head, rest := readHead(s.Conn)
		var body strings.Builder
		for !strings.HasSuffix(body.String(), "\r\n\r\n") {
			b, err := rest.ReadByte()
			if err != nil {
				return
			}
			body.WriteByte(b)
		}
		requests <- head + body.String()
		s.answers("HTTP/1.1 200 OK\r\nTrailer: X-Sum, X-RateLimit-Limit\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: 1\r\nX-RateLimit-Limit: 6\r\nRetry-After: 6\r\n\r\n")
	})
	e := open(t, nil, o.use)
	c := e.caller()
	c.request("POST /v1/wp/status", "Transfer-Encoding: chunked", "Trailer: X-Sum, X-Forwarded-For", "TE: trailers, deflate", "Connection: TE")
	c.write("4\r\nbody\r\n0\r\nX-Sum: 1\r\nX-Unannounced: 1\r\n\r\n")
	request := <-requests
	if !strings.HasSuffix(request, "\r\nX-Sum: 1\r\n\r\n") || !strings.Contains(request, "\r\nTrailer: X-Sum\r\n") || strings.Contains(request, "Unannounced") ||
		!strings.Contains(strings.ToLower(request), "\r\nte: trailers\r\n") || strings.Contains(request, "deflate") {
		t.Errorf("the upstream receives\n%s", request)
	}
	res, body := c.readAnswer("POST")
	if body != "body" || res.Trailer.Get("X-Sum") != "1" || res.Trailer.Get("X-Ratelimit-Limit") != "" || res.Trailer.Get("Retry-After") != "" {
		t.Errorf("%q, trailers %v", body, res.Trailer)
	}
	if got := fmt.Sprint(res.Header["Trailer"]); strings.Contains(strings.ToLower(got), "ratelimit") {
		t.Errorf("announced: %s", got)
	}
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
}
