package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// fieldsOf reads "name value" lines.
func fieldsOf(lines ...string) (fields []Field) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, " ")
		fields = append(fields, Field{name, value})
	}
	return fields
}

func TestAHeadOfHTTP2IsARequest(t *testing.T) {
	var r Request
	for range 2 { // the second time in memory that is used again
		fields := append(r.Fields[:0], fieldsOf(":method POST", ":path /a?b", ":scheme https", ":authority h:81",
			"cookie a=1", "content-length 3", "te trailers", "cookie b=2", "x-a 1", "expect 100-continue")...)
		if err := r.ParseFields(fields, false); err != nil {
			t.Fatal(err)
		}
		want := fieldsOf("cookie a=1; b=2", "content-length 3", "te trailers", "x-a 1", "expect 100-continue")
		if r.Method != "POST" || r.Target != "/a?b" || r.Host != "h:81" || r.Length != 3 || !r.Expect || r.Minor != 1 || !slices.Equal(r.Fields, want) {
			t.Errorf("%+v", r)
		}
	}
	if err := r.ParseFields(fieldsOf(":method GET", ":path /", ":scheme http", "host h"), true); err != nil || r.Host != "h" || r.Length != 0 {
		t.Errorf("a Host without :authority: %v %+v", err, r)
	}
	if err := r.ParseFields(fieldsOf(":method PUT", ":path /", ":scheme http", ":authority h", "host H"), false); err != nil || r.Length != Chunked {
		t.Errorf("a Host that agrees: %v %+v", err, r)
	}
	if err := r.ParseFields(fieldsOf(":method CONNECT", ":protocol websocket", ":path /ws", ":scheme https", ":authority h"), false); err != nil ||
		r.Method != "GET" || r.Protocol != "websocket" || r.Length != 0 {
		t.Errorf("a websocket: %v %+v", err, r)
	}
	if err := r.ParseFields(fieldsOf(":method CONNECT", ":authority h:81"), true); err != nil || r.Method != "CONNECT" || r.Target != "/" || r.Host != "h:81" {
		t.Errorf("another CONNECT: %v %+v", err, r)
	}
}

// What RFC 9113, section 8, calls malformed is a *MalformedError; what only this package refuses,
// as it does in HTTP/1.1, is a *Refusal.
func TestWhatIsMalformedInHTTP2IsRefused(t *testing.T) {
	good := []string{":method GET", ":path /", ":scheme http", ":authority h"}
	const malformed = true
	for _, test := range []struct {
		lines     []string
		status    int
		malformed bool
	}{
		{good[1:], 400, malformed},
		{good[:1], 400, malformed},
		{append(good[:3:3], ":status 200"), 400, malformed},
		{append(good[:4:4], ":path /b"), 400, malformed},
		{append(good[:4:4], "a 1", ":protocol websocket"), 400, malformed},
		{append(good[:4:4], ":protocol websocket"), 400, malformed},
		{append(good[:4:4], "X-Upper 1"), 400, malformed},
		{append(good[:4:4], "a b\x00c"), 400, malformed},
		{append(good[:4:4], "a b\rc"), 400, malformed},
		{append(good[:4:4], "a b\nc"), 400, malformed},
		{append(good[:4:4], "a  b"), 400, malformed},
		{append(good[:4:4], "a b "), 400, malformed},
		{append(good[:4:4], "a( 1"), 400, malformed},
		{append(good[:4:4], " 1"), 400, malformed},
		{append(good[:4:4], "connection close"), 400, malformed},
		{append(good[:4:4], "keep-alive 1"), 400, malformed},
		{append(good[:4:4], "proxy-connection close"), 400, malformed},
		{append(good[:4:4], "transfer-encoding chunked"), 400, malformed},
		{append(good[:4:4], "upgrade h2c"), 400, malformed},
		{append(good[:4:4], "te gzip"), 400, malformed},
		{append(good[:4:4], "content-length 1", "content-length 1"), 400, malformed},
		{append(good[:4:4], "content-length +1"), 400, malformed},
		{append(good[:4:4], "content-length 1"), 400, malformed}, // the stream has ended
		{append(good[:4:4], "host other"), 400, malformed},
		{[]string{":method CONNECT", ":authority h:1", ":path /", ":scheme http"}, 400, malformed},
		{[]string{":method CONNECT"}, 400, malformed},
		{[]string{":method GET", ":path ", ":scheme http", ":authority h"}, 400, malformed},
		{[]string{":method GET", ":path /", ":scheme ftp", ":authority h"}, 400, malformed},
		{[]string{":method G T", ":path /", ":scheme http", ":authority h"}, 400, malformed},
		{[]string{":method CONNECT", ":protocol connect-udp", ":path /", ":scheme http", ":authority h"}, 501, false},
		{good[:3], 400, false}, // no host
		{append(good[:4:4], "host h", "host h"), 400, false},
		{append(good[:4:4], "content_length 1"), 400, false},
		{append(good[:4:4], "expect something"), 417, false},
		{append(good[:3:3], ":authority a b"), 400, false},
		{append(good[:3:3], ":authority b\u00fccher.test"), 400, false},
		{[]string{":method GET", ":path a", ":scheme http", ":authority h"}, 400, false},
		{[]string{":method GET", ":path *", ":scheme http", ":authority h"}, 400, false},
		{[]string{":method GET", ":path /a b", ":scheme http", ":authority h"}, 400, false},
		{[]string{":method GET", ":path /a#b", ":scheme http", ":authority h"}, 400, false},
	} {
		var r Request
		var refusal *Refusal
		var bad *MalformedError
		err := r.ParseFields(fieldsOf(test.lines...), true)
		if !errors.As(err, &refusal) || refusal.Status != test.status || errors.As(err, &bad) != test.malformed {
			t.Errorf("%q: %v (%T), want %d, malformed %v", test.lines, err, err, test.status, test.malformed)
		}
	}
}

func TestTrailersOfHTTP2AreChecked(t *testing.T) {
	if err := CheckTrailers(fieldsOf("x-sum 1", "grpc-status 0")); err != nil {
		t.Error(err)
	}
	for _, line := range []string{":status 200", "X-Sum 1", "x-sum a\x00", "x-sum " + strings.Repeat("1", MaxTrailerBytes)} {
		if CheckTrailers(fieldsOf(line)) == nil {
			t.Errorf("%.20q is a trailer", line)
		}
	}
	if CheckTrailers(slices.Repeat(fieldsOf("a 1"), MaxTrailerFields+1)) == nil {
		t.Error("too many trailers are accepted")
	}
}
