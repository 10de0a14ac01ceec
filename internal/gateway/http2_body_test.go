package gateway

import (
	"net"
	"strings"
	"testing"
)

// A request whose body contradicts its length is malformed, and its client has not left: the access
// log has 400 for it, whatever the gateway was doing when the last frame came.
func TestABodyThatContradictsItsLengthIs400InTheLog(t *testing.T) {
	for name, send := range map[string]func(e *edge, b *gated, c *peer){
		"too short": func(_ *edge, _ *gated, c *peer) {
			c.post(1, "/v1/wp/echo", "content-length: 3")
			c.data(1, true, "xx")
		},
		"too long": func(_ *edge, _ *gated, c *peer) {
			c.post(1, "/v1/wp/echo", "content-length: 1")
			c.data(1, true, "xx")
		},
		"too long for one that is sent as it comes": func(_ *edge, _ *gated, c *peer) {
			c.post(1, "/v1/wp/echo", "content-length: 20000")
			c.data(1, false, strings.Repeat("x", 10_000))
			c.data(1, true, strings.Repeat("x", 10_001))
		},
		"too long, after all of it went up": func(_ *edge, b *gated, c *peer) {
			c.post(1, "/v1/wp/hold", "content-length: 1", "x-gate: "+c.gate)
			c.data(1, false, "x")
			eventually(t, "it has reached the upstream", func() bool { return b.under.Load() == 1 })
			c.data(1, true, "x")
		},
		"another end by trailers": func(_ *edge, _ *gated, c *peer) {
			c.post(1, "/v1/wp/echo", "content-length: 3")
			c.data(1, false, "xx")
			c.head(1, endBoth, "x-sum: 1")
		},
	} {
		e, b, _ := attacked(t, nil)
		if e.byNetHTTP() {
			return // ends the body of such a request with an error
		}
		c := e.mustFrames(nil)
		c.gate, c.release = b.gate()
		send(e, b, c)
		if s := c.answered(1); s.status != "" || !s.reset {
			t.Errorf("%s: %s", name, s.outcome())
		}
		c.release()
		eventually(t, "it has ended", func() bool { return e.gateway.InFlight() == 0 })
		c.Close()
		e.stop()
		if log := e.access.String(); !strings.Contains(log, "status=400") || strings.Contains(log, "status=499") {
			t.Errorf("%s: access log %q", name, log)
		}
	}
}

// A client of HTTP/2 that ends its half of the connection ends its streams, as it does with nginx:
// it can neither open windows nor answer a PING any more.
func TestAClientThatEndsItsHalfOfHTTP2EndsItsStreams(t *testing.T) {
	e, b, counted := attacked(t, nil)
	c := e.mustFrames(nil)
	c.gate, c.release = b.gate()
	defer c.release()
	c.hold(1)
	eventually(t, "it has reached the upstream", func() bool { return b.under.Load() == 1 })
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the upstream's request ends", func() bool { return b.under.Load() == 0 })
	c.answered(1)
	if s := c.stream(1); s.status != "" || !isEnd(c.ended) {
		t.Errorf("stream 1 gets %q, and the connection %v", s.status, c.ended)
	}
	e.stop()
	if log := e.access.String(); counted.Load() != 1 || !strings.Contains(log, "status=499") {
		t.Errorf("%d are counted, access log %q", counted.Load(), log)
	}
}
