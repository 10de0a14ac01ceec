package gateway

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlimit/weir/answer"
)

// attacked starts a gateway before a gated upstream, which counts decisions.
func attacked(t *testing.T, change func(*Options)) (e *edge, b *gated, counted *atomic.Int64) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	b, counted = newGated(t), new(atomic.Int64)
	e = open(t, nil, func(o *Options) {
		b.use(o)
		o.Observe = func(answer.Observation) { counted.Add(1) }
		if change != nil {
			change(o)
		}
	})
	return e, b, counted
}

// serves fails the test unless other clients are served, of both versions.
func (e *edge) serves() {
	e.t.Helper()
	want(e.t, e.ask("GET /v1/wp/x"), http.StatusOK, "", wpPlugin)
	c := e.mustFrames(nil)
	defer c.Close()
	c.post(1, "/v1/wp/echo")
	c.data(1, true, "data")
	if s := c.answered(1); s.outcome() != "200" || string(s.body) != "4 " {
		e.t.Errorf("another client gets %q, %q (%v)", s.outcome(), s.body, c.ended)
	}
}

// idles fails the test unless what the clients have caused ends when they have gone.
func (e *edge) idles(goroutines int) {
	e.t.Helper()
	eventually(e.t, "no request is under way", func() bool { return e.gateway.InFlight() == 0 && e.gateway.rules.Open.Load() == 0 })
	eventually(e.t, "its goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// warm returns how many goroutines there are before an attack, after ordinary requests: the
// upstream's kept connections are among them.
func (e *edge) warm() int {
	e.t.Helper()
	e.serves()
	eventually(e.t, "their connections have ended", func() bool { return e.gateway.rules.Open.Load() == 0 })
	return runtime.NumGoroutine() + spare
}

// spare is for the upstream's connections that an attack leaves in the pool, two goroutines for
// each, and what the runtime has.
const spare = 300

// reachable returns how many bytes of memory are reachable.
func reachable() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A batch collects frames, to be written at once.
type batch struct {
	bytes.Buffer
	*http2.Framer
}

func newBatch() *batch {
	b := new(batch)
	b.Framer = http2.NewFramer(&b.Buffer, nil)
	b.AllowIllegalWrites = true
	return b
}

// send writes what was collected. It returns false if the connection has ended.
func (b *batch) send(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := c.Write(b.Bytes())
	b.Reset()
	return err == nil
}

// Rapid reset (CVE-2023-44487): a client opens streams and resets them at once. What it has started
// counts as open until it has ended, and each request that was passed on was counted.
func TestResetRequestsAreBoundedAndCounted(t *testing.T) {
	e, b, counted := attacked(t, nil)
	before := e.warm()
	c := e.mustFrames(nil)
	most := int64(c.server[http2.SettingMaxConcurrentStreams])
	c.gate, c.release = b.gate()
	defer c.release()
	block := c.encode(c.request("GET", "/v1/wp/hold", "x-gate: "+c.gate)...)
	var highest int64
	frames := newBatch()
	for i := range uint32(50) {
		for j := range uint32(100) {
			id := 2*(100*i+j) + 1
			_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
			_ = frames.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if !frames.send(c) {
			break
		}
		highest = max(highest, e.gateway.InFlight())
		if i%20 == 0 {
			e.serves()
		}
	}
	if c.settled(); c.ended != nil && (c.goAway == nil || c.goAway.ErrCode != http2.ErrCodeEnhanceYourCalm) {
		t.Errorf("the connection has ended with %v, %v; want ENHANCE_YOUR_CALM", c.goAway, c.ended)
	}
	highest = max(highest, e.gateway.InFlight())
	if highest > most+2 { // two of others
		t.Errorf("%d requests were under way at a time, %d streams may be open", highest, most)
	}
	if reached := b.reached.Load(); reached > counted.Load() {
		t.Errorf("%d requests have reached the upstream, %d were counted", reached, counted.Load())
	}
	e.serves()
	c.Close()
	e.idles(before)
}

// A head without end (CVE-2023-45288) ends its connection before it needs memory.
func TestAHeadWithoutEndEndsTheConnection(t *testing.T) {
	const index = "\x90" // accept-encoding: gzip, deflate
	for name, fragment := range map[string]string{
		"literals that are not indexed": "\x00\x06x-test\x7f\xe1\x06" + strings.Repeat("a", 992),
		"many indexes":                  strings.Repeat(index, 1024),
		"one index":                     index,
		"a name of 256 MiB":             strings.Repeat("a", 1000),
		"nothing":                       "",
	} {
		e, b, _ := attacked(t, nil)
		before := e.warm()
		c := e.mustFrames(nil)
		base := reachable()
		block := c.encode(c.request("GET", "/v1/wp/x")...)
		if name == "a name of 256 MiB" { // this is its length
			block = append(block, "\x00\x7f\xff\xff\xff\x7f"...)
		}
		c.rawHead(1, endStream, block)
		frames := newBatch()
		reached, sent := b.reached.Load(), 0
		for i := 0; i < 400; i++ {
			for range 100 {
				_ = frames.WriteRawFrame(http2.FrameContinuation, 0, 1, []byte(fragment))
			}
			if !frames.send(c) {
				break
			}
			sent += 100
			if i%100 == 0 {
				if grown := reachable() - base; grown > 4<<20 {
					t.Errorf("%s: %d MiB are held after %d frames", name, grown>>20, sent)
				}
			}
		}
		// A server that does not mind goes on waiting: the end of the head would be served.
		c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
		outcome := c.outcome()
		want := "GOAWAY ENHANCE_YOUR_CALM | GOAWAY PROTOCOL_ERROR | GOAWAY COMPRESSION_ERROR | end"
		if e.byNetHTTP() && name == "nothing" {
			want = "200" // net/http counts the bytes of a head and not its frames
		}
		if !isOneOf(outcome, want) {
			t.Errorf("%s: the outcome is %q, want %q", name, outcome, want)
		}
		if want != "200" && b.reached.Load() != reached {
			t.Errorf("%s: the request is passed on", name)
		}
		e.serves()
		c.Close()
		e.idles(before)
	}
}

// Frames that cost their sender nothing, and lead to nothing, end the connection.
func TestFramesThatLeadToNothingEndTheConnection(t *testing.T) {
	for name, write := range map[string]func(*batch){
		"WINDOW_UPDATE":             func(b *batch) { _ = b.WriteWindowUpdate(0, 1) },
		"WINDOW_UPDATE of a stream": func(b *batch) { _ = b.WriteWindowUpdate(1, 1) },
		"PRIORITY":                  func(b *batch) { _ = b.WritePriority(1, http2.PriorityParam{Weight: 1}) },
		"PRIORITY of idle streams":  func(b *batch) { _ = b.WritePriority(1001, http2.PriorityParam{Weight: 1}) },
		"empty DATA":                func(b *batch) { _ = b.WriteData(1, false, nil) },
		"padding":                   func(b *batch) { _ = b.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{0}) },
		"unknown frames":            func(b *batch) { _ = b.WriteRawFrame(0xf0, 0, 0, nil) },
		"RST_STREAM":                func(b *batch) { _ = b.WriteRSTStream(1, http2.ErrCodeCancel) },
		"SETTINGS":                  func(b *batch) { _ = b.WriteSettings() },
		"acknowledged SETTINGS":     func(b *batch) { _ = b.WriteSettingsAck() },
		"PING":                      func(b *batch) { _ = b.WritePing(false, [8]byte{}) },
	} {
		e, b, _ := attacked(t, nil)
		before := e.warm()
		c := e.mustFrames(nil)
		c.gate, c.release = b.gate()
		c.post(1, "/v1/wp/unread", "x-gate: "+c.gate)
		frames := newBatch()
		for range 300 {
			for range 100 {
				write(frames)
			}
			if !frames.send(c) || !c.settled() {
				break
			}
		}
		if c.quiet = name == "RST_STREAM"; !c.quiet {
			c.data(1, true, "")
		}
		outcome := c.outcome()
		want := "GOAWAY ENHANCE_YOUR_CALM"
		if e.byNetHTTP() {
			want = "200 | goes on | GOAWAY ENHANCE_YOUR_CALM | GOAWAY PROTOCOL_ERROR"
		}
		if !isOneOf(outcome, want) {
			t.Errorf("%s: the outcome is %q, want %q", name, outcome, want)
		}
		e.serves()
		c.Close()
		e.idles(before)
	}
}

// Many frames that lead to something do not end a connection, however small they are.
func TestManySmallFramesThatMakeProgressAreServed(t *testing.T) {
	e, _, _ := attacked(t, nil)
	c := e.mustFrames(nil)
	const size = 10_000
	c.post(1, "/v1/wp/echo", "content-length: "+fmt.Sprint(size))
	frames := newBatch()
	for i := range size {
		_ = frames.WriteData(1, i == size-1, []byte("x"))
	}
	if !frames.send(c) || c.answered(1).outcome() != "200" || string(c.stream(1).body) != fmt.Sprint(size, " ") {
		t.Errorf("an upload of single bytes: %q, %q (%v)", c.stream(1).outcome(), c.stream(1).body, c.goAway)
	}
	c.get(3, "/v1/wp/bytes?10000000")
	s := c.stream(3)
	for taken := 0; !s.done && c.next(); { // each DATA frame is acknowledged in several parts
		for ; taken < s.length; taken += min(s.length-taken, 1000) {
			_ = c.WriteWindowUpdate(0, uint32(min(s.length-taken, 1000)))
			_ = c.WriteWindowUpdate(3, uint32(min(s.length-taken, 1000)))
		}
	}
	if s.outcome() != "200" || s.length != 10_000_000 {
		t.Errorf("a download that is acknowledged by 1000 bytes: %q, %d bytes (%v)", s.outcome(), s.length, c.goAway)
	}
	for i := range uint32(2000) { // a PING and a priority for each request
		id := 2*i + 5
		_ = c.WritePriority(id, http2.PriorityParam{Weight: 1})
		c.get(id, "/v1/wp/x")
		if c.settled(); c.answered(id).outcome() != "200" {
			t.Fatalf("request %d: %q (%v)", i, c.stream(id).outcome(), c.goAway)
		}
	}
}

// A small block that stands for a large head is refused, and nothing of it is kept.
func TestAnHPACKBombIsRefused(t *testing.T) {
	e, b, _ := attacked(t, nil)
	before := e.warm()
	for _, times := range []int{100, 16_000} { // 400 KB, 64 MB
		c := e.mustFrames(nil)
		base, reached := reachable(), b.reached.Load()
		// One field of nearly the whole table, and that field again and again.
		block := append(c.encode(c.request("GET", "/v1/wp/x")...), "\x40\x06x-bomb\x7f\x81\x1e"+strings.Repeat("b", 3968)...)
		c.rawHead(1, endStream, block)
		c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, strings.Repeat("\xbe", times))
		outcome := c.outcome()
		if !isOneOf(outcome, "431 | GOAWAY ENHANCE_YOUR_CALM | GOAWAY COMPRESSION_ERROR | GOAWAY PROTOCOL_ERROR") {
			t.Errorf("%d times: the outcome is %q", times, outcome)
		}
		if grown := reachable() - base; grown > 1<<20 {
			t.Errorf("%d times: %d KiB are held afterwards", times, grown>>10)
		}
		if b.reached.Load() != reached {
			t.Errorf("%d times: the request is passed on", times)
		}
		if c.ended == nil {
			c.get(3, "/v1/wp/x", "x-bomb: no")
			if s := c.answered(3); s.outcome() != "200" {
				t.Errorf("%d times: then a request gets %q (%v)", times, s.outcome(), c.ended)
			}
		}
		c.Close()
	}
	e.serves()
	e.idles(before)
}
