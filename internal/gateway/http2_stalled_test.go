package gateway

import (
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A thousand streams of 8 connections that take nothing of their answers. Each holds little, others
// are served, and all of it ends with the connections.
func TestAThousandStalledStreamsHoldLittle(t *testing.T) {
	e, b, _ := attacked(t, nil)
	before := e.warm()
	base := reachable()
	const conns, streams = 8, 125
	var all []*peer
	for range conns {
		c := e.mustFrames(nil, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		all = append(all, c)
		for i := range uint32(streams) {
			c.get(2*i+1, "/v1/wp/bytes?1000000")
		}
	}
	for _, c := range all {
		for i := range uint32(streams) {
			s := c.stream(2*i + 1)
			if c.until(func() bool { return s.status != "" || s.reset }); s.status != "200" || s.length > 0 {
				t.Fatalf("a stalled stream gets %q, %d bytes (%v)", s.outcome(), s.length, c.ended)
			}
		}
	}
	most := int64(64 << 10)
	if !e.gateway.Fast() {
		most = 128 << 10 // httputil's buffers
	}
	if grown := reachable() - base; grown > conns*streams*most {
		t.Errorf("%d KiB are held for a stalled stream, with its client and upstream here, want at most %d", grown/conns/streams>>10, most>>10)
	}
	if n := runtime.NumGoroutine() - before; n > 6*conns*streams {
		t.Errorf("%d goroutines for %d streams, with their upstream", n, conns*streams)
	}
	if n := b.under.Load(); n > conns*streams {
		t.Errorf("%d requests are under way at the upstream for %d streams", n, conns*streams)
	}
	e.serves()
	_ = all[0].WriteWindowUpdate(1, 1000) // one of them takes something
	if !all[0].until(func() bool { return all[0].stream(1).length == 1000 }) {
		t.Errorf("a stream that takes 1000 bytes gets %d (%v)", all[0].stream(1).length, all[0].ended)
	}
	for _, c := range all {
		c.Close()
	}
	e.idles(before)
}

// Uploads that no backend reads are bounded by the windows, and the other streams of the connection
// are served.
func TestUploadsThatNobodyReadsHoldLittle(t *testing.T) {
	e, b, _ := attacked(t, nil)
	before := e.warm()
	base := reachable()
	const conns, streams = 4, 10
	var all []*peer
	for range conns {
		c := e.mustFrames(nil)
		all = append(all, c)
		c.gate, c.release = b.gate()
		defer c.release()
		for i := range uint32(streams) {
			c.post(2*i+1, "/v1/wp/unread", "x-gate: "+c.gate)
			c.watched = 2*i + 1
		}
		sent := map[uint32]uint32{}
		chunk := strings.Repeat("x", 4096)
		for quiet := 0; quiet < 3; quiet++ { // until no window has come for a while
			c.settled()
			for i := range uint32(streams) {
				id := 2*i + 1
				for c.windowOf(id) >= sent[id]+4096 && c.windowOf(0) >= sent[0]+4096 {
					c.data(id, false, chunk)
					sent[id] += 4096
					sent[0] += 4096
					quiet = 0
				}
			}
		}
		if sent[0] == 0 {
			t.Errorf("nothing could be sent: %v", c.ended)
		}
	}
	if grown := reachable() - base; grown > conns*3<<20 {
		t.Errorf("%d KiB are held for a connection, want at most 3 MiB", grown/conns>>10)
	}
	e.serves()
	for _, c := range all {
		const id = 1001
		c.get(id, "/v1/wp/x")
		if s := c.answered(id); s.outcome() != "200" {
			t.Errorf("a request beside the uploads gets %q (%v)", s.outcome(), c.ended)
		}
		if outcome := c.outcome(); outcome != "200" {
			t.Errorf("an upload that is answered unread: %q", outcome)
		}
		c.Close()
	}
	e.idles(before)
}

// A client that sends more than the windows allow is ended. It may see that of its stream first,
// and then what it sends to a stream that is reset is too much.
func TestMoreThanTheWindowIsRefused(t *testing.T) {
	e, b, _ := attacked(t, nil)
	c := e.mustFrames(nil)
	c.gate, c.release = b.gate()
	defer c.release()
	c.post(1, "/v1/wp/unread", "x-gate: "+c.gate)
	frames := newBatch()
	for range 64 << 20 / (1 << 20) { // more than the sockets on the way to the upstream hold
		for range 64 {
			_ = frames.WriteData(1, false, make([]byte, 1<<14))
		}
		if !frames.send(c) {
			break
		}
	}
	if outcome := c.outcome(); !isOneOf(outcome, "RST_STREAM FLOW_CONTROL_ERROR | GOAWAY FLOW_CONTROL_ERROR | GOAWAY ENHANCE_YOUR_CALM | end") {
		t.Errorf("the outcome is %q", outcome)
	}
	e.serves()
}

// The head of a request, the preface and a frame have Limits.Header from their first byte.
func TestASlowHTTP2HeadIsCutOff(t *testing.T) {
	e := open(t, nil, func(o *Options) { answering(t, ok200).use(o); o.Limits.Header = 100 * time.Millisecond })
	for name, begin := range map[string]func(c *peer){
		"half a preface":      func(c *peer) { c.write(http2.ClientPreface[:20]) },
		"a preface alone":     func(c *peer) { c.write(http2.ClientPreface) },
		"half a head":         func(c *peer) { _ = c.start(); c.rawHead(1, 0, nil) },
		"half a frame's head": func(c *peer) { _ = c.start(); c.write("\x00\x00\x10\x01") },
		"half a frame":        func(c *peer) { _ = c.start(); c.write(frameOf(100, http2.FrameHeaders, endBoth, 1, "\x82")) },
		"half a PING":         func(c *peer) { _ = c.start(); c.write(frameOf(8, http2.FramePing, 0, 0, "1234")) },
		"half a head, once more": func(c *peer) {
			_ = c.start()
			c.get(1, "/v1/wp/x")
			c.answered(1)
			c.rawHead(3, 0, nil)
		},
	} {
		if e.byNetHTTP() && name != "half a preface" {
			continue // net/http gives a preface 10 s, and frames any time
		}
		if !e.gateway.Fast() {
			continue // net/http reads the preface as a request, and answers nothing
		}
		c, err := e.frames(nil)
		if err != nil {
			t.Fatal(err)
		}
		begin(c)
		for c.next() {
		}
		if !isEnd(c.ended) {
			t.Errorf("%s: %v, want the end of the connection", name, c.ended)
		}
	}
}

// A connection without streams ends after Limits.Idle, by a GOAWAY without an error, and one with a
// stream does not.
func TestAnIdleHTTP2ConnectionEnds(t *testing.T) {
	b := newGated(t)
	e := open(t, nil, func(o *Options) { b.use(o); o.Limits.Idle = 100 * time.Millisecond })
	c, busy := e.mustFrames(nil), e.mustFrames(nil)
	busy.gate, busy.release = b.gate()
	defer busy.release()
	busy.hold(1)
	c.get(1, "/v1/wp/x")
	c.answered(1)
	for c.next() {
	}
	if c.ended != io.EOF || c.goAway == nil || c.goAway.ErrCode != http2.ErrCodeNo || c.stream(1).outcome() != "200" {
		t.Errorf("an idle connection ends with %v, %v after %q", c.goAway, c.ended, c.stream(1).outcome())
	}
	if outcome := busy.outcome(); outcome != "200" {
		t.Errorf("a connection with a stream: %q", outcome)
	}
}
