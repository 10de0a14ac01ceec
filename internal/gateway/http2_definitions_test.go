package gateway

import (
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sections 6 and 7 of RFC 9113: each type of frame, and error codes.
func TestHTTP2FrameDefinitions(t *testing.T) {
	const x, echo = "/v1/wp/x", "/v1/wp/echo"
	runFrameCases(t, []frameCase{
		{"6.1", "a body in several DATA frames", func(c *peer) {
			c.post(1, echo)
			c.data(1, false, "one")
			c.data(1, false, "")
			c.data(1, true, "two")
			c.check(string(c.answered(1).body) == "6 ", "the body has arrived as %q", c.stream(1).body)
		}, "200", "", false},
		{"6.1", "padded DATA", func(c *peer) {
			c.post(1, echo)
			_ = c.WriteDataPadded(1, true, []byte("data"), make([]byte, 200))
			c.check(string(c.answered(1).body) == "4 ", "the body has arrived as %q", c.stream(1).body)
		}, "200", "", false},
		{"6.1", "DATA of stream 0", func(c *peer) { c.data(0, true, "x") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.1", "DATA with as much padding as payload", func(c *peer) { c.post(1, x); c.raw(http2.FrameData, http2.FlagDataPadded, 1, "\x05abcd") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.1", "padded DATA without a length of the padding", func(c *peer) { c.post(1, x); c.raw(http2.FrameData, http2.FlagDataPadded, 1, "") },
			"GOAWAY FRAME_SIZE_ERROR | GOAWAY PROTOCOL_ERROR | end", "", false},
		{"6.1, 6.9.1", "more padding in all than the windows hold", func(c *peer) {
			c.post(1, echo)
			for sent := uint32(0); sent < 1<<20; sent += 256 { // padding is read by nobody
				if !c.until(func() bool { return c.windowOf(1) >= sent+256 && c.windowOf(0) >= sent+256 }) {
					return
				}
				_ = c.WriteDataPadded(1, false, nil, make([]byte, 255))
			}
			c.data(1, true, "")
		}, "200", "", false},

		{"6.2", "HEADERS of stream 0", func(c *peer) { c.get(0, x) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.2", "HEADERS with padding and a priority", func(c *peer) {
			c.watched = 1
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(c.request("GET", x)...), EndStream: true, EndHeaders: true,
				PadLength: 255, Priority: http2.PriorityParam{StreamDep: 31, Exclusive: true, Weight: 255}})
		}, "200", "", false},
		{"6.2", "HEADERS with more padding than payload", func(c *peer) { c.rawHead(1, endBoth|http2.FlagHeadersPadded, []byte("\x40\x82\x86\x84")) }, "GOAWAY PROTOCOL_ERROR",
			"RST_STREAM PROTOCOL_ERROR", false}, // and the block is not decoded
		{"6.2", "HEADERS that are shorter than their priority", func(c *peer) { c.rawHead(1, endBoth|http2.FlagHeadersPriority, []byte("\x00\x00")) },
			"GOAWAY FRAME_SIZE_ERROR | GOAWAY PROTOCOL_ERROR | end", "", false},

		{"6.3", "PRIORITY of stream 0", func(c *peer) { _ = c.WritePriority(0, http2.PriorityParam{Weight: 1}) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.3", "PRIORITY of 4 bytes", func(c *peer) { c.hold(1); c.raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x00") }, "RST_STREAM FRAME_SIZE_ERROR | GOAWAY FRAME_SIZE_ERROR", "", false},
		{"6.3", "PRIORITY of every weight", func(c *peer) {
			for weight := range 256 {
				_ = c.WritePriority(1, http2.PriorityParam{StreamDep: 3, Exclusive: weight%2 == 0, Weight: uint8(weight)})
			}
			c.get(1, x)
		}, "200", "", false},
		{"6.3", "PRIORITY of a stream that is opened after a lower one", func(c *peer) { _ = c.WritePriority(5, http2.PriorityParam{StreamDep: 1}); c.get(1, x) }, "200", "", false},

		{"6.4", "RST_STREAM of stream 0", func(c *peer) { _ = c.WriteRSTStream(0, http2.ErrCodeCancel) }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.4", "RST_STREAM of 3 bytes", func(c *peer) { c.hold(1); c.raw(http2.FrameRSTStream, 0, 1, "\x00\x00\x00") }, "GOAWAY FRAME_SIZE_ERROR", "", false},
		{"6.4", "RST_STREAM of a request under way", func(c *peer) { c.hold(1); _ = c.WriteRSTStream(1, http2.ErrCodeCancel); c.quiet = true }, goesOn, "", false},

		{"6.5", "SETTINGS of a stream", func(c *peer) { c.raw(http2.FrameSettings, 0, 1, "") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.5", "an acknowledgement with settings", func(c *peer) { c.raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "\x00\x03\x00\x00\x00\x01") }, "GOAWAY FRAME_SIZE_ERROR", "", false},
		{"6.5", "SETTINGS of 5 bytes", func(c *peer) { c.raw(http2.FrameSettings, 0, 0, "\x00\x03\x00\x00\x00") }, "GOAWAY FRAME_SIZE_ERROR", "", false},
		{"6.5.2", "ENABLE_PUSH of 2", setting(http2.SettingEnablePush, 2), "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.5.2", "INITIAL_WINDOW_SIZE of 2^31", setting(http2.SettingInitialWindowSize, 1<<31), "GOAWAY FLOW_CONTROL_ERROR", "", false},
		{"6.5.2", "MAX_FRAME_SIZE of 2^14-1", setting(http2.SettingMaxFrameSize, 1<<14-1), "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.5.2", "MAX_FRAME_SIZE of 2^24", setting(http2.SettingMaxFrameSize, 1<<24), "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.5.2", "an unknown setting", setting(0xff, 1), goesOn, "", false},
		{"6.5.2", "MAX_CONCURRENT_STREAMS of 0, which is about pushed streams", func(c *peer) { setting(http2.SettingMaxConcurrentStreams, 0)(c); c.get(1, x) }, "200", "", false},
		{"6.5.2", "HEADER_TABLE_SIZE of 0", func(c *peer) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize})
			c.until(func() bool { return c.acked == 2 })
			c.dec.SetMaxDynamicTableSize(0) // nothing can be taken from the table
			c.get(1, x)
			c.answered(1)
			c.get(3, x)
			c.watched = 3
		}, "200", "", false},
		{"6.5.2", "a large HEADER_TABLE_SIZE", func(c *peer) {
			c.dec = hpack.NewDecoder(1<<20, nil)
			setting(http2.SettingHeaderTableSize, 1<<20)(c)
			c.get(1, x)
		}, "200", "", false},
		{"6.5.2", "answers to frames of at most 2^14 bytes", func(c *peer) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			_ = c.WriteWindowUpdate(0, 1<<20)
			c.get(1, "/v1/wp/bytes?500000")
			s := c.answered(1)
			c.check(s.most <= 1<<14 && s.length == 500000, "%d bytes, the longest frame has %d", s.length, s.most)
		}, "200", "", false},
		{"6.5.3", "INITIAL_WINDOW_SIZE twice in one frame: the last one holds", func(c *peer) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			c.takes(1, 1)
			c.takeRest()
		}, "200", "GOAWAY PROTOCOL_ERROR", false},
		{"6.5.3", "five SETTINGS, each of which is acknowledged", func(c *peer) {
			for range 5 {
				_ = c.WriteSettings()
			}
			c.settled()
			c.check(c.acked == 6, "not each of them is acknowledged")
		}, goesOn, "goes on | broken: not each of them is acknowledged", false},

		{"6.6", "PUSH_PROMISE", func(c *peer) {
			c.hold(1)
			c.raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02\x82\x86\x84")
		}, "GOAWAY PROTOCOL_ERROR", "", false},

		{"6.7", "PING", func(c *peer) {
			data := [8]byte{'e', 'x', 'a', 'c', 't', 'l', 'y', '!'}
			_ = c.WritePing(false, data)
			c.until(func() bool { return len(c.pongs) > 0 })
			c.check(c.pongs[data] == 1, "acknowledged: %v", c.pongs)
		}, goesOn, "", false},
		{"6.7", "an acknowledged PING that nobody has sent", func(c *peer) {
			_ = c.WritePing(true, [8]byte{1})
			c.settled()
			c.check(len(c.pongs) == 1, "acknowledged: %v", c.pongs)
		}, goesOn, "", false},
		{"6.7", "PING of a stream", func(c *peer) { c.raw(http2.FramePing, 0, 1, "12345678") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.7", "PING of 6 bytes", func(c *peer) { c.raw(http2.FramePing, 0, 0, "123456") }, "GOAWAY FRAME_SIZE_ERROR", "", false},

		{"6.8", "GOAWAY of a stream", func(c *peer) { c.raw(http2.FrameGoAway, 0, 1, "\x00\x00\x00\x00\x00\x00\x00\x00") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.8", "GOAWAY of 7 bytes", func(c *peer) { c.raw(http2.FrameGoAway, 0, 0, "\x00\x00\x00\x00\x00\x00\x00") }, "GOAWAY FRAME_SIZE_ERROR | GOAWAY PROTOCOL_ERROR", "", false},
		{"6.8", "GOAWAY while a request is under way, which is answered", func(c *peer) { c.hold(1); _ = c.WriteGoAway(0, http2.ErrCodeNo, nil); c.release() }, "200", "", true},

		{"6.9", "a connection's WINDOW_UPDATE of 0", func(c *peer) { c.raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.9", "a stream's WINDOW_UPDATE of 0", func(c *peer) { c.hold(1); c.raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00") }, "RST_STREAM PROTOCOL_ERROR | GOAWAY PROTOCOL_ERROR", "", false},
		{"6.9", "WINDOW_UPDATE of 3 bytes", func(c *peer) { c.raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x01") }, "GOAWAY FRAME_SIZE_ERROR", "", false},
		{"6.9.1", "no more than 1 byte of window", func(c *peer) { setting(http2.SettingInitialWindowSize, 1)(c); c.takes(1, 1); c.takeRest() }, "200", "", false},
		{"6.9.1", "a connection's window above 2^31-1", func(c *peer) { _ = c.WriteWindowUpdate(0, 1<<31-1); _ = c.WriteWindowUpdate(0, 1<<31-1) }, "GOAWAY FLOW_CONTROL_ERROR", "", false},
		{"6.9.1", "a stream's window above 2^31-1", func(c *peer) { c.hold(1); _ = c.WriteWindowUpdate(1, 1<<31-1); _ = c.WriteWindowUpdate(1, 1<<31-1) },
			"RST_STREAM FLOW_CONTROL_ERROR | GOAWAY FLOW_CONTROL_ERROR", "", false},
		{"6.9.1", "a stream's window of 2^31-1", func(c *peer) { c.hold(1); _ = c.WriteWindowUpdate(1, 1<<31-1-65535) }, "200", "", false},
		{"6.9.2", "a larger INITIAL_WINDOW_SIZE for streams that wait", func(c *peer) {
			setting(http2.SettingInitialWindowSize, 0)(c)
			c.takes(1, 0)
			setting(http2.SettingInitialWindowSize, 1)(c)
			c.takes(1, 1)
			c.takeRest()
		}, "200", "", false},
		{"6.9.2", "an INITIAL_WINDOW_SIZE that makes a window negative", func(c *peer) {
			setting(http2.SettingInitialWindowSize, 3)(c)
			c.takes(1, 3)
			setting(http2.SettingInitialWindowSize, 1)(c) // -2 are left
			_ = c.WriteWindowUpdate(1, 2)                 // 0
			c.takes(1, 3)
			_ = c.WriteWindowUpdate(1, 1)
			c.takes(1, 4)
			c.takeRest()
		}, "200", "", false},
		{"6.9.2", "an INITIAL_WINDOW_SIZE that brings a stream's window above 2^31-1", func(c *peer) {
			c.hold(1)
			_ = c.WriteWindowUpdate(1, 1<<31-1-65535)
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
		}, "GOAWAY FLOW_CONTROL_ERROR", "", false},
		{"6.9.3", "no window of the connection, though the stream has one", func(c *peer) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			c.get(1, "/v1/wp/bytes?100000")
			c.until(func() bool { return c.stream(1).length >= 65535 })
			c.settled()
			c.check(c.stream(1).length == 65535, "%d bytes, the connection's window has 65535", c.stream(1).length)
			_ = c.WriteWindowUpdate(0, 1<<20)
		}, "200", "", false},

		{"6.10", "a head in many parts, some of them empty", func(c *peer) {
			block := string(c.encode(c.request("GET", x)...))
			c.rawHead(1, endStream, nil)
			for i := range block {
				if i%8 == 0 {
					c.raw(http2.FrameContinuation, 0, 1, "")
				}
				if i%4 == 0 {
					c.raw(http2.FrameContinuation, 0, 1, block[i:min(len(block), i+4)])
				}
			}
			c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
		}, "200", "", false},
		{"6.10", "CONTINUATION of stream 0", between(func(c *peer) { c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 0, "") }), "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.10", "CONTINUATION after a whole head", func(c *peer) { c.post(1, x); c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "") }, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.10", "CONTINUATION after a head in two parts", func(c *peer) {
			c.rawHead(1, 0, c.encode(c.request("POST", x)...))
			c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
			c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
		}, "GOAWAY PROTOCOL_ERROR", "", false},
		{"6.10", "CONTINUATION after DATA", func(c *peer) {
			c.post(1, x)
			c.data(1, false, "x")
			c.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "")
		}, "GOAWAY PROTOCOL_ERROR", "", false},

		{"7", "GOAWAY with an unknown code", func(c *peer) { c.hold(1); _ = c.WriteGoAway(0, 0xff, nil) }, "200 | end", "", true},
		{"7", "RST_STREAM with an unknown code", func(c *peer) { c.hold(1); _ = c.WriteRSTStream(1, 0xff); c.quiet = true }, goesOn, "", false},
	})
}

// setting is a SETTINGS frame with one setting.
func setting(id http2.SettingID, value uint32) func(c *peer) {
	return func(c *peer) { _ = c.WriteSettings(http2.Setting{ID: id, Val: value}) }
}

// takes expects exactly n bytes of an answer of 100, because its window allows no more. It asks for
// the answer if it is the first time.
func (c *peer) takes(id uint32, n int) {
	s := c.stream(id)
	if s.status == "" {
		c.get(id, "/v1/wp/bytes?100")
		c.until(func() bool { return s.status != "" })
	}
	c.until(func() bool { return s.length >= n })
	c.settled()
	c.check(s.length == n, "%d bytes of stream %d, its window allows %d", s.length, id, n)
}

// takeRest gives every stream the usual window.
func (c *peer) takeRest() { setting(http2.SettingInitialWindowSize, 65535)(c) }

// windowOf returns how many bytes the server has allowed so far, on a stream or (0) in all.
func (c *peer) windowOf(id uint32) uint32 {
	begin, ok := c.server[http2.SettingInitialWindowSize]
	if id == 0 || !ok {
		begin = 65535
	}
	return begin + c.windows[id]
}
