package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Wrap sees every request, WrapTransport every request to the upstream, and
// InFlight counts the requests between them.
func TestWrappersSeeBothSides(t *testing.T) {
	heads := make(chan string, 1)
	var g *Gateway
	e := open(t, nil, func(o *Options) {
		rawUpstream(t, func(c net.Conn) {
			head, _ := readHead(c)
			heads <- head
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		})(o)
		o.Wrap = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", r.URL.Path)
				next.ServeHTTP(w, r)
			})
		}
		o.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if n := g.InFlight(); n != 1 {
					t.Errorf("%d requests are in flight, want this one", n)
				}
				r.Header.Set("X-Inner", "set")
				return next.RoundTrip(r)
			})
		}
	})
	g = e.gateway
	res := e.ask("GET /v1/wp//status")
	if got := res.Header.Get("X-Outer"); got != "/v1/wp//status" {
		t.Errorf("the wrapper saw %q, want the path as it was received", got)
	}
	if head := <-heads; !strings.Contains(head, "X-Inner: set\r\n") || !strings.HasPrefix(head, "GET /v1/wp/status ") {
		t.Errorf("the upstream received %q, want the canonical path and the transport's field", head)
	}
	e.stop()
	if n := g.InFlight(); n != 0 {
		t.Errorf("%d requests are in flight after the drain", n)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
