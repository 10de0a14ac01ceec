package gateway

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// Sections 3 to 5 of RFC 9113: the preface, frames, heads, streams.
func TestHTTP2FramesAndStreams(t *testing.T) {
	const x = "/v1/wp/x"
	runFrameCases(t, []frameCase{
		{"3.4", "nothing more", func(*peer) {}, goesOn, "", false},
		{"3.4", "a request", func(c *peer) { c.get(1, x) }, "200", "", false},
		{"3.4", "the preface a second time", func(c *peer) { c.write(http2.ClientPreface) }, "GOAWAY FRAME_SIZE_ERROR | GOAWAY PROTOCOL_ERROR | end", "", false},

		{"4.1", "a frame of an unknown type", func(c *peer) { c.raw(0xf0, 0, 0, "payload") }, goesOn, "", false},
		{"4.1", "likewise on a stream", func(c *peer) { c.hold(1); c.raw(0xf0, 0xff, 1, "payload") }, "200", "", false},
		{"4.1", "undefined flags", func(c *peer) { c.raw(http2.FramePing, 0xfe, 0, "12345678") }, goesOn, "", false},
		{"4.1", "undefined flags of a head", func(c *peer) { c.head(1, endBoth|0x52, c.request("GET", x)...) }, "200", "", false},
		{"4.1", "the reserved bit", func(c *peer) { c.write(frameOf(8, http2.FramePing, 0, 1<<31, "12345678")) }, goesOn, "", false},
		{"4.1", "the reserved bit of a head", func(c *peer) {
			c.watched = 1
			block := string(c.encode(c.request("GET", x)...))
			c.write(frameOf(len(block), http2.FrameHeaders, endBoth, 1<<31|1, block))
		}, "200", "", false},

		{"4.2", "2^14 bytes of DATA", func(c *peer) { c.post(1, "/v1/wp/echo"); c.data(1, true, strings.Repeat("x", 1<<14)) }, "200", "", false},
		{"4.2", "more DATA than a frame may have", func(c *peer) { c.post(1, x); c.data(1, true, strings.Repeat("x", c.tooLong())) },
			"GOAWAY FRAME_SIZE_ERROR | RST_STREAM FRAME_SIZE_ERROR", "", false},
		{"4.2", "a longer head than a frame may have", func(c *peer) { c.rawHead(1, endBoth, make([]byte, c.tooLong())) }, "GOAWAY FRAME_SIZE_ERROR", "", false},
		{"4.2", "more SETTINGS than a frame may have", func(c *peer) {
			c.raw(http2.FrameSettings, 0, 0, strings.Repeat("\xff\xff\x00\x00\x00\x00", c.tooLong()/6+1))
		},
			"GOAWAY FRAME_SIZE_ERROR", "", false},

		{"4.3", "a block that cannot be decoded", func(c *peer) { c.rawHead(1, endBoth, []byte("\xff\xff\xff\xff\xff")) }, "GOAWAY COMPRESSION_ERROR", "", false},
		{"4.3", "a block that ends within a field", func(c *peer) { c.rawHead(1, endBoth, []byte("\x82\x86\x84\x41\x0fwww")) }, "GOAWAY COMPRESSION_ERROR", "", false},
		{"4.3", "PRIORITY between the parts of a head", between(func(c *peer) { _ = c.WritePriority(1, http2.PriorityParam{Weight: 255}) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "HEADERS of another stream between them", between(func(c *peer) { c.get(3, x) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "HEADERS of the same stream between them", between(func(c *peer) { c.get(1, x) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "DATA between them", between(func(c *peer) { c.data(1, false, "x") }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "SETTINGS between them", between(func(c *peer) { _ = c.WriteSettings() }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "PING between them", between(func(c *peer) { _ = c.WritePing(false, [8]byte{}) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "WINDOW_UPDATE between them", between(func(c *peer) { _ = c.WriteWindowUpdate(0, 1) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "RST_STREAM between them", between(func(c *peer) { _ = c.WriteRSTStream(1, http2.ErrCodeCancel) }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3, 5.5", "a frame of an unknown type between them", between(func(c *peer) { c.raw(0xf0, 0, 1, "payload") }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"4.3", "a CONTINUATION of another stream", between(func(c *peer) { c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3, "") }), "GOAWAY PROTOCOL_ERROR", "", false},

		{"5.1", "DATA on an idle stream", func(c *peer) { c.data(1, true, "x") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "RST_STREAM on an idle stream", func(c *peer) { _ = c.WriteRSTStream(1, http2.ErrCodeCancel) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "WINDOW_UPDATE on an idle stream", func(c *peer) { _ = c.WriteWindowUpdate(1, 100) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "CONTINUATION on an idle stream", func(c *peer) { c.raw(http2.FrameContinuation, 0, 1, "") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "PRIORITY on an idle stream", func(c *peer) { _ = c.WritePriority(1, http2.PriorityParam{Weight: 255}) }, goesOn, "", false},

		{"5.1", "DATA after the end of a request", func(c *peer) { c.hold(1); c.data(1, true, "x") }, "RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED", "", false},
		{"5.1", "HEADERS after the end of a request", func(c *peer) { c.hold(1); c.hold(1) }, "RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED", "", false},
		{"5.1", "CONTINUATION after the end of a request", func(c *peer) { c.hold(1); c.raw(http2.FrameContinuation, 0, 1, "") }, "GOAWAY STREAM_CLOSED | GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "WINDOW_UPDATE after the end of a request", func(c *peer) { c.hold(1); _ = c.WriteWindowUpdate(1, 100) }, "200", "", false},
		{"5.1", "PRIORITY after the end of a request", func(c *peer) { c.hold(1); _ = c.WritePriority(1, http2.PriorityParam{Weight: 255}) }, "200", "", false},
		{"5.1", "RST_STREAM after the end of a request", func(c *peer) { c.hold(1); _ = c.WriteRSTStream(1, http2.ErrCodeCancel); c.watched = 0 }, goesOn, "", false},

		{"5.1", "DATA after RST_STREAM", cancelled(func(c *peer) { c.data(1, true, "x") }),
			"RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED", "", false},
		{"5.1", "HEADERS after RST_STREAM", cancelled(func(c *peer) { c.get(1, x) }),
			"RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED | GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "CONTINUATION after RST_STREAM", cancelled(func(c *peer) { c.raw(http2.FrameContinuation, 0, 1, "") }), "GOAWAY STREAM_CLOSED | GOAWAY PROTOCOL_ERROR", "", false},

		{"5.1", "DATA on a stream that was answered", closed(func(c *peer) { c.data(1, true, "x") }), "RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED", "", false},
		{"5.1", "HEADERS on a stream that was answered", closed(func(c *peer) { c.get(1, x) }), "RST_STREAM STREAM_CLOSED | GOAWAY STREAM_CLOSED | GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "CONTINUATION on a stream that was answered", closed(func(c *peer) { c.raw(http2.FrameContinuation, 0, 1, "") }), "GOAWAY STREAM_CLOSED | GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1", "WINDOW_UPDATE on a stream that was answered", closed(func(c *peer) { _ = c.WriteWindowUpdate(1, 100) }), goesOn, "", false},
		{"5.1", "PRIORITY on a stream that was answered", closed(func(c *peer) { _ = c.WritePriority(1, http2.PriorityParam{}) }), goesOn, "", false},
		{"5.1", "RST_STREAM on a stream that was answered", closed(func(c *peer) { _ = c.WriteRSTStream(1, http2.ErrCodeNo) }), goesOn, "", false},

		{"5.1.1", "an even stream", func(c *peer) { c.get(2, x) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1.1", "a stream below one that is open", func(c *peer) { c.hold(5); c.get(3, x) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1.1", "a stream below one that was answered", func(c *peer) { c.get(5, x); c.answered(5); c.settled(); c.get(3, x) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"5.1.1", "the highest stream", func(c *peer) { c.get(1<<31-1, x) }, "200", "", true},
		{"5.1.2", "one stream more than may be open", func(c *peer) {
			most := c.server[http2.SettingMaxConcurrentStreams]
			c.check(most >= 100, "only %d streams may be open", most)
			for i := range most + 1 {
				c.hold(2*i + 1)
			}
			c.watched = 2*most + 1
		}, "RST_STREAM REFUSED_STREAM | RST_STREAM PROTOCOL_ERROR", "", true},
		{"5.1.2", "as many streams as may be open", func(c *peer) {
			most := c.server[http2.SettingMaxConcurrentStreams]
			for i := range most {
				c.hold(2*i + 1)
			}
			c.watched = 2*most - 1
		}, "200", "", true},
		{"5.1.2", "a stream for each that has ended", func(c *peer) {
			for i := range 3 * c.server[http2.SettingMaxConcurrentStreams] {
				c.get(2*i+1, x)
				c.answered(2*i + 1)
				c.watched = 2*i + 1
			}
		}, "200", "", false},

		{"5.3.1 of RFC 7540", "HEADERS that depend on themselves", func(c *peer) {
			c.watched = 1
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(c.request("GET", x)...), EndStream: true, EndHeaders: true,
				Priority: http2.PriorityParam{StreamDep: 1, Weight: 15}})
		}, "RST_STREAM PROTOCOL_ERROR | 200", "", false},
		{"5.3.1 of RFC 7540", "PRIORITY that depends on itself", func(c *peer) { c.hold(1); _ = c.WritePriority(1, http2.PriorityParam{StreamDep: 1}) },
			"RST_STREAM PROTOCOL_ERROR | 200", "", false},
	})
}

// between is a head in two frames, with another frame between them.
func between(frame func(c *peer)) func(c *peer) {
	return func(c *peer) {
		block := c.encode(c.request("GET", "/v1/wp/x")...)
		first, rest := string(block[:2]), string(block[2:])
		c.rawHead(1, endStream, []byte(first))
		frame(c)
		c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, rest)
	}
}

// closed is a stream that the server has answered, and frames after that. What is watched is not
// that answer.
func closed(frames func(c *peer)) func(c *peer) {
	return func(c *peer) {
		c.get(1, "/v1/wp/x")
		c.check(c.answered(1).outcome() == "200", "stream 1: %s", c.stream(1).outcome())
		c.settled()
		c.streams[1], c.quiet = nil, true
		frames(c)
	}
}

// cancelled is a stream that the client has reset, and frames after that.
func cancelled(frames func(c *peer)) func(c *peer) {
	return func(c *peer) {
		c.quiet = true
		c.post(1, "/v1/wp/x")
		_ = c.WriteRSTStream(1, http2.ErrCodeCancel)
		frames(c)
	}
}

// tooLong is one more than the length of a frame that the server takes.
func (c *peer) tooLong() int {
	if most := c.server[http2.SettingMaxFrameSize]; most > 0 {
		return int(most) + 1
	}
	return 1<<14 + 1
}
