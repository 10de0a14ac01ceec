package edge

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/gateway"
)

// A server at a Unix socket counts the addresses that its proxy reports, with either engine, and
// removes the socket when it ends.
func TestCallersOfASocketAreCountedByWhatTheProxyReports(t *testing.T) {
	for _, engine := range []gateway.Engine{gateway.EngineAuto, gateway.EngineStd} {
		for _, proxy := range []bool{false, true} {
			c := testConfig(t, twoPolicy)
			path := filepath.Join(t.TempDir(), "weir.sock")
			c.Listen, c.Engine = "unix:"+path, engine
			c.Callers.TrustedProxies, c.Callers.ProxyProtocol = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, proxy
			s, err := Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.URL(); got != "unix:"+path {
				t.Errorf("the URL is %s", got)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			ask := func(address string) int {
				t.Helper()
				conn, err := net.Dial("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				head := "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Forwarded-For: " + address + "\r\n\r\n"
				if proxy {
					head = "PROXY TCP4 " + address + " 192.0.2.1 1234 80\r\n" + strings.Replace(head, "X-Forwarded-For: "+address, "X-Forwarded-For: 198.51.100.99", 1)
				}
				if _, err := conn.Write([]byte(head)); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				return res.StatusCode
			}
			for address, want := range map[string][]int{"198.51.100.1": {201, 201, 429}, "198.51.100.2": {201, 201, 429}} {
				for i, status := range want {
					if got := ask(address); got != status {
						t.Errorf("engine %v, PROXY %v: request %d of %s: %d, want %d", engine, proxy, i+1, address, got, status)
					}
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := net.Dial("unix", path); err == nil {
				t.Error("the socket is still there")
			}
		}
	}
}

// A server is not its own upstream, at a socket either.
func TestASocketOfThisServerIsNoUpstream(t *testing.T) {
	c := testConfig(t, twoPolicy)
	path := filepath.Join(t.TempDir(), "weir.sock")
	c.Listen = "unix:" + path
	site := *c.Sites[0].Upstreams[0]
	site.Scheme, site.Host, site.Path = "unix", "", filepath.Dir(path)+"/./weir.sock"
	c.Sites = gateway.To(&site)
	if s, err := Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "this server itself listens") {
		t.Errorf("%v", err)
		if err == nil {
			_ = s.Close()
		}
	}
}
