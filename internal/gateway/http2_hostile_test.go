package gateway

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Requests that are refused with their bodies unread leave the connection its window, for those
// that come after them.
func TestRefusedUploadsLeaveTheConnectionItsWindow(t *testing.T) {
	e := open(t, nil, func(o *Options) { newGated(t).use(o); o.Limits.Body = 100 << 10 })
	c := e.mustFrames(nil)
	piece := strings.Repeat("x", 10_000)
	id := uint32(1)
	for range 5 << 20 / len(piece) { // five times the window
		b := newBatch() // the body comes with its head, so it waits in the buffer for the refusal
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: c.encode(c.request("POST", "/v1/wp/echo", "expect: something")...)})
		_ = b.WriteData(id, true, []byte(piece))
		if !b.send(c) {
			break
		}
		if s := c.answered(id); s.status != "417" && !e.byNetHTTP() {
			t.Fatalf("%s (%v)", s.outcome(), c.goAway)
		}
		id += 2
	}
	if e.byNetHTTP() {
		return // net/http passes expectations on
	}
	sent := uint32(5 << 20 / len(piece) * len(piece))
	if got := int64(c.windowOf(0)) - int64(sent); got < 768<<10 {
		t.Errorf("%d bytes may still be sent", got)
	}
}

// The first half of a websocket that ends leaves the other half.
func TestAWebsocketOverHTTP2EndsByHalves(t *testing.T) {
	came := make(chan string, 1)
	o := newOrigin(t, func(s *served) {
		r := s.request()
		if r == nil || r.Header.Get("Upgrade") != "websocket" {
			return
		}
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		s.answers("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\nbye",
			base64.StdEncoding.EncodeToString(sum[:]))
		_ = s.Conn.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(s)
		came <- string(all)
	})
	e := open(t, nil, o.use)
	if e.byNetHTTP() {
		return // it has none over HTTP/2
	}
	c := e.mustFrames(nil)
	c.connect(1, "/v1/wp/socket")
	if s := c.answered(1); !s.done || string(s.body) != "bye" {
		t.Fatalf("%s %q (%v)", s.outcome(), s.body, c.ended)
	}
	c.data(1, false, "after ")
	c.settled()
	c.data(1, true, "the end")
	if got := within(t, patience, "the upstream's end", came); got != "after the end" {
		t.Errorf("the upstream receives %q (%v)", got, c.stream(1).code)
	}
	eventually(t, "the exchange has ended", func() bool { return e.gateway.InFlight() == 0 })
	c.get(3, "/v1/wp/x")
	c.settled()
}

// A client may acknowledge what it has received when it reads it, in small parts, and long after it
// has come.
func TestADownloadMayBeAcknowledgedLate(t *testing.T) {
	e, _, _ := attacked(t, nil)
	const size, part = 4_000_000, 1000
	c := e.mustFrames(nil, http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
	_ = c.WriteWindowUpdate(0, size)
	for id := uint32(1); id < 6; id += 2 {
		c.get(id, fmt.Sprint("/v1/wp/bytes?", size))
		if s := c.answered(id); s.outcome() != "200" || s.length != size {
			t.Fatalf("%q, %d bytes (%v)", s.outcome(), s.length, c.ended)
		}
		frames := newBatch()
		for range size / part {
			_ = frames.WriteWindowUpdate(id, part)
			_ = frames.WriteWindowUpdate(0, part)
		}
		if !frames.send(c) || !c.settled() {
			t.Fatalf("after %d updates the connection ends: %v, %v", 2*size/part, c.goAway, c.ended)
		}
	}
}

// A drain that names the last stream while its head is on its way serves it.
func TestAHeadThatADrainNamesIsServed(t *testing.T) {
	e, _, counted := attacked(t, nil)
	if e.byNetHTTP() {
		return // names no stream whose head is not whole
	}
	c := e.mustFrames(nil)
	block := c.encode(c.request("GET", "/v1/wp/x")...)
	c.rawHead(1, endStream, block[:5])
	c.quiet = true
	stopped := make(chan bool)
	go func() { e.stop(); close(stopped) }()
	const warning = 1<<31 - 1
	// its PING is not answered: no frame may come in a head
	for last := uint32(warning); last == warning; {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			c.goAway, last = g, g.LastStreamID
		}
	}
	last := c.goAway.LastStreamID
	c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, string(block[5:]))
	for c.next() {
	}
	if s := c.stream(1); last >= 1 && s.status != "200" {
		t.Errorf("stream 1, with the last at %d, gets %q (%v)", last, s.outcome(), c.ended)
	}
	if counted.Load() != 1 {
		t.Errorf("%d requests were counted", counted.Load())
	}
	<-stopped
}
