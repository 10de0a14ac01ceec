package wire_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/wire"
)

// answer is the head of a response with these lines.
func answer(lines ...string) string {
	return "HTTP/1.1 200 OK\r\n" + strings.Join(append(lines, "", ""), "\r\n")
}

func TestResponseHeadsThatAreRefused(t *testing.T) {
	for what, head := range map[string]string{
		"nothing":                               "",
		"an empty line":                         "\r\n",
		"an empty line before the status line":  "\r\n" + answer(),
		"HTTP/2":                                "HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.2":                              "HTTP/1.2 200 OK\r\n\r\n",
		"HTTP/0.9":                              "<html>\r\n\r\n",
		"another protocol":                      "ICY 200 OK\r\n\r\n",
		"a version in lower case":               "http/1.1 200 OK\r\n\r\n",
		"two blanks before the status":          "HTTP/1.1  200 OK\r\n\r\n",
		"a tab before the status":               "HTTP/1.1\t200 OK\r\n\r\n",
		"no status":                             "HTTP/1.1 OK\r\n\r\n\r\n",
		"a status of two digits":                "HTTP/1.1 20 OK\r\n\r\n",
		"a status of four digits":               "HTTP/1.1 2000 OK\r\n\r\n",
		"a status below 100":                    "HTTP/1.1 099 OK\r\n\r\n",
		"a status with a sign":                  "HTTP/1.1 +20 OK\r\n\r\n",
		"a tab behind the status":               "HTTP/1.1 200\tOK\r\n\r\n",
		"NUL in the reason":                     "HTTP/1.1 200 O\x00K\r\n\r\n",
		"a bare CR in the reason":               "HTTP/1.1 200 O\rK\r\n\r\n",
		"a bare LF behind the status line":      "HTTP/1.1 200 OK\nA: b\r\n\r\n",
		"a bare CR behind the status":           "HTTP/1.1 200\rA: b\r\n\r\n",
		"bare LFs":                              "HTTP/1.1 200 OK\nA: b\n\n",
		"a head that breaks off":                "HTTP/1.1 200 OK\r\nA: b\r\n",
		"bytes behind the head":                 answer() + "x",
		"obs-fold":                              answer("A: b", " c"),
		"a blank before the colon":              answer("A : b"),
		"a blank before the first name":         answer(" A: b"),
		"a name that is no token":               answer("A(: b"),
		"a line without a colon":                answer("A"),
		"a control byte in a value":             answer("A: \x01"),
		"a bare CR in a value":                  answer("A: b\rc"),
		"too many fields":                       answer(slices.Repeat([]string{"A: b"}, wire.MaxFields+1)...),
		"two Content-Lengths":                   answer("Content-Length: 5", "Content-Length: 6"),
		"two equal Content-Lengths":             answer("Content-Length: 5", "Content-Length: 5"),
		"a list of Content-Lengths":             answer("Content-Length: 5, 5"),
		"a Content-Length with a sign":          answer("Content-Length: +5"),
		"a Content-Length that overflows":       answer("Content-Length: 9223372036854775808"),
		"both lengths":                          answer("Content-Length: 5", "Transfer-Encoding: chunked"),
		"another coding":                        answer("Transfer-Encoding: gzip, chunked"),
		"chunked twice":                         answer("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
		"chunked in HTTP/1.0":                   "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"an interim response with a length":     "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n",
		"an interim response in chunks":         "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a connection option that is no token":  answer(`Connection: "close"`),
		"both lengths of an answer to HEAD":     answer("Content-Length: 5", "Transfer-Encoding: chunked"),
		"two lengths of one without a body":     "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"an empty value of a Transfer-Encoding": answer("Transfer-Encoding:"),
	} {
		t.Run(what, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD"} {
				var r wire.Response
				if got := statusOf(t, r.Parse(head, method)); got != 502 {
					t.Errorf("%s, to %s: %q is %d, want 502", what, method, head, got)
				}
			}
		})
	}
}

// See RFC 9112, section 6.3.
func TestResponsesHaveTheBodyThatTheStandardSays(t *testing.T) {
	const none = -1
	var r wire.Response // used again by each
	for _, c := range []struct {
		method, head     string
		status           int
		length, declared int64
		close            bool
	}{
		{"GET", answer("Content-Length: 5"), 200, 5, 5, false},
		{"GET", answer("Content-Length: 0"), 200, 0, 0, false},
		{"GET", answer("transfer-encoding: Chunked"), 200, wire.Chunked, none, false},
		{"GET", answer(), 200, wire.UntilClose, none, true},
		{"GET", answer("Connection: keep-alive"), 200, wire.UntilClose, none, true},
		{"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", 200, wire.UntilClose, none, true},
		{"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n", 200, 3, 3, false},
		// Five bytes may follow, and be no answer.
		{"HEAD", answer("Content-Length: 5"), 200, 0, 5, true},
		{"HEAD", answer("Transfer-Encoding: chunked"), 200, 0, none, true},
		{"HEAD", answer("Content-Length: 0"), 200, 0, 0, false},
		{"HEAD", answer(), 200, 0, none, false},
		{"head", answer("Content-Length: 5"), 200, 5, 5, false}, // methods are told apart by case
		{"GET", "HTTP/1.1 304 Not Modified\r\n\r\n", 304, 0, none, false},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, 0, 5, true},
		{"GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304, 0, none, true},
		{"GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, 0, none, false},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, 0, 0, false},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, 0, 5, true},
		{"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204, 0, none, true},
		{"GET", "HTTP/1.1 100 Continue\r\n\r\n", 100, 0, none, false},
		{"GET", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", 101, 0, 0, false},
		{"POST", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", 205, 0, 0, false},
		{"GET", "HTTP/1.1 999\r\nContent-Length: 1\r\n\r\n", 999, 1, 1, false},
	} {
		if err := r.Parse(c.head, c.method); err != nil || r.Status != c.status || r.Length != c.length || r.Declared != c.declared || r.Close != c.close {
			t.Errorf("%q to %s: %v, %+v", c.head, c.method, err, r)
		}
	}
}

func TestAResponseIsReadAsItCame(t *testing.T) {
	for line, reason := range map[string]string{"200": "", "200 ": "", "200  x": " x", "200 É\tvoilà ": "É\tvoilà "} {
		t.Run(line, func(t *testing.T) {
			var r wire.Response
			if err := r.Parse("HTTP/1.1 "+line+"\r\nSet-Cookie: a\r\nset-cookie: b\r\nConnection: X-Y\r\n\r\n", "GET"); err != nil || r.Reason != reason {
				t.Errorf("%q: %v, the reason is %q, want %q", line, err, r.Reason, reason)
			}
			if !slices.Equal(r.Values("SET-COOKIE"), []string{"a", "b"}) || !r.Names("x-y") || r.Names("set-cookie") || r.Minor != 1 {
				t.Errorf("read %+v", r)
			}
			if r.Reset(); r.Names("x-y") || len(r.Fields) != 0 || r.Reason != "" {
				t.Errorf("a Reset leaves %+v", r)
			}
		})
	}
}

func TestLinesOnTheirWayOut(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(wire.AppendStatus(nil, 200, "")), "HTTP/1.1 200 OK\r\n"},
		{string(wire.AppendStatus(nil, 429, "")), "HTTP/1.1 429 Too Many Requests\r\n"},
		{string(wire.AppendStatus(nil, 200, "Fine")), "HTTP/1.1 200 Fine\r\n"},
		{string(wire.AppendStatus([]byte("x"), 799, "")), "xHTTP/1.1 799 \r\n"},
		{string(wire.AppendField([]byte("x\r\n"), "A", "b")), "x\r\nA: b\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("appended %q, want %q", c.got, c.want)
		}
	}
}
