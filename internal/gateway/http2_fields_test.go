package gateway

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Section 8 of RFC 9113: what a request is.
func TestHTTP2Messages(t *testing.T) {
	const x, echo = "/v1/wp/x", "/v1/wp/echo"
	const malformed = "RST_STREAM PROTOCOL_ERROR | 400" // section 8.1.1
	// net/http takes the length for 0, and may have an answer before it finds that there is a body.
	const unread = malformed + " | 200 | half of a 200"
	// fields replaces the fields of a GET request.
	fields := func(change func(c *peer) []string) func(c *peer) {
		return func(c *peer) { c.head(1, endBoth, change(c)...) }
	}
	// adds appends fields to those of a GET request.
	adds := func(more ...string) func(c *peer) {
		return fields(func(c *peer) []string { return c.request("GET", x, more...) })
	}
	without := func(name string) func(c *peer) {
		return fields(func(c *peer) (left []string) {
			for _, f := range c.request("GET", x) {
				if !strings.HasPrefix(f, name+":") {
					left = append(left, f)
				}
			}
			return left
		})
	}
	runFrameCases(t, []frameCase{
		{"8.1", "HEAD", func(c *peer) {
			c.head(1, endBoth, c.request("HEAD", x)...)
			c.check(c.answered(1).length == 0 && c.stream(1).field("content-length") == "2", "%d bytes, fields %v", c.stream(1).length, c.stream(1).fields)
		}, "200", "", false},
		{"8.1", "POST with trailers", func(c *peer) {
			c.post(1, echo, "trailer: x-sum")
			c.data(1, false, "data")
			c.head(1, endBoth, "x-sum: 1")
			c.check(string(c.answered(1).body) == "4 1", "the upstream has %q", c.stream(1).body)
		}, "200", "", false},
		{"8.1", "trailers without a body", func(c *peer) { c.post(1, echo, "trailer: x-sum"); c.head(1, endBoth, "x-sum: 1") }, "200", "", false},
		{"8.1", "trailers that do not end the stream", func(c *peer) { c.post(1, echo); c.data(1, false, "x"); c.head(1, endHeaders, "x-sum: 1") }, malformed, "", false},
		{"8.1", "a second head without the end of the stream", func(c *peer) { c.post(1, echo); c.post(1, echo) }, malformed, "", false},
		{"8.1", "pseudo-fields in trailers", func(c *peer) { c.post(1, echo); c.data(1, false, "x"); c.head(1, endBoth, ":method: POST") }, malformed, "", false},
		{"8.1", "trailers in upper case", func(c *peer) { c.post(1, echo); c.data(1, false, "x"); c.head(1, endBoth, "X-Sum: 1") }, malformed, "", false},

		{"8.1.1", "a content-length above the DATA", func(c *peer) { c.post(1, echo, "content-length: 2"); c.data(1, true, "x") }, malformed, "400, then the connection ends", false},
		{"8.1.1", "a content-length below the DATA", func(c *peer) { c.post(1, echo, "content-length: 1"); c.data(1, true, "xx") }, malformed, "", false},
		{"8.1.1", "a content-length below the DATA of two frames", func(c *peer) {
			c.post(1, echo, "content-length: 1")
			c.data(1, false, "x")
			c.data(1, true, "x")
		}, malformed, "", false},
		{"8.1.1", "a content-length above the DATA of two frames", func(c *peer) {
			c.post(1, echo, "content-length: 3")
			c.data(1, false, "x")
			c.data(1, true, "x")
		}, malformed, "400, then the connection ends", false},
		{"8.1.1", "a content-length above the DATA, and trailers", func(c *peer) {
			c.post(1, echo, "content-length: 3")
			c.data(1, false, "x")
			c.head(1, endBoth, "x-sum: 1")
		}, malformed, "400, then the connection ends", false},
		{"8.1.1", "a content-length without DATA", adds("content-length: 1"), malformed, "200", false},
		{"8.1.1", "a content-length of 0 without DATA", adds("content-length: 0"), "200", "", false},
		{"8.1.1", "a content-length that is the DATA's", func(c *peer) { c.post(1, echo, "content-length: 2"); c.data(1, true, "xx") }, "200", "", false},
		{"8.1.1", "two content-lengths that differ", func(c *peer) { c.post(1, echo, "content-length: 2", "content-length: 3"); c.data(1, true, "xx") }, malformed, "200", false},
		{"8.1.1", "a content-length that is no number", func(c *peer) { c.post(1, echo, "content-length: 2x"); c.data(1, true, "xx") }, malformed, unread, false},
		{"8.1.1", "a content-length with a sign", func(c *peer) { c.post(1, echo, "content-length: +2"); c.data(1, true, "xx") }, malformed, unread, false},
		{"8.1.1", "a content-length below 0", func(c *peer) { c.post(1, echo, "content-length: -2"); c.data(1, true, "xx") }, malformed, unread, false},
		{"8.1.1", "a content-length beyond 63 bits", func(c *peer) { c.post(1, echo, "content-length: 18446744073709551618"); c.data(1, true, "xx") }, malformed, unread, false},

		{"8.2", "a name in upper case", adds("X-Test: ok"), malformed, "", false},
		{"8.2.1", "a name with a space", adds("x test: ok"), malformed, "", false},
		{"8.2.1", "an empty name", adds(": ok"), malformed, "", false},
		{"8.2.1", "a name with a colon", adds("x:test: ok"), malformed, "", false},
		{"8.2.1", "a name with a control character", adds("x\x00: ok"), malformed, "", false},
		{"8.2.1", "a name beyond ASCII", adds("x\xe9: ok"), malformed, "", false},
		{"8.2.1", "a NUL in a value", adds("x-test: a\x00b"), malformed, "", false},
		{"8.2.1", "a LF in a value", adds("x-test: a\nb"), malformed, "", false},
		{"8.2.1", "a CR in a value", adds("x-test: a\rb"), malformed, "", false},
		{"8.2.1", "a space before a value", adds("x-test:  a"), malformed, "200", false},
		{"8.2.1", "a tab behind a value", adds("x-test: a\t"), malformed, "200", false},
		{"8.2.1", "a control character in a value", adds("x-test: a\x01b"), malformed, "", false},
		{"8.2.1", "a value beyond ASCII", adds("x-test: \xe9"), "200", "", false},
		{"8.2.1", "an empty value", adds("x-test: "), "200", "", false},

		{"8.2.2", "Connection", adds("connection: keep-alive"), malformed, "", false},
		{"8.2.2", "Proxy-Connection", adds("proxy-connection: keep-alive"), malformed, "", false},
		{"8.2.2", "Keep-Alive", adds("keep-alive: timeout=5"), malformed, "", false},
		{"8.2.2", "Transfer-Encoding", func(c *peer) { c.post(1, echo, "transfer-encoding: chunked"); c.data(1, true, "0\r\n\r\n") }, malformed, "", false},
		{"8.2.2", "Upgrade", adds("upgrade: websocket"), malformed, "", false},
		{"8.2.2", "TE of something else than trailers", adds("te: trailers, deflate"), malformed, "", false},
		{"8.2.2", "TE of trailers", adds("te: trailers"), "200", "", false},
		{"8.2.3", "Cookie in parts", adds("cookie: a=1", "cookie: b=2"), "200", "", false},

		{"8.3", "an unknown pseudo-field", adds(":test: ok"), malformed, "", false},
		{"8.3", "an unknown pseudo-field before the fields", fields(func(c *peer) []string { return append([]string{":test: ok"}, c.request("GET", x)...) }), malformed, "", false},
		{"8.3", "a pseudo-field of answers", fields(func(c *peer) []string { return append([]string{":status: 200"}, c.request("GET", x)...) }), malformed, "", false},
		{"8.3", "a pseudo-field after a field", fields(func(c *peer) []string {
			return []string{":method: GET", ":scheme: " + c.scheme, ":authority: weir.test", "x-test: ok", ":path: " + x}
		}), malformed, "", false},
		{"8.3.1", "an empty :path", fields(func(c *peer) []string { return c.request("GET", "") }), malformed, "", false},
		{"8.3.1", "no :method", without(":method"), malformed, "", false},
		{"8.3.1", "no :scheme", without(":scheme"), malformed, "", false},
		{"8.3.1", "no :path", without(":path"), malformed, "", false},
		{"8.3.1", "an empty :method", fields(func(c *peer) []string { return c.request("", x) }), malformed, "", false},
		{"8.3.1", ":method twice", adds2(":method: GET"), malformed, "", false},
		{"8.3.1", ":scheme twice", adds2(":scheme: http"), malformed, "", false},
		{"8.3.1", ":path twice", adds2(":path: /v1/wp/x"), malformed, "", false},
		{"8.3.1", ":authority twice", adds2(":authority: weir.test"), malformed, "", false},
		{"8.3.1", "a :path that is no path", fields(func(c *peer) []string { return c.request("GET", "x") }), malformed, "", false},
		{"8.3.1", "a :path with a host", fields(func(c *peer) []string { return c.request("GET", "http://weir.test/v1/wp/x") }), malformed, "200", false},
		{"8.3.1", "a :path with a space", fields(func(c *peer) []string { return c.request("GET", "/v1/wp/x HTTP/1.1") }), malformed, "", false},
		{"8.3.1", "a :path with a line break", fields(func(c *peer) []string { return c.request("GET", "/v1/wp/x\r\nx: y") }), malformed, "", false},
		{"8.3.1", "an asterisk for GET", fields(func(c *peer) []string { return c.request("GET", "*") }), malformed, "", false},
		{"8.3.1", "an asterisk for OPTIONS", fields(func(c *peer) []string { return c.request("OPTIONS", "*") }), "204", "", false},
		{"8.3.1", "an :authority with userinfo", fields(authority("user@weir.test")), malformed, "", false},
		{"8.3.1", "an :authority with a path", fields(authority("weir.test/x")), malformed, "400, then the connection ends", false},
		{"8.3.1", "an :authority with a space", fields(authority("weir.test x")), malformed, "400, then the connection ends", false},
		{"8.3.1", "a Host that is not the :authority", adds("host: evil.test"), malformed, "200", false},
		{"8.3.1", "a Host that is the :authority", adds("host: weir.test"), "200", "", false},
		{"8.3.1", "a Host twice, which is the :authority", adds("host: weir.test", "host: weir.test"), malformed, "200", false},
		{"8.3.1", "a Host instead of the :authority", fields(func(c *peer) []string {
			return []string{":method: GET", ":scheme: " + c.scheme, ":path: " + x, "host: weir.test"}
		}), "200", "", false},
		{"8.3.1", "a method in small letters", fields(func(c *peer) []string { return c.request("get", x) }), "405", "", false},
		{"8.3.1", "a method that is no token", fields(func(c *peer) []string { return c.request("GET /", x) }), malformed, "405", false},

		{"8.4", "PUSH_PROMISE of stream 0", func(c *peer) {
			c.raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 0, "\x00\x00\x00\x02\x82")
		}, "GOAWAY PROTOCOL_ERROR", "", false},
		{"8.5", "CONNECT of an authority", fields(func(*peer) []string { return []string{":method: CONNECT", ":authority: weir.test:443"} }), "405", "", false},
		{"8.5", "CONNECT with a path", fields(func(c *peer) []string { return c.request("CONNECT", x) }), malformed, "", false},
		{"8.5", "CONNECT without an authority", fields(func(*peer) []string { return []string{":method: CONNECT"} }), malformed, "", false},
	})
}

// adds2 is a GET request with a pseudo-field before its own ones.
func adds2(field string) func(c *peer) {
	return func(c *peer) { c.head(1, endBoth, append([]string{field}, c.request("GET", "/v1/wp/x")...)...) }
}

// authority replaces the :authority of a GET request.
func authority(value string) func(c *peer) []string {
	return func(c *peer) []string {
		return []string{":method: GET", ":scheme: " + c.scheme, ":authority: " + value, ":path: /v1/wp/x"}
	}
}

// RFC 7541: the representations of a field, and what is none.
func TestHTTP2FieldCompression(t *testing.T) {
	// block is a GET request that ends with these bytes.
	block := func(more string) func(c *peer) {
		return func(c *peer) { c.rawHead(1, endBoth, append(c.encode(c.request("GET", "/v1/wp/x")...), more...)) }
	}
	huffman := func(s string) string {
		b := hpack.AppendHuffmanString(nil, s)
		return string([]byte{0x80 | byte(len(b))}) + string(b)
	}
	plain := func(s string) string { return string([]byte{byte(len(s))}) + s }
	const name, agent = "x-test", "\x0f\x2b" // user-agent is entry 58 of the static table
	runFrameCases(t, []frameCase{
		// accept-encoding: gzip, deflate
		{"HPACK 6.1", "an indexed field", block("\x90"), "200", "", false},
		{"HPACK 6.1", "a field of the dynamic table", func(c *peer) {
			c.rawHead(1, endBoth, append(c.encode(c.request("GET", "/v1/wp/x")...), "\x40"+plain(name)+plain("a")...))
			c.answered(1)
			c.watched = 3
			c.rawHead(3, endBoth, append(c.encode(c.request("GET", "/v1/wp/x")...), "\xbe"...))
		}, "200", "", false},
		{"HPACK 6.2.1", "a literal, to be indexed, of an indexed name", block("\x7a" + plain("a")), "200", "", false},
		{"HPACK 6.2.1", "likewise by Huffman", block("\x7a" + huffman("a")), "200", "", false},
		{"HPACK 6.2.1", "a literal, to be indexed, of a new name", block("\x40" + plain(name) + plain("a")), "200", "", false},
		{"HPACK 6.2.1", "likewise by Huffman", block("\x40" + huffman(name) + huffman("a")), "200", "", false},
		{"HPACK 6.2.2", "a literal, not to be indexed, of an indexed name", block(agent + plain("a")), "200", "", false},
		{"HPACK 6.2.2", "likewise by Huffman", block(agent + huffman("a")), "200", "", false},
		{"HPACK 6.2.2", "a literal, not to be indexed, of a new name", block("\x00" + plain(name) + plain("a")), "200", "", false},
		{"HPACK 6.2.2", "likewise by Huffman", block("\x00" + huffman(name) + huffman("a")), "200", "", false},
		{"HPACK 6.2.3", "a literal, never to be indexed, of an indexed name", block("\x1f\x2b" + plain("a")), "200", "", false},
		{"HPACK 6.2.3", "likewise by Huffman", block("\x1f\x2b" + huffman("a")), "200", "", false},
		{"HPACK 6.2.3", "a literal, never to be indexed, of a new name", block("\x10" + plain(name) + plain("a")), "200", "", false},
		{"HPACK 6.2.3", "likewise by Huffman", block("\x10" + huffman(name) + huffman("a")), "200", "", false},
		// 128
		{"HPACK 6.3", "a new size of the table", begin("\x3f\x61"), "200", "", false},
		// 0, 4096
		{"HPACK 6.3, 4.2", "two new sizes of the table", begin("\x20\x3f\xe1\x1f"), "200", "", false},
		{"HPACK 4.4", "a field that is larger than the table", func(c *peer) {
			c.rawHead(1, endBoth, append(append([]byte("\x3f\x01"), c.encode(c.request("GET", "/v1/wp/x")...)...), "\x40"+plain(name)+plain(strings.Repeat("a", 100))...))
		}, "200", "", false},

		{"HPACK 2.3.3", "an index beyond both tables", block("\xff\x00"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 2.3.3", "a literal of a name beyond both tables", block("\x7f\x80\x01" + plain("a")), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 4.2", "a new size at the end of a block", block("\x40" + plain(name) + plain("a") + "\x20"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 5.1", "an integer beyond 64 bits", block("\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 5.2", "Huffman with padding of 8 bits", block("\x00" + plain(name) + "\x82\x1f\xff"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 5.2", "Huffman with padding of zeros", block("\x00" + plain(name) + "\x81\x18"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 5.2", "Huffman with the end of a string", block("\x00" + plain(name) + "\x85\x1f\xff\xff\xff\xff"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 5.2", "a string that is longer than the block", block("\x00" + plain(name) + "\x7eabc"), "GOAWAY COMPRESSION_ERROR", "", false},
		{"HPACK 6.1", "index 0", block("\x80"), "GOAWAY COMPRESSION_ERROR", "", false},
		// 4097
		{"HPACK 6.3", "a new size above the table's", begin("\x3f\xe2\x1f"), "GOAWAY COMPRESSION_ERROR", "", false},
	})
}

// begin is a GET request that begins with these bytes.
func begin(first string) func(c *peer) {
	return func(c *peer) {
		c.rawHead(1, endBoth, append([]byte(first), c.encode(c.request("GET", "/v1/wp/x")...)...))
	}
}
