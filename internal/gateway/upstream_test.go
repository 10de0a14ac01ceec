package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Contract, section 1, rule 1: if the upstream fails in any way, the answer has our
// format and the fields (D21).
func TestAFailedOrInvalidUpstreamIs502(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the address has no listener now
	for name, upstream := range map[string]func(*Options){
		"down":    before(t, "http://"+l.Addr().String()),
		"closes":  rawUpstream(t, func(c net.Conn) { readHead(c) }),
		"garbage": rawUpstream(t, func(c net.Conn) { readHead(c); _, _ = io.WriteString(c, "\x00\x01\x02 garbage\r\n\r\n") }),
		"header": rawUpstream(t, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: ab\r\n\r\n")
		}),
		"huge": rawUpstream(t, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, nil, upstream)
			res := e.ask("POST /api/v1/widget/leads", "Content-Length: 0", "Origin: https://shop.test")
			want(t, res, http.StatusBadGateway, "upstream_unavailable", leads)
			if got := res.Header.Get("Access-Control-Expose-Headers"); got != exposed {
				t.Errorf("Access-Control-Expose-Headers %q", got)
			}
			want(t, e.ask("GET /elsewhere"), http.StatusBadGateway, "upstream_unavailable", "")
			if !strings.Contains(e.log.String(), "level=WARN") {
				t.Errorf("log %q", e.log.String())
			}
		})
	}
}

func TestASlowUpstreamIs504(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })(o)
		o.Limits.Upstream = 50 * time.Millisecond
	})
	want(t, e.ask("POST /api/v1/widget/leads", "Content-Length: 0"), http.StatusGatewayTimeout, "upstream_timeout", leads)
}

func TestAnUpstreamThatStopsReadingIs504(t *testing.T) {
	release := make(chan struct{})
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(net.Conn) { <-release })(o)
		o.Limits.Stall = 300 * time.Millisecond
	})
	defer close(release)
	c := e.dial()
	fmt.Fprint(c, "POST /v1/wp/documents HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
	go func() { _, _ = io.CopyN(c, zeros{}, 1e9) }() // until the connection ends
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, res, http.StatusGatewayTimeout, "upstream_timeout", wpPlugin)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestHalfAnAnswerEndsTheConnection(t *testing.T) {
	e := open(t, nil, rawUpstream(t, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("half", 10<<10))
	}))
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	answer, _ := io.ReadAll(c) // until the end of the connection
	if !strings.Contains(string(answer), "X-RateLimit-Limit: "+wpPlugin+"\r\n") {
		t.Errorf("%q", answer)
	}
	e.stop()
	if !strings.Contains(e.access.String(), "status=200") || !strings.Contains(e.access.String(), "aborted=true") {
		t.Errorf("access log %q", e.access.String())
	}
}

func TestAClientThatGoesAwayIsNotLoggedAsAnError(t *testing.T) {
	arrived, gone := make(chan bool, 1), make(chan bool, 1)
	e := open(t, nil, behind(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
		gone <- true
	}))
	c := e.dial()
	fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	c.Close()
	<-gone // the upstream is notified
	e.stop()
	if !strings.Contains(e.access.String(), "status=499") {
		t.Errorf("access log %q", e.access.String())
	}
	if log := e.log.String(); log != "" {
		t.Errorf("log %q", log)
	}
}
