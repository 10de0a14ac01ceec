package gateway

import (
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestMalformedRequestsAreCountedByTheirAnswer(t *testing.T) {
	o := answering(t, ok200)
	e := open(t, nil, func(op *Options) { o.use(op); op.Limits.HeaderBytes = 8 << 10 })
	want := map[int]int64{400: 0, 417: 0, 431: 0, 501: 0, 505: 0}
	is := func(when string) {
		t.Helper()
		if got := e.gateway.Malformed(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	is("before anything")
	for _, c := range []struct {
		raw    string
		status int
		fast   int64 // the fast engine's count
	}{
		{"GET /x HTTP/1.1\r\n\r\n", 400, 1},
		{"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, 1},
		{"GET /v1/wp/% HTTP/1.1\r\nHost: h\r\n\r\n", 400, 1},
		{"GET /x HTTP/1.1\r\nHost: h\r\nExpect: much\r\n\r\n", 417, 1},
		{"GET /x HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", 431, 1},
		{"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501, 1},
		{"GET /x HTTP/3.0\r\nHost: h\r\n\r\n", 505, 1},
		// These are requests: they are counted and logged as such.
		{"GET /a%2fb HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 400, 0},
		{"BREW /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 405, 0},
		{"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n\r\n", 400, 0},
		{"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 200, 0},
	} {
		if got := e.send(c.raw).StatusCode; got != c.status {
			t.Errorf("%.60q: %d, want %d", c.raw, got, c.status)
		}
		if e.gateway.Fast() && c.fast > 0 {
			want[c.status] += c.fast
		}
		is(c.raw[:min(60, len(c.raw))])
	}
	e.dial().Close() // a silent client gets no answer
	is("after a connection without a byte")
}

func TestUpstreamFailuresAreCountedByStatus(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			switch _, _ = io.Copy(io.Discard, r.Body); r.URL.Path {
			case "/late":
				_, _ = s.ReadByte() // until the gateway gives up
				return
			case "/ends":
				return
			case "/own":
				s.answers("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			default:
				s.answers(ok200)
			}
		}
	})
	patient := open(t, nil, o.use)
	hasty := open(t, nil, func(op *Options) { o.use(op); op.Limits.Upstream = 50 * time.Millisecond })
	for _, c := range []struct {
		by     *edge
		path   string
		status int
		want   map[int]int64 // after that
	}{
		{patient, "/fine", 200, map[int]int64{502: 0, 504: 0}},
		{patient, "/ends", 502, map[int]int64{502: 1, 504: 0}},
		{patient, "/own", 502, map[int]int64{502: 1, 504: 0}}, // the upstream's own answer
		{patient, "/ends", 502, map[int]int64{502: 2, 504: 0}},
		{hasty, "/late", 504, map[int]int64{502: 0, 504: 1}},
	} {
		if got := c.by.ask("POST " + c.path).StatusCode; got != c.status {
			t.Errorf("%s: %d, want %d", c.path, got, c.status)
		}
		if got := c.by.gateway.Upstreams()[0].Unanswered; !maps.Equal(got, c.want) {
			t.Errorf("after %s: %v, want %v", c.path, got, c.want)
		}
	}
}

func TestBothEnginesReportTheUpstreamsState(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the address has no listener now
	e := open(t, nil, before(t, "http://"+l.Addr().String()+"/base"))
	if s := e.gateway.Upstreams(); len(s) != 1 || s[0].Address.String() != "http://"+l.Addr().String() || !s[0].Well || s[0].Failures != 0 {
		t.Errorf("before anything: %+v", s)
	}
	if got := e.ask("GET /x").StatusCode; got != http.StatusBadGateway {
		t.Errorf("status %d, want 502", got)
	}
	if s := e.gateway.Upstreams(); s[0].Well || s[0].Failures != 1 || s[0].Busy != 0 {
		t.Errorf("after a request without an answer: %+v", s)
	}
	if s := open(t, new(recorder), nil).gateway.Upstreams(); s != nil {
		t.Errorf("before a backend of its own: %+v, want none", s)
	}
}
