package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/upstream"
)

// Wrap sees every request, TraceUpstream every request to the upstream and the end of its answer,
// and InFlight counts the requests between them.
func TestHooksSeeBothSides(t *testing.T) {
	type ended struct {
		at     upstream.Address
		status int
		failed bool
	}
	heads := make(chan string, 1)
	ends := make(chan ended, 4)
	var g *Gateway
	var at upstream.Address
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) {
			head, _ := readHead(c)
			if strings.HasPrefix(head, "GET /v1/wp/nothing ") {
				return
			}
			switch {
			case strings.HasPrefix(head, "GET /v1/wp/half "):
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
			case strings.HasPrefix(head, "GET /v1/wp/socket "):
				_, _ = io.WriteString(c, switching)
			default:
				heads <- head
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			}
		})(o)
		at = upstream.AddressOf(o.Sites[0].Upstreams[0])
		o.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", r.URL.Path)
				next.ServeHTTP(w, r)
			})
		}
		o.TraceUpstream = func(ctx context.Context, method string, h http.Header) func(upstream.Address, int, error) {
			if n := g.InFlight(); n != 1 || ctx == nil || method != "GET" {
				t.Errorf("%d requests are in flight at a %s, want this GET", n, method)
			}
			h.Set("X-Inner", "set")
			return func(at upstream.Address, status int, err error) { ends <- ended{at, status, err != nil} }
		}
	})
	g = e.gateway
	res := e.ask("GET /v1/wp//status")
	if got := res.Header.Get("X-Outer"); got != "/v1/wp//status" {
		t.Errorf("the wrapper saw %q, want the path as it was received", got)
	}
	if head := <-heads; !strings.Contains(head, "X-Inner: set\r\n") || !strings.HasPrefix(head, "GET /v1/wp/status ") {
		t.Errorf("the upstream received %q, want the canonical path and the hook's field", head)
	}
	want(t, e.ask("GET /v1/wp/nothing"), http.StatusBadGateway, "upstream_unavailable", wpPlugin)
	c := e.caller()
	c.request("GET /v1/wp/half")
	_, _ = io.Copy(io.Discard, c)
	c = e.caller()
	c.request("GET /v1/wp/socket", "Connection: Upgrade", "Upgrade: websocket")
	_, _ = io.Copy(io.Discard, c)
	e.stop()
	for _, want := range []ended{{at, 204, false}, {at, 0, true}, {at, 200, true}, {at, 101, false}} {
		if got := <-ends; got != want {
			t.Errorf("it ended with %+v, want %+v", got, want)
		}
	}
	if n := g.InFlight(); n != 0 {
		t.Errorf("%d requests are in flight after the drain", n)
	}
}
