package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
)

// spareEdges are gateways with every engine and kind of backend, with and without
// TLS, and how to connect to each.
func spareEdges(t *testing.T, limits func(*Limits), test func(name string, e *edge, dial func() net.Conn)) {
	t.Helper()
	for _, upstream := range []bool{false, true} {
		for _, secure := range []bool{false, true} {
			config := &tls.Config{ServerName: "127.0.0.1"}
			e := open(t, silent, func(o *Options) {
				if upstream {
					behind(t, silent)(o)
				}
				if secure {
					config.RootCAs = secured(t, o)
				}
				limits(&o.Limits)
			})
			test(fmt.Sprintf("upstream %v, TLS %v", upstream, secure), e, func() net.Conn {
				// On a busy machine a handshake may take longer than its timeout.
				var err error
				for range 20 {
					c := e.dial()
					if !secure {
						return c
					}
					s := tls.Client(c, config)
					if err = s.Handshake(); err == nil {
						return s
					}
				}
				t.Fatal(err)
				return nil
			})
		}
	}
}

// A connection that was opened in advance serves its first request even after the
// timeouts of a head and of a TLS handshake. It is idle, like a kept connection,
// and closed after the idle timeout.
func TestASpareConnectionWaitsAsLongAsAnIdleOne(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	const header = 50 * time.Millisecond
	late := func(header time.Duration) (err error) {
		spareEdges(t, func(l *Limits) { l.Header = header }, func(name string, e *edge, dial func() net.Conn) {
			plain, secured := e.dial(), dial()
			late := time.NewTimer(5 * header)
			<-late.C
			for _, c := range []net.Conn{secured, plain} {
				if c == plain && strings.Contains(name, "TLS true") {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				fmt.Fprint(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				res, e := http.ReadResponse(bufio.NewReader(c), nil)
				if e != nil || res.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s: a first request after %v: %v, %v", name, 5*header, res, e)
				}
			}
		})
		return err
	}
	// On a busy machine the handshake itself may take longer than its timeout. A
	// connection that is closed too early fails with every timeout.
	err := late(header)
	for longer := 2 * header; err != nil && longer < 2*time.Second; longer *= 2 {
		err = late(longer)
	}
	if err != nil {
		t.Error(err)
	}
	spareEdges(t, func(l *Limits) { l.Idle = header }, func(name string, e *edge, dial func() net.Conn) {
		for _, c := range []net.Conn{e.dial(), dial()} {
			if b, err := io.ReadAll(c); len(b) > 0 || pace.IsTimeout(err) {
				t.Errorf("%s: a silent connection receives %q, %v; want its end", name, b, err)
			}
		}
	})
}

// Once the first byte of a head has arrived, the rest has its timeout, on new and
// on kept connections. If the head does not arrive, the connection is closed
// without an answer.
func TestAnIncompleteHeadIsClosedWithoutAnAnswer(t *testing.T) {
	type stopped struct {
		before, part string
		*bufio.Reader
	}
	spareEdges(t, func(l *Limits) { l.Header, l.Idle = 2*time.Second, time.Minute }, func(name string, e *edge, dial func() net.Conn) {
		var all []stopped
		for _, before := range []string{"", "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n", "POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"} {
			for _, part := range []string{"G", "PRI * HT", "GET /v1/wp/sta", "GET /v1/wp/status HTTP/1.1", "GET /v1/wp/status HTTP/1.1\r\n", "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX-Slow", "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX-Slow: x\r\n"} {
				if before != "" && part == "G" && !e.gateway.Fast() {
					// net/http may read one byte before its answer is complete, and
					// then regards the connection as idle.
					continue
				}
				c := dial()
				r := bufio.NewReader(c)
				if before != "" {
					_, _ = io.WriteString(c, before)
					res, err := http.ReadResponse(r, nil)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					_ = text(t, res)
				}
				_, _ = io.WriteString(c, part)
				all = append(all, stopped{before, part, r})
			}
		}
		for _, s := range all {
			if b, err := io.ReadAll(s.Reader); len(b) > 0 || pace.IsTimeout(err) {
				t.Errorf("%s, after %.4q, %q: %q, %v; want the end of the connection", name, s.before, s.part, b, err)
			}
		}
	})
}
