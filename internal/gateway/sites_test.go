package gateway

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// sitePolicy has a limiter for each of two hosts, one for all under a name, and one for the rest.
func sitePolicy(t *testing.T) weir.Policy {
	t.Helper()
	var p weir.Policy
	for name, routes := range map[string]string{"api": "api.example.com/*", "shop": "shop.example.com/*", "wide": "*.example.com/*", "rest": "/*"} {
		r, err := weir.ParseRoute(routes)
		if err != nil {
			t.Fatal(err)
		}
		w, err := weir.ParseWindow(map[string]string{"api": "11", "shop": "12", "wide": "13", "rest": "14"}[name] + " per minute by ip")
		if err != nil {
			t.Fatal(err)
		}
		p.Limiters = append(p.Limiters, weir.Limiter{Name: name, Routes: []weir.Route{r}, Windows: []weir.Window{w}})
	}
	return p
}

// siteBackend answers with its name, the Host that it received, and the target.
func siteBackend(t *testing.T, name, base string) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", name, r.Host, r.RequestURI)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + base)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestEachHostHasItsOwnUpstreamAndLimit(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, sitePolicy(t))
		o.Sites = []Site{
			{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}},
			{Host: "*.example.com", Upstreams: []*url.URL{siteBackend(t, "wide", "/base")}},
		}
	})
	for _, c := range []struct{ host, answer, limit string }{
		{"api.example.com", "api api.example.com /x?a=1", "11"},
		{"API.Example.COM", "api API.Example.COM /x?a=1", "11"},
		{"api.example.com:8443", "api api.example.com:8443 /x?a=1", "11"},
		{"api.example.com.", "api api.example.com. /x?a=1", "11"},
		{"Api.example.com.:80", "api Api.example.com.:80 /x?a=1", "11"},
		{"shop.example.com", "wide shop.example.com /base/x?a=1", "12"},
		{"a.b.example.com", "wide a.b.example.com /base/x?a=1", "13"},
		{"xn--bcher-kva.example.com", "wide xn--bcher-kva.example.com /base/x?a=1", "13"},
		{"example.com", "", "14"}, // no upstream serves it, and the last limiter counts it
		{"api.example.com.evil.test", "", "14"},
		{"api.example.com@evil.test", "", "-"}, // not a host at all
		{"api%2eexample.com", "", "14"},
		{"127.0.0.1", "", "14"},
	} {
		res := e.send("GET /x?a=1 HTTP/1.1\r\nHost: " + c.host + "\r\nConnection: close\r\n\r\n")
		switch {
		case c.limit == "-":
			if res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: status %d, want 400", c.host, res.StatusCode)
			}
		case c.answer == "":
			want(t, res, http.StatusMisdirectedRequest, "misdirected_request", c.limit)
		default:
			if got := text(t, res); got != c.answer || limitOf(res.Header) != c.limit {
				t.Errorf("%s: %q by limit %s, want %q by %s", c.host, got, limitOf(res.Header), c.answer, c.limit)
			}
		}
	}
}

// A request for a host that no upstream serves is misdirected, not unlimited, if no limiter covers
// it. Others are observed by what covers them.
func TestAMisdirectedRequestIsObservedAsOne(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	e := open(t, nil, func(o *Options) {
		p := sitePolicy(t)
		p.Limiters = slices.DeleteFunc(p.Limiters, func(l weir.Limiter) bool { return l.Name == "rest" || l.Name == "wide" })
		o.Decider = testDecider(t, p)
		o.Sites = []Site{
			{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}},
			{Host: "free.example.com", Upstreams: []*url.URL{siteBackend(t, "free", "")}},
		}
		o.Observe = func(a answer.Observation) {
			mu.Lock()
			defer mu.Unlock()
			seen[a.Limiter+" "+a.Outcome.String()]++
		}
	})
	client := h2c(t)
	for _, host := range []string{"evil.test", "api.example.com", "free.example.com", "shop.example.com"} {
		e.send("GET /x HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		r, err := http.NewRequest(http.MethodGet, e.url("/x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	e.stop()
	want := map[string]int{" misdirected": 2, "api admitted": 2, " unlimited": 2, "shop admitted": 2}
	if !maps.Equal(seen, want) {
		t.Errorf("observed %v, want %v", seen, want)
	}
	if n := strings.Count(e.access.String(), "outcome=misdirected"); n != 2 {
		t.Errorf("%d lines of the access log:\n%s", n, e.access)
	}
}

// No spelling of a host gets a second budget, and a host that nobody serves spends one too.
func TestSpellingsOfAHostShareItsBudget(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, sitePolicy(t))
		o.Sites = []Site{{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}}}
	})
	admitted := 0
	for i := range 40 {
		host := []string{"api.example.com", "API.example.com", "api.example.com.", "api.example.com:1", "Api.Example.Com.:65535"}[i%5]
		switch res := e.send("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"); res.StatusCode {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
		default:
			t.Errorf("%s: %s", host, res.Status)
		}
	}
	if admitted != 11 {
		t.Errorf("%d requests were admitted, want 11", admitted)
	}
	statuses := map[int]int{}
	for range 20 {
		statuses[e.send("GET / HTTP/1.1\r\nHost: unknown.test\r\nConnection: close\r\n\r\n").StatusCode]++
	}
	if statuses[http.StatusMisdirectedRequest] != 14 || statuses[http.StatusTooManyRequests] != 6 {
		t.Errorf("statuses %v: want 14 times 421, then 429", statuses)
	}
}

// One upstream that is down takes the requests of its own hosts down only.
func TestASiteThatIsDownLeavesTheOthersAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := &url.URL{Scheme: "http", Host: l.Addr().String()}
	l.Close()
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, sitePolicy(t))
		o.Sites = []Site{
			{Host: "shop.example.com", Upstreams: []*url.URL{gone}},
			{Upstreams: []*url.URL{siteBackend(t, "rest", "")}},
		}
	})
	for range 3 {
		want(t, e.send("GET / HTTP/1.1\r\nHost: shop.example.com\r\nConnection: close\r\n\r\n"), http.StatusBadGateway, "upstream_unavailable", "12")
		if got := text(t, e.send("GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n")); !strings.HasPrefix(got, "rest ") {
			t.Errorf("the other host: %q", got)
		}
	}
	states := e.gateway.Upstreams()
	if len(states) != 2 || states[0].Site != "shop.example.com" || states[0].Well || states[1].Site != "" || !states[1].Well {
		t.Errorf("states %+v", states)
	}
}

func TestTwoUpstreamsForOneHostAreRefused(t *testing.T) {
	at := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(Options{Decider: testDecider(t, sitePolicy(t)), Identity: resolver, Sites: []Site{
		{Host: "api.example.com", Upstreams: []*url.URL{at}}, {Host: "api.example.com", Upstreams: []*url.URL{at}},
	}})
	if err == nil || !strings.Contains(err.Error(), `"api.example.com"`) {
		t.Error(err)
	}
}

// askHTTP2 sends GET / with an :authority, as it is, and returns the status and the body.
func (e *edge) askHTTP2(authority string) (status, body string) {
	e.t.Helper()
	c := e.dial()
	defer c.Close()
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", authority}, {":path", "/"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	dec := hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			e.t.Fatalf("%q: %v", authority, err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			fields, err := dec.DecodeFull(frame.HeaderBlockFragment())
			if err != nil {
				e.t.Fatal(err)
			}
			status = fields[0].Value
			if frame.StreamEnded() {
				return status, body
			}
		case *http2.DataFrame:
			if body += string(frame.Data()); frame.StreamEnded() {
				return status, body
			}
		case *http2.RSTStreamFrame:
			return "reset", body
		}
	}
}

// A backend that is asked for itself, by a request without a Host, gets it under the limiter of its
// own host.
func TestARequestWithoutHostCountsForTheHostThatTheUpstreamGets(t *testing.T) {
	backend := siteBackend(t, "own", "")
	own, err := weir.ParseRoute(backend.Hostname() + "/*")
	if err != nil {
		t.Fatal(err)
	}
	p := sitePolicy(t)
	p.Limiters = append(p.Limiters, weir.Limiter{Name: "own", Routes: []weir.Route{own}, Windows: p.Limiters[0].Windows})
	for i := range p.Limiters {
		if p.Limiters[i].Name == "own" {
			w, err := weir.ParseWindow("2 per minute by ip")
			if err != nil {
				t.Fatal(err)
			}
			p.Limiters[i].Windows = []weir.Window{w}
		}
	}
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, p)
		o.Sites = []Site{{Upstreams: []*url.URL{backend}}}
	})
	for i, head := range []string{"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"} {
		res := e.send(head)
		if got := text(t, res); got != "own "+backend.Host+" /" || limitOf(res.Header) != "2" {
			t.Errorf("request %d: %q by limit %s, want the limiter of %s", i, got, limitOf(res.Header), backend.Host)
		}
	}
	if res := e.send("GET / HTTP/1.0\r\n\r\n"); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the third request: %s, want 429", res.Status)
	}
}

// net/http sends a host of other letters on in its ASCII form, and an address without its zone. The
// limiter would have seen another host than the backend.
func TestAHostThatIsRewrittenOnTheWayIsRefused(t *testing.T) {
	p := sitePolicy(t)
	for host, limit := range map[string]string{"xn--bcher-kva.test/*": "2", "[2001:db8::1]/*": "3"} {
		r, err := weir.ParseRoute(host)
		if err != nil {
			t.Fatal(err)
		}
		w, err := weir.ParseWindow(limit + " per minute by ip")
		if err != nil {
			t.Fatal(err)
		}
		p.Limiters = append(p.Limiters, weir.Limiter{Name: "n" + limit, Routes: []weir.Route{r}, Windows: []weir.Window{w}})
	}
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, p)
		o.Sites = []Site{{Upstreams: []*url.URL{siteBackend(t, "rest", "")}}}
	})
	for _, authority := range []string{"b\u00fccher.test", "[2001:db8::1%25eth0]", "[2001:db8::1%eth0]", "a b", "a/b", "shop.example.com,x"} {
		if status, body := e.askHTTP2(authority); status != "400" {
			t.Errorf("HTTP/2, %q: status %s, %q, want 400", authority, status, body)
		}
	}
	for _, raw := range []string{
		"GET http://b%C3%BCcher.test/ HTTP/1.1\r\nHost: b\r\n",
		"GET / HTTP/1.1\r\nHost: [2001:db8::1%25eth0]\r\n",
		"GET / HTTP/1.1\r\nHost: [2001:db8::1%eth0]\r\n",
	} {
		if res := e.send(raw + "Connection: close\r\n\r\n"); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s, %q, want 400", raw, res.Status, text(t, res))
		}
	}
}

// A trusted proxy has to pass on the Host of its clients: what it has under other names may be what
// they have sent.
func TestAForwardedHostChoosesNeitherUpstreamNorLimiter(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		o.Decider = testDecider(t, sitePolicy(t))
		o.TrustedProxies = loopback
		o.Sites = []Site{
			{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}},
			{Host: "shop.example.com", Upstreams: []*url.URL{siteBackend(t, "shop", "")}},
		}
	})
	for _, field := range []string{"X-Forwarded-Host: shop.example.com", "Forwarded: host=shop.example.com", "X-Original-Host: shop.example.com", "X-Host: shop.example.com"} {
		res := e.send("GET / HTTP/1.1\r\nHost: api.example.com\r\n" + field + "\r\nConnection: close\r\n\r\n")
		if got := text(t, res); got != "api api.example.com /" || limitOf(res.Header) != "11" {
			t.Errorf("%s: %q by limit %s", field, got, limitOf(res.Header))
		}
	}
}
