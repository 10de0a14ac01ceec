package gateway

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/gateway/rules"
)

// If an answer without a body declares one, its connection is not used again,
// because the body may arrive as late as the next request.
func TestAConnectionWithADeclaredMissingBodyIsNotUsedAgain(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for _, test := range []struct{ method, answer string }{
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n"},
		{"GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 42\r\n\r\n"},
		{"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n"},
		{"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"HEAD", "HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n"},
		{"POST", "HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n"},
	} {
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				if r.URL.Path == "/v1/wp/victim" {
					s.answers("%s", ok200)
					continue
				}
				s.answers("%s", test.answer)
				if s.request() != nil { // the next caller's
					s.answers("%s", evil)
				}
				return
			}
		})
		e := open(t, nil, o.use)
		attacker, victim := e.caller(), e.caller()
		for range 5 {
			attacker.request(test.method+" /v1/wp/evil", "Content-Length: 0")
			attacker.readAnswer(test.method)
			victim.request("GET /v1/wp/victim")
			if res, body := victim.readAnswer("GET"); res.StatusCode != 200 || body != "ok" {
				t.Errorf("%s, %q: the next caller gets %d %q", test.method, test.answer, res.StatusCode, body)
				break
			}
		}
	}
}

// If a request's method does not define a body, but it has one, it is sent with
// Connection: close, and its connection ends.
func TestAnUndefinedBodyEndsItsConnection(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"} {
		for _, framed := range []string{"Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000), "\r\n"} {
			closes := make(chan bool, 1)
			o := newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					_, _ = io.Copy(io.Discard, r.Body)
					closes <- r.Close
					s.answers("HTTP/1.1 204 No Content\r\n\r\n")
				}
			})
			e := open(t, nil, o.use)
			c := e.caller()
			alone := framed != "\r\n" && !rules.ExpectsBody(method)
			for n := range int64(3) {
				c.write("%s /v1/wp/x HTTP/1.1\r\nHost: weir.test\r\n%s", method, framed)
				if closed := within(t, patience, "the upstream is asked", closes); closed != alone {
					t.Errorf("%s %.30q: the upstream receives close: %v, want %v", method, framed, closed, alone)
				}
				if res, _ := c.readAnswer(method); res.StatusCode != 204 || res.Close {
					t.Fatalf("%s %.30q: %d, closes: %v", method, framed, res.StatusCode, res.Close)
				}
				want := int64(1)
				if alone {
					want = n + 1
				}
				if got := o.conns.Load(); got != want {
					t.Errorf("%s %.30q: request %d is on connection %d, want %d", method, framed, n+1, got, want)
				}
				eventually(t, "the connection is put back, or closed", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
			}
		}
	}
}

// If an upstream answers before it has read the request's body, it may take the
// rest for the next request.
func TestAConnectionWithAnEarlyAnswerIsNotUsedAgain(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		// net/http may hold the beginning of the answer back until the rest of the body has
		// come, and then the answer was not early. So the test tries until it was.
		conns := int64(0)
		for range 200 {
			if conns = followEarlyAnswer(t, chunked); conns == 2 {
				break
			}
		}
		if conns != 2 {
			t.Errorf("chunked: %v: the next request goes out on connection %d, always", chunked, conns)
		}
	}
}

// followEarlyAnswer sends a request whose answer begins before its body has ended,
// then another one. It returns how many connections they used; 0: the other one got
// no answer of the upstream.
func followEarlyAnswer(t *testing.T, chunked bool) (conns int64) {
	const rest = "POST /v1/wp/smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	answered, ended := make(chan bool), make(chan bool)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.URL.Path != "/v1/wp/early" {
				s.answers(ok200)
				continue
			}
			s.answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\near")
			answered <- true
			// All of it has arrived.
			for body := ""; !strings.HasSuffix(body, rest) && !strings.HasSuffix(body, "0\r\n\r\n"); {
				b, err := s.ReadByte()
				if err != nil {
					break
				}
				body += string(b)
			}
			s.answers("ly")
			ended <- true
		}
	})
	e := open(t, nil, o.use)
	c := e.caller()
	first := strings.Repeat("x", 20000) // more than the gateway waits for
	if chunked {
		c.write("POST /v1/wp/early HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(first), first)
	} else {
		c.write("POST /v1/wp/early HTTP/1.1\r\nHost: weir.test\r\nContent-Length: %d\r\n\r\n%s", len(first)+len(rest), first)
	}
	within(t, patience, "the upstream has answered", answered)
	var head string
	if e.gateway.Fast() { // which passes the beginning on: so it has read the answer's head
		line, h := c.head()
		piece := make([]byte, len("ear"))
		_, err := io.ReadFull(c.Reader, piece)
		if head = line + " " + string(piece); err != nil || h.Get("Content-Length") != "5" {
			t.Errorf("%q %v, %v", head, h, err)
		}
	}
	if chunked {
		fmt.Fprintf(c.Conn, "%x\r\n%s\r\n0\r\n\r\n", len(rest), rest)
	} else {
		fmt.Fprint(c.Conn, rest)
	}
	within(t, patience, "the answer has ended", ended)
	if head != "" {
		rest := make([]byte, len("ly"))
		if _, err := io.ReadFull(c.Reader, rest); err != nil || head+string(rest) != "200 OK early" {
			t.Errorf("%q, %v", head+string(rest), err)
		}
	} else if res, body := c.readAnswer("POST"); res.StatusCode != 200 || body != "early" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	eventually(t, "the connection is put back, or closed", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })
	victim := e.caller()
	victim.request("GET /v1/wp/victim")
	switch res, body := victim.readAnswer("GET"); {
	case res.StatusCode == 502 && !e.gateway.Fast():
		// net/http used the connection again, as it may if the answer was not early, while it ended
		return 0
	case res.StatusCode != 200 || body != "ok":
		t.Errorf("chunked: %v: the next caller gets %d %q", chunked, res.StatusCode, body)
	}
	return o.conns.Load()
}
