package engines

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzHTTP2Frames sends any bytes after HTTP/2's preface. When the client has ended its half, the
// server ends the connection, or says why it will, in frames that can be read, and nothing of it is
// left. Whatever reaches the upstream is a strict request of HTTP/1.1, which was counted.
func FuzzHTTP2Frames(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add([]byte(seed))
	}
	ours := newEngines(f)
	f.Fuzz(func(t *testing.T, frames []byte) {
		if len(frames) > 64<<10 {
			return // longer ones are slow, and find no more
		}
		for _, s := range ours {
			s.sendFrames(t, frames)
		}
	})
}

// sendFrames sends a connection of HTTP/2.
func (s *subject) sendFrames(t *testing.T, frames []byte) {
	t.Helper()
	c, from := s.caller.dial(t, s.addr)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	go func() { // it may read no more
		_, _ = c.Write(append([]byte(http2.ClientPreface), frames...))
		_ = c.CloseWrite()
	}()
	for in := http2.NewFramer(nil, c); ; {
		frame, err := in.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, new(http2.ConnectionError)) || errors.As(err, new(http2.StreamError)) {
			t.Fatalf("%s: the connection does not end as it should: %v", s.name, err)
		}
		if err != nil {
			break
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
			break // net/http closes the connection a second later, unless its client does
		}
	}
	_ = c.Close()
	s.settle(t)
	requests, anomalies := s.upstream.take(t)
	if len(anomalies) > 0 {
		t.Errorf("%s: the upstream receives %q", s.name, anomalies)
	}
	for _, m := range requests { // also one of an earlier connection, abandoned by its client
		by := strings.Join(m.values("x-forwarded-for"), ", ")
		if s.reached == nil {
			s.reached = map[string]int64{}
		}
		if s.reached[by]++; s.reached[by] > s.countedOf(by) {
			t.Errorf("%s: %d requests from %q have reached the upstream, %d were counted; the last is %s", s.name, s.reached[by], by, s.countedOf(by), m.first)
		}
	}
	s.caller.check(t, s, from)
}

// check fails the test if goroutines of a connection that has ended are left.
func (c *caller) check(t *testing.T, s *subject, from net.IP) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for runtime.NumGoroutine() > mostGoroutines {
		select {
		case <-late:
			t.Fatalf("%s: %d goroutines are left after the connection of %v", s.name, runtime.NumGoroutine(), from)
		case <-tick.C:
		}
	}
}

// mostGoroutines is more than the subjects, their upstreams and kept connections need. A server
// that loses one with each input soon has more.
const mostGoroutines = 400

// frameSeeds are connections of each kind of frame, and of some mistakes.
func frameSeeds() (seeds []string) {
	var all bytes.Buffer
	b := http2.NewFramer(&all, nil)
	b.AllowIllegalWrites = true
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	head := func(fields ...string) []byte {
		block.Reset()
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value})
		}
		return bytes.Clone(block.Bytes())
	}
	add := func(write func()) {
		all.Reset()
		enc = hpack.NewEncoder(&block)
		_ = b.WriteSettings()
		write()
		seeds = append(seeds, all.String())
	}
	get := func(id uint32, end bool) {
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: end, EndHeaders: true,
			BlockFragment: head(":method: GET", ":scheme: http", ":authority: example.com", ":path: /x")})
	}
	add(func() {})
	add(func() {
		get(1, true)
		_ = b.WritePing(false, [8]byte{1})
		get(3, true)
		_ = b.WriteSettingsAck()
		get(5, true)
	})
	add(func() { // a body, padded, and trailers
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head(":method: POST", ":scheme: http", ":path: /x", "host: example.com", "content-length: 4")})
		_ = b.WriteContinuation(1, true, head("trailer: x-sum", "cookie: a=1", "cookie: b=2"))
		_ = b.WriteDataPadded(1, false, []byte("da"), make([]byte, 3))
		_ = b.WriteWindowUpdate(1, 100)
		_ = b.WriteData(1, false, []byte("ta"))
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("x-sum: 1"), EndStream: true, EndHeaders: true})
	})
	add(func() { // the limit of /few
		for id := range uint32(4) {
			_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*id + 1, EndStream: true, EndHeaders: true,
				BlockFragment: head(":method: GET", ":scheme: http", ":authority: example.com", ":path: /few/x")})
		}
	})
	add(func() {
		get(1, false)
		_ = b.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = b.WritePriority(5, http2.PriorityParam{StreamDep: 1, Weight: 7})
		_ = b.WriteData(1, true, []byte("late"))
		_ = b.WriteGoAway(0, http2.ErrCodeNo, []byte("bye"))
		get(3, true)
	})
	add(func() { // windows
		_ = b.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		get(1, true)
		_ = b.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		_ = b.WriteWindowUpdate(0, 1<<31-1)
	})
	add(func() { // a websocket, which RFC 8441 describes
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
			BlockFragment: head(":method: CONNECT", ":protocol: websocket", ":scheme: http", ":authority: example.com", ":path: /x", "sec-websocket-version: 13")})
		_ = b.WriteData(1, true, []byte("\x81\x00"))
	})
	add(func() { // connection fields, names in capitals, a Host of its own
		_ = b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true,
			BlockFragment: head(":method: GET", ":scheme: http", ":authority: example.com", ":path: /x", "host: evil.example.com", "Connection: close", "te: trailers")})
	})
	add(func() {
		_ = b.WriteRawFrame(0xf0, 0xff, 7, []byte("unknown"))
		_ = b.WriteRawFrame(http2.FramePushPromise, 4, 1, []byte("\x00\x00\x00\x02\x82"))
	})
	// padding, a priority, a size of the table, indexed and literal fields
	add(func() {
		_ = b.WriteRawFrame(http2.FrameHeaders, 0x2d, 1, []byte("\x02\x80\x00\x00\x03\x10\x3f\xe1\x1f\x82\x86\x84\x41\x0fwww.example.com\x40\x01a\x01b\xbe\x00\x00"))
	})
	return seeds
}
