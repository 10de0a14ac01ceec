package gateway

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
)

// The header is required from trusted peers, and rejected from others (D12). It
// replaces the peer's address.
func TestThePROXYHeaderNeedsATrustedPeer(t *testing.T) {
	addr := func(s string) net.Addr { a, _ := net.ResolveTCPAddr("tcp", s); return a }
	v2 := func(h proxyproto.Header) string {
		h.Version = 2
		b, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const request = "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	for _, trusted := range []bool{true, false} {
		seen := make(chan string, 1)
		e := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			seen <- host
		}), func(o *Options) {
			o.ProxyProtocol, o.TrustedProxies = true, loopback
			if !trusted {
				o.TrustedProxies = []netip.Prefix{mustPrefix("203.0.113.0/24")}
			}
			o.Limits.ProxyHeader = 500 * time.Millisecond
		})
		for header, peer := range map[string]string{
			"PROXY TCP4 198.51.100.7 127.0.0.1 4000 80\r\n": "198.51.100.7",
			"PROXY TCP6 2001:db8::7 ::1 4000 80\r\n":        "2001:db8::7",
			v2(proxyproto.Header{Command: proxyproto.PROXY, TransportProtocol: proxyproto.TCPv4, SourceAddr: addr("198.51.100.8:4000"), DestinationAddr: addr("127.0.0.1:80")}): "198.51.100.8",
			v2(proxyproto.Header{Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}):                                                                              "127.0.0.1",
			"":                                   "", // required
			"PROXY UNKNOWN\r\n":                  "-",
			"PROXY TCP4 1.2.3 4.5.6.7 1 2\r\n":   "",
			"PROXY TCP4 1.2.3.4 4.5.6.7 x 2\r\n": "",
			"PROXY nonsense\r\n":                 "",
			"PROXY TCP4 " + strings.Repeat("9", 200) + "\r\n": "",
		} {
			c := e.dial()
			_, _ = io.WriteString(c, header+request)
			answer, _ := io.ReadAll(c)
			got := ""
			select {
			case got = <-seen:
			default:
			}
			switch {
			case peer == "-": // both results are safe: no other client is named
				if got != "" && got != "127.0.0.1" {
					t.Errorf("trusted %v, %.40q: peer %q", trusted, header, got)
				}
			case trusted && got != peer:
				t.Errorf("trusted, %.40q: peer %q, want %q; %.60q", header, got, peer, answer)
			case !trusted && header != "" && got != "":
				t.Errorf("not trusted, %.40q: served as %q", header, got)
			case !trusted && header == "" && got != "127.0.0.1":
				t.Errorf("not trusted, no header: peer %q; %.60q", got, answer)
			}
		}
		if !trusted {
			continue
		}
		// A trusted peer that sends nothing is closed after a timeout.
		if b, _ := io.ReadAll(e.dial()); len(b) > 0 {
			t.Errorf("%q", b)
		}
	}
}

func TestTheForwardedChainStartsAtThePROXYHeadersPeer(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) {
		o.ProxyProtocol, o.TrustedProxies = true, []netip.Prefix{loopback[0], mustPrefix("198.51.100.0/24")}
	})
	e.send("PROXY TCP4 198.51.100.7 127.0.0.1 4000 80\r\nGET /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n")
	e.send("PROXY TCP4 203.0.113.9 127.0.0.1 4000 80\r\nGET /v1/wp/status HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n")
	e.stop()
	for _, client := range []string{"client=203.0.113.7 ", "client=203.0.113.9 "} {
		if !strings.Contains(e.access.String(), client) {
			t.Errorf("access log %q, want %s", e.access.String(), client)
		}
	}
}
