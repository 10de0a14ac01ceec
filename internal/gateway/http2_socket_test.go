package gateway

import (
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// websockets is an upstream that accepts websockets and sends back what comes, but refuses those
// of /v1/wp/closed.
func websockets(t *testing.T) (o *origin, heads chan *http.Request) {
	t.Helper()
	heads = make(chan *http.Request, 10)
	o = newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.URL.Path == "/v1/wp/closed" {
				s.answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
				continue
			}
			if r.Header.Get("Upgrade") != "websocket" {
				s.answers("%s", ok200)
				continue
			}
			heads <- r
			sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			s.answers("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
				base64.StdEncoding.EncodeToString(sum[:]))
			_, _ = io.Copy(s.Conn, s)
			return
		}
	})
	return o, heads
}

// connect asks for a websocket (RFC 8441, section 5).
func (c *peer) connect(id uint32, path string, more ...string) {
	c.head(id, endHeaders, append([]string{":method: CONNECT", ":protocol: websocket", ":scheme: " + c.scheme, ":authority: weir.test", ":path: " + path,
		"sec-websocket-version: 13", "sec-websocket-protocol: chat", "origin: https://weir.test"}, more...)...)
}

// A websocket of an HTTP/2 stream reaches the upstream as one of HTTP/1.1, is counted once, holds
// its slot, and ends with either side.
func TestAWebsocketOverHTTP2(t *testing.T) {
	o, heads := websockets(t)
	policy := slotsOf(t, 2)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	c := e.mustFrames(nil)
	if e.byNetHTTP() {
		c.connect(1, "/v1/wp/socket")
		if outcome := c.outcome(); c.server[http2.SettingEnableConnectProtocol] != 0 || outcome != "RST_STREAM PROTOCOL_ERROR" {
			t.Errorf("net/http does not offer them, but the outcome is %q", outcome)
		}
		return
	}
	if c.server[http2.SettingEnableConnectProtocol] != 1 {
		t.Fatalf("the server's settings are %v, want ENABLE_CONNECT_PROTOCOL", c.server)
	}
	c.connect(1, "/v1/wp/socket?a=b")
	s := c.stream(1)
	c.until(func() bool { return s.status != "" || s.reset })
	if s.status != "200" || s.done || s.field("sec-websocket-protocol") != "chat" || s.field("sec-websocket-accept") != "" || s.field("upgrade") != "" {
		t.Fatalf("%s: %v", s.outcome(), s.fields)
	}
	head := within(t, patience, "the upstream's request", heads)
	key, err := base64.StdEncoding.DecodeString(head.Header.Get("Sec-WebSocket-Key"))
	if head.Method != "GET" || head.RequestURI != "/v1/wp/socket?a=b" || head.Host != "weir.test" || head.Header.Get("Connection") != "Upgrade" ||
		head.Header.Get("Sec-WebSocket-Version") != "13" || err != nil || len(key) != 16 {
		t.Errorf("the upstream receives %s %s, Host %s, %v", head.Method, head.RequestURI, head.Host, head.Header)
	}
	for i, message := range []string{"hello", strings.Repeat("x", 10_000), "!"} {
		before := s.length
		c.data(1, false, message)
		if !c.until(func() bool { return s.length == before+len(message) || s.reset }) || s.reset {
			t.Fatalf("message %d: %s (%v)", i, s.outcome(), c.ended)
		}
	}
	if policy.slots() != 1 || policy.spent() != 1 {
		t.Errorf("%d slots and %d units are spent, want 1 of each", policy.slots(), policy.spent())
	}
	c.get(3, "/v1/wp/x") // beside it
	if got := c.answered(3).outcome(); got != "200" {
		t.Errorf("a request beside a websocket: %s", got)
	}
	c.data(1, true, "bye")
	if c.answered(1); !s.done || !strings.HasSuffix(string(s.body), "!bye") {
		t.Errorf("after the client's end: %s, %d bytes (%v)", s.outcome(), s.length, c.ended)
	}

	c.connect(5, "/v1/wp/socket")
	c.until(func() bool { return c.stream(5).status != "" || c.stream(5).reset })
	within(t, patience, "another request", heads)
	_ = c.WriteRSTStream(5, http2.ErrCodeCancel)
	eventually(t, "its slot is free", func() bool { return policy.slots() == 0 && e.gateway.InFlight() == 0 })
	eventually(t, "the upstream's connection ends", func() bool { return e.gateway.Upstreams()[0].Busy == 0 })

	c.connect(7, "/v1/wp/socket")
	c.until(func() bool { return c.stream(7).status != "" || c.stream(7).reset })
	o.hangUp()
	if s := c.answered(7); s.status != "200" || !s.done && !s.reset {
		t.Errorf("after the upstream's end: %s (%v)", s.outcome(), c.ended)
	}
	if !c.stream(7).reset {
		c.data(7, true, "") // until then, or for Limits.HalfTunnel, it may send
	}
	eventually(t, "its slot is free", func() bool { return policy.slots() == 0 })
}

// What is no websocket is not passed on as one, and a refused one is an ordinary answer.
func TestWebsocketsOverHTTP2ThatAreRefused(t *testing.T) {
	o, heads := websockets(t)
	for name, test := range map[string]struct {
		send func(c *peer)
		want string
	}{
		"by the upstream": {func(c *peer) { c.connect(1, "/v1/wp/closed") }, "403"},
		"an unknown protocol": {func(c *peer) {
			c.head(1, endHeaders, ":method: CONNECT", ":protocol: h3", ":scheme: http", ":authority: weir.test", ":path: /v1/wp/x")
		}, "501 | 405 | 400 | RST_STREAM PROTOCOL_ERROR"},
		"a protocol of another method": {func(c *peer) {
			c.get(1, "/v1/wp/x")
			c.watched = 3
			c.head(3, endBoth, append([]string{":protocol: websocket"}, c.request("GET", "/v1/wp/x")...)...)
		}, "RST_STREAM PROTOCOL_ERROR | 400"},
		"without a path": {func(c *peer) {
			c.head(1, endHeaders, ":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: weir.test")
		}, "RST_STREAM PROTOCOL_ERROR | 400"},
		"without a scheme": {func(c *peer) {
			c.head(1, endHeaders, ":method: CONNECT", ":protocol: websocket", ":authority: weir.test", ":path: /v1/wp/x")
		}, "RST_STREAM PROTOCOL_ERROR | 400"},
		"a path that can be read in two ways": {func(c *peer) { c.connect(1, "/v1/wp/%2f") }, "400"},
		"with HTTP/1.1's fields":              {func(c *peer) { c.connect(1, "/v1/wp/x", "connection: upgrade", "upgrade: websocket") }, "RST_STREAM PROTOCOL_ERROR | 400"},
		"the protocol twice": {func(c *peer) {
			c.head(1, endHeaders, append([]string{":protocol: websocket"}, ":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: weir.test", ":path: /v1/wp/x")...)
		}, "RST_STREAM PROTOCOL_ERROR | 400"},
		"an upgrade by fields of another method": {func(c *peer) {
			c.get(1, "/v1/wp/x", "sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==")
		}, "200"},
	} {
		e := open(t, nil, o.use)
		if name == "by the upstream" && e.byNetHTTP() || name == "a path that can be read in two ways" && e.byNetHTTP() {
			test.want = "RST_STREAM PROTOCOL_ERROR" // it has no websockets
		}
		c := e.mustFrames(nil)
		test.send(c)
		if outcome := c.outcome(); !isOneOf(outcome, test.want) {
			t.Errorf("%s: %q, want %q", name, outcome, test.want)
		}
	}
	if len(heads) > 0 {
		t.Errorf("the upstream has accepted %d websockets", len(heads))
	}
}
