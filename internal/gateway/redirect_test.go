package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// redirectTo serves a redirect of a gateway to a port, until stop is called.
func (e *edge) redirectTo(port uint16) (r *edge, stop func()) {
	e.t.Helper()
	redirect, err := e.gateway.Redirect(port)
	if err != nil {
		e.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- redirect.Serve(ctx, l) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-served; err != nil {
				e.t.Error(err)
			}
		}
	}
	e.t.Cleanup(stop)
	return &edge{t: e.t, gateway: e.gateway, addr: l.Addr().String(), log: e.log}, stop
}

// secureSites is a gateway with certificates and upstreams for some hosts.
func secureSites(t *testing.T, change func(*Options)) *edge {
	return open(t, nil, func(o *Options) {
		o.Certificates = certificatesFor(t, t.TempDir(), "shop.example.com *.example.org foreign.example.com")
		o.ACME = issuedCertificates(t, "", "api.example.com")
		for _, host := range []string{"api.example.com", "shop.example.com", "*.example.org"} {
			o.Sites = append(o.Sites, Site{Host: host, Upstreams: []*url.URL{siteBackend(t, host, "")}})
		}
		if change != nil {
			change(o)
		}
	})
}

// The host is one that is served, and path and query are sent back byte for byte.
func TestARedirectLeadsToTheSamePlace(t *testing.T) {
	r, _ := secureSites(t, nil).redirectTo(443)
	for _, test := range []struct{ line, host, want string }{
		{"GET /", "api.example.com", "https://api.example.com/"},
		{"POST /v1/a%2Fb//c;d/../e?x=%zz;y&z=%20?", "api.example.com:80", "https://api.example.com/v1/a%2Fb//c;d/../e?x=%zz;y&z=%20?"},
		{"PURGE /", "API.Example.Com.", "https://api.example.com/"},
		{"GET //evil.test/", "shop.example.com", "https://shop.example.com//evil.test/"},
		{"GET /\\evil.test", "shop.example.com", "https://shop.example.com/\\evil.test"},
		{"GET /@evil.test", "a.example.org", "https://a.example.org/@evil.test"},
		// the host of the target counts (RFC 9112, section 3.2.2)
		{"GET http://shop.example.com/a?b", "api.example.com", "https://shop.example.com/a?b"},
		{"GET HTTP://shop.example.com", "shop.example.com", "https://shop.example.com/"},
		{"GET http://shop.example.com?q", "shop.example.com", "https://shop.example.com/?q"},
		// no challenge is under way
		{"GET /.well-known/acme-challenge/x", "api.example.com", "https://api.example.com/.well-known/acme-challenge/x"},

		{"GET /", "unknown.test", "421"},
		{"GET /", "example.com", "421"},
		{"GET /", "a.b.example.org", "421"},     // a wildcard is one label
		{"GET /", "foreign.example.com", "421"}, // no upstream
		{"GET /", "127.0.0.1", "421"},           // no certificate
		{"GET /", "api.example.com@evil.test", "400"},
		{"GET /", "api.example.com/evil.test", "400"},
		{"GET /", "api.example.com:80:90", "400"},
		{"GET http://evil.test/", "api.example.com", "421"},
		{"GET https://api.example.com/", "api.example.com", "400"},
		{"OPTIONS *", "api.example.com", "400"},
		{"CONNECT api.example.com:443", "api.example.com:443", "400"},
		{"GET /", "", "400"},
	} {
		res := r.send(test.line + " HTTP/1.1\r\nHost: " + test.host + "\r\n\r\n")
		body := text(t, res)
		if strings.HasPrefix(test.want, "https:") {
			if got := res.Header["Location"]; res.StatusCode != 308 || len(got) != 1 || got[0] != test.want || body != "" || !res.Close {
				t.Errorf("%s of %s: %d %q %q", test.line, test.host, res.StatusCode, got, body)
			}
		} else if res.Header["Location"] != nil || !strings.HasPrefix(res.Status, test.want) || limitOf(res.Header) != "" {
			t.Errorf("%s of %s: %s %v, want %s", test.line, test.host, res.Status, res.Header, test.want)
		}
	}
	if n := r.gateway.Redirects(); n["redirected"] != 10 || n["rejected"] == 0 || n["challenge"] != 0 {
		t.Errorf("counted %v", n)
	}
}

// Without names of certificates, and without hosts of upstreams, every host is redirected; another
// port than 443 is named.
func TestARedirectOfOneBackendTakesEveryHost(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) { o.Certificates = certificatesFor(t, t.TempDir(), "") })
	r, _ := e.redirectTo(8443)
	for host, want := range map[string]string{
		"api.example.com": "https://api.example.com:8443/a?b", "127.0.0.1:80": "https://127.0.0.1:8443/a?b", "[0::1]:80": "https://[::1]:8443/a?b",
	} {
		if res := r.send("GET /a?b HTTP/1.1\r\nHost: " + host + "\r\n\r\n"); res.Header.Get("Location") != want {
			t.Errorf("%s: %s %q, want %s", host, res.Status, res.Header["Location"], want)
		}
	}
	cleartext := open(t, new(recorder), nil)
	if _, err := cleartext.gateway.Redirect(443); err == nil {
		t.Error("a gateway without certificates has a redirect")
	}
}

// Time-outs and sizes are bounded, and a body is not waited for.
func TestARedirectIsBounded(t *testing.T) {
	e := secureSites(t, func(o *Options) { o.Limits.Header = 50 * time.Millisecond })
	r, _ := e.redirectTo(443)
	c := r.dial()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.exam"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("a slow client is not closed: %v", err)
	}
	c = r.dial()
	if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1000000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 308 {
		t.Errorf("a body is waited for: %v %v", res, err)
	}
	if res := r.send("GET / HTTP/1.1\r\nHost: api.example.com\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n"); res.StatusCode != 431 {
		t.Errorf("a long header: %d", res.StatusCode)
	}
}

// Nothing is accepted after a drain.
func TestARedirectDrains(t *testing.T) {
	r, stop := secureSites(t, nil).redirectTo(443)
	if res := r.send("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"); res.StatusCode != 308 {
		t.Fatalf("%d", res.StatusCode)
	}
	stop()
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("it accepts connections after the drain")
	}
}

// With the PROXY protocol, the redirect is behind the same proxy.
func TestARedirectReadsThePROXYProtocol(t *testing.T) {
	e := secureSites(t, func(o *Options) { o.ProxyProtocol, o.TrustedProxies = true, loopback })
	r, _ := e.redirectTo(443)
	const request = "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
	if res := r.send("PROXY TCP4 192.0.2.1 127.0.0.1 1000 80\r\n" + request); res.StatusCode != 308 {
		t.Errorf("with the header: %d", res.StatusCode)
	}
	c := r.dial()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err == nil && len(b) > 0 {
		t.Errorf("without the header: %q", b)
	}
}
