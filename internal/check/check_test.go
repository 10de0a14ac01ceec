package check_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/check"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

const policy = `
limiters:
  - name: leads
    routes: [POST /api/leads]
    windows: [3 per minute by ip]
  - name: slots
    routes: [/slots]
    windows: [100 per minute by ip]
    in_flight: 1 by ip
  - name: usage
    routes: [/usage]
    windows: [5 per minute by ip]
    answers: usage
  - name: all
    routes: [/*]
    windows: [1000 per minute by ip]
`

// open returns a door for a dialect, whose only peer is 127.0.0.1.
func open(t *testing.T, dialect check.Dialect, text string, change ...func(*check.Options)) *check.Door {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := policyfile.Reader{Sources: who.Sources()}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(file.Policy, store, weir.Options{Sources: who.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	o := check.Options{
		Rules: rules.Options{Decider: decider, Identity: who, Log: slog.New(slog.DiscardHandler)}, Dialect: dialect, Peers: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Secret: func() []byte { return []byte("0123456789abcdef0123456789abcdef") },
	}
	for _, f := range change {
		f(&o)
	}
	door, err := check.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if dialect != check.EnvoyGRPC {
		l := &pipes{conns: make(chan net.Conn), ended: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- door.Serve(ctx, l) }()
		listeners.Store(door, l)
		t.Cleanup(func() {
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	return door
}

// listeners has the *pipes of each door.
var listeners sync.Map

// pipes is a listener of connections that come from any address.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	end   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.end.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9000} }

// A from is a connection that comes from an address.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// A question is what a proxy sends; fields are lines.
type question struct {
	peer, target string
	fields       []string
}

// ask asks over HTTP/1.
func (q question) ask(d *check.Door) *http.Response {
	l, _ := listeners.Load(d)
	here, there := net.Pipe()
	defer here.Close()
	peer := "127.0.0.1:999"
	if q.peer != "" {
		peer = q.peer
	}
	l.(*pipes).conns <- from{there, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(peer))}
	line := "GET /check"
	if q.target != "" {
		line = q.target
	}
	fmt.Fprintf(here, "%s HTTP/1.1\r\nHost: example.com\r\n%s\r\n", line, strings.Join(append(q.fields, ""), "\r\n"))
	method, _, _ := strings.Cut(line, " ")
	r, err := http.ReadResponse(bufio.NewReader(here), &http.Request{Method: method})
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

func (q question) request() *http.Request {
	r := httptest.NewRequest("GET", "/check", nil)
	if q.target != "" {
		method, target, _ := strings.Cut(q.target, " ")
		r = httptest.NewRequest(method, target, nil)
		r.RequestURI = target
	}
	r.RemoteAddr = "127.0.0.1:999"
	if q.peer != "" {
		r.RemoteAddr = q.peer
	}
	for _, line := range q.fields {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// asked returns what a proxy of a dialect sends about a request.
func asked(dialect check.Dialect, method, target, addr string, more ...string) question {
	switch dialect {
	case check.Nginx:
		return question{fields: append([]string{"X-Original-Method: " + method, "X-Original-URI: " + target, "X-Original-Host: example.com", "X-Original-Addr: " + addr}, more...)}
	case check.Envoy:
		return question{target: method + " " + target, fields: append([]string{"X-Original-Addr: " + addr}, more...)}
	}
	return question{fields: append([]string{"X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + target, "X-Forwarded-Host: example.com", "X-Forwarded-For: " + addr}, more...)}
}

var overHTTP = []check.Dialect{check.Nginx, check.Traefik, check.Caddy, check.Envoy}

// reason returns the status that the proxy's client gets; for nginx it opens what is sealed.
func reason(t *testing.T, d *check.Door, r *http.Response) *http.Response {
	t.Helper()
	sealed := r.Header.Get("X-Weir-Answer")
	if sealed == "" {
		return r
	}
	if r.StatusCode != http.StatusForbidden {
		t.Fatalf("a sealed answer comes with %d, which nginx makes a 500 of", r.StatusCode)
	}
	return question{target: "GET /answer", fields: []string{"X-Weir-Answer: " + sealed}}.ask(d)
}

// admission is the status that lets a proxy forward a request. Envoy takes any other than 200 for a
// denial (ext_authz_http_impl.cc), and the others take all of the 200s.
func admission(of check.Dialect) int {
	if of == check.Envoy {
		return http.StatusOK
	}
	return http.StatusNoContent
}

// The questions are as the proxies' sources have them: forward.go of Traefik 3, a net/http client
// that copies the fields of its client, and ext_authz_http_impl.cc of Envoy.
func TestQuestionsOfProxiesThatAreNotInTheTestsAreRead(t *testing.T) {
	for dialect, ask := range map[check.Dialect]string{
		check.Traefik: "GET /check HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nUser-Agent: curl/8.1\r\nAccept: */*\r\nContent-Type: application/json\r\nCookie: a=b\r\n" +
			"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: example.com\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Proto: https\r\n" +
			"X-Forwarded-Server: edge\r\nX-Forwarded-Uri: /api/leads?x=%2F\r\nX-Real-Ip: 192.0.2.7\r\nAccept-Encoding: gzip\r\n\r\n",
		check.Envoy: "POST /api/leads?x=%2F HTTP/1.1\r\nhost: example.com\r\ncontent-length: 0\r\nauthorization: Bearer a\r\nx-original-addr: 192.0.2.7\r\n" +
			"x-envoy-internal: true\r\nx-forwarded-for: 10.0.0.1\r\nx-envoy-expected-rq-timeout-ms: 1000\r\n\r\n",
	} {
		d := open(t, dialect, policy)
		addr, _ := serving(t, d)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		from := bufio.NewReader(conn)
		for n := range 4 {
			if _, err := io.WriteString(conn, ask); err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			if n < 3 && (r.StatusCode != admission(dialect) || len(body) > 0) || n == 3 && (r.StatusCode != http.StatusTooManyRequests || !bytes.Contains(body, []byte("rate_limited"))) {
				t.Errorf("%s, question %d: %d %s", dialect, n+1, r.StatusCode, body)
			}
		}
	}
}

func TestALimitIsExactInEveryDialect(t *testing.T) {
	for _, dialect := range overHTTP {
		t.Run(string(dialect), func(t *testing.T) {
			d := open(t, dialect, policy)
			for n := range 5 {
				r := reason(t, d, asked(dialect, "POST", "/api/leads?x=1", "192.0.2.7").ask(d))
				want := admission(dialect)
				if n > 2 {
					want = http.StatusTooManyRequests
				}
				if r.StatusCode != want || r.Header.Get("X-RateLimit-Limit") != "3" {
					t.Errorf("request %d: %d %v, want %d", n+1, r.StatusCode, r.Header, want)
				}
				if n > 2 && (r.Header.Get("Retry-After") == "" || r.Header.Get("Content-Type") != "application/json" || r.ContentLength < 50) {
					t.Errorf("the refusal is not whole: %v, %d bytes", r.Header, r.ContentLength)
				}
			}
			if r := asked(dialect, "POST", "/api/leads", "192.0.2.8").ask(d); r.StatusCode != admission(dialect) {
				t.Errorf("another address is answered %d", r.StatusCode)
			}
		})
	}
}

// A client can send any field, so the log does not blame the proxy for it. Nor does it hide a
// mistake of the proxy's configuration from the log.
func TestTheLogBlamesNoProxyForAFieldThatAClientCanSend(t *testing.T) {
	const client, proxy = "made the field up, or --forward-auth-proxy names the wrong proxy", "check the proxy's configuration"
	for _, dialect := range overHTTP {
		log := new(logtest.Buffer)
		d := open(t, dialect, policy, func(o *check.Options) { o.Rules.Log = slog.New(slog.NewTextHandler(log, nil)) })
		foreign := "X-Forwarded-Uri"
		if dialect == check.Traefik || dialect == check.Caddy {
			foreign = "X-Original-Uri"
		}
		asked(dialect, "POST", "/api/leads", "192.0.2.7", foreign+": /free").ask(d)
		if text := log.Take(); !strings.Contains(text, client) || !strings.Contains(text, foreign) || strings.Contains(text, proxy) || !strings.Contains(text, "proxy="+string(dialect)) {
			t.Errorf("%s: with a field of another proxy the log has %s", dialect, text)
		}
		asked(dialect, "POST", "/api/leads", "unknown").ask(d)
		if text := log.Take(); !strings.Contains(text, proxy) || strings.Contains(text, client) {
			t.Errorf("%s: with an address that is none the log has %s", dialect, text)
		}
	}
}

// Nothing that cannot be believed passes, and none of it is charged to anybody.
func TestWhatCannotBeBelievedDoesNotPass(t *testing.T) {
	for _, dialect := range overHTTP {
		whole := asked(dialect, "POST", "/api/leads", "192.0.2.7")
		bad := map[string]question{"a stranger": {peer: "192.0.2.9:1", target: whole.target, fields: whole.fields}, "nothing": {target: "GET /check"}}
		for i, line := range whole.fields {
			name, _, _ := strings.Cut(line, ": ")
			without := append(append([]string{}, whole.fields[:i]...), whole.fields[i+1:]...)
			bad["no "+name] = question{target: whole.target, fields: without}
			bad["two "+name] = question{target: whole.target, fields: append([]string{line}, whole.fields...)}
			bad["an empty "+name] = question{target: whole.target, fields: append(without, name+": ")}
		}
		for _, addr := range []string{"unknown", "192.0.2.7, ", "192.0.2.256", "192.0.2.7 x", "[::1", "_hidden"} {
			bad["the address "+addr] = asked(dialect, "POST", "/api/leads", addr)
		}
		for _, line := range []string{"X-Forwarded-Uri: /free", "X-Forwarded-Method: GET", "X-Original-Uri: /free", "X-Original-Method: GET"} {
			bad["also "+line] = asked(dialect, "POST", "/api/leads", "192.0.2.7", line)
		}
		for _, target := range []string{"*", "api/leads", "http://example.com/api/leads", "/%zz", "/x\x00", "//api/leads", "/x/../api/leads"} {
			if dialect != check.Envoy { // net/http would refuse some
				bad["the target "+target] = asked(dialect, "POST", target, "192.0.2.7")
			}
		}
		for what, q := range bad {
			t.Run(string(dialect)+"/"+what, func(t *testing.T) {
				d := open(t, dialect, policy)
				r := reason(t, d, q.ask(d))
				if r.StatusCode < 400 || r.StatusCode == http.StatusTooManyRequests {
					t.Errorf("answered %d", r.StatusCode)
				}
				for n := range 3 {
					if r := whole.ask(d); r.StatusCode != admission(dialect) {
						t.Errorf("lead %d of 3 after it is answered %d", n+1, r.StatusCode)
					}
				}
			})
		}
	}
}

func TestOnlyTheAddressThatTheProxyAppendsCounts(t *testing.T) {
	for _, dialect := range []check.Dialect{check.Traefik, check.Caddy} {
		d := open(t, dialect, policy)
		for _, claimed := range []string{"198.51.100.1, ", "198.51.100.2, 198.51.100.3,", ""} {
			if r := asked(dialect, "POST", "/api/leads", claimed+"192.0.2.7").ask(d); r.StatusCode != http.StatusNoContent {
				t.Errorf("%s: %d", claimed, r.StatusCode)
			}
		}
		if r := asked(dialect, "POST", "/api/leads", "203.0.113.1, 192.0.2.7").ask(d); r.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a client that claims another address is answered %d", r.StatusCode)
		}
	}
}

func TestNoSpellingPassesASpentLimit(t *testing.T) {
	d := open(t, check.Nginx, policy)
	for range 3 {
		asked(check.Nginx, "POST", "/api/leads", "192.0.2.7").ask(d)
	}
	for _, path := range []string{
		"/api/leads", "/API/Leads", "/api//leads", "/api/leads/", "/api/leads;x", "/api/%6ceads", "/api/./leads", "/x/../api/leads", "/api%2Fleads",
		"/api/leads.json", "/api/leads%3Bx", "/api/leads/..", "/api/%256ceads", "/api\\leads", "/api/leads%20", "/api/leads?x",
	} {
		r := reason(t, d, asked(check.Nginx, "POST", path, "192.0.2.7").ask(d))
		if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is answered %d", path, r.StatusCode)
		}
	}
}

// nginx gets back what was sealed, and nothing that somebody else has made up.
func TestOnlyASealedAnswerIsOpened(t *testing.T) {
	d := open(t, check.Nginx, policy)
	sealed := asked(check.Nginx, "BREW", "/x", "192.0.2.7").ask(d).Header.Get("X-Weir-Answer")
	if r := (question{target: "HEAD /answer", fields: []string{"X-Weir-Answer: " + sealed}}).ask(d); r.StatusCode != http.StatusMethodNotAllowed {
		t.Fatalf("it is answered %d", r.StatusCode)
	}
	flipped := []byte(sealed)
	flipped[len(flipped)/2] ^= 1
	for _, forged := range []string{"", "x", sealed[:20], sealed[:len(sealed)-4], string(flipped), strings.Repeat("A", 60), sealed + "AAAA"} {
		if r := (question{target: "GET /answer", fields: []string{"X-Weir-Answer: " + forged}}).ask(d); r.StatusCode != http.StatusForbidden {
			t.Errorf("%.20q is answered %d", forged, r.StatusCode)
		}
	}
	unknown := open(t, check.Nginx, policy, func(o *check.Options) { o.Secret = func() []byte { return nil } })
	r := asked(check.Nginx, "BREW", "/x", "192.0.2.7").ask(unknown)
	if r.StatusCode != http.StatusForbidden || r.Header.Get("X-Weir-Answer") != "" {
		t.Errorf("while the key is not known: %d %v", r.StatusCode, r.Header)
	}
}

func TestTheHealthPathsOfABackendAreCounted(t *testing.T) {
	d := open(t, check.Caddy, policy)
	if r := asked(check.Caddy, "GET", "/healthz", "192.0.2.7").ask(d); r.StatusCode != http.StatusNoContent || r.Header.Get("X-RateLimit-Limit") != "1000" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	if r := (question{target: "GET /readyz"}).ask(d); r.StatusCode != http.StatusOK {
		t.Errorf("the door's own /readyz is answered %d", r.StatusCode)
	}
	envoy := open(t, check.Envoy, policy)
	if r := asked(check.Envoy, "GET", "/readyz", "192.0.2.7").ask(envoy); r.StatusCode != http.StatusOK || r.Header.Get("X-RateLimit-Limit") == "" {
		t.Errorf("to Envoy, a client's /readyz is answered %d %v", r.StatusCode, r.Header)
	}
}

// A request whose end is not told keeps no slot.
func TestASlotIsGivenBackAtOnce(t *testing.T) {
	d := open(t, check.Nginx, policy)
	for n := range 5 {
		if r := asked(check.Nginx, "GET", "/slots", "192.0.2.7").ask(d); r.StatusCode != http.StatusNoContent {
			t.Fatalf("request %d is answered %d", n+1, r.StatusCode)
		}
	}
}

// asks is a response that asks another question while it is written.
type asks struct {
	*httptest.ResponseRecorder
	next func()
}

func (w asks) WriteHeader(status int) {
	w.next()
	w.ResponseRecorder.WriteHeader(status)
}

// The proxy forwards a request as soon as it reads the verdict, so the slot is free before that.
func TestTwoQuestionsAtOnceDoNotCompeteForASlot(t *testing.T) {
	d := open(t, check.Nginx, policy)
	second := 0
	w := asks{httptest.NewRecorder(), func() { second = asked(check.Nginx, "GET", "/slots", "192.0.2.7").ask(d).StatusCode }}
	d.ServeHTTP(w, asked(check.Nginx, "GET", "/slots", "192.0.2.7").request())
	if w.Code != http.StatusNoContent || second != http.StatusNoContent {
		t.Errorf("the questions are answered %d and %d", w.Code, second)
	}
}

// A 200 of our own would make a proxy forward a request that was not charged.
func TestAnAnswerOfOursNeverLetsARequestPass(t *testing.T) {
	for dialect, want := range map[check.Dialect]int{check.Nginx: 200, check.Caddy: 404, check.Envoy: 404} {
		d := open(t, dialect, policy)
		r := asked(dialect, "GET", "/usage", "192.0.2.7").ask(d)
		if r.StatusCode < 300 {
			t.Errorf("%s: the question is answered %d", dialect, r.StatusCode)
		}
		if r = reason(t, d, r); r.StatusCode != want {
			t.Errorf("%s: the client is answered %d, want %d", dialect, r.StatusCode, want)
		}
	}
}

// A preflight is charged to widget-other, needs no credential, and the backend answers it (D9).
func TestAPreflightPassesOnTheAccountOfWidgetOther(t *testing.T) {
	contract, err := os.ReadFile(filepath.Join("..", "..", "policyfile", "contract.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, check.Traefik, string(contract))
	r := asked(check.Traefik, "OPTIONS", "/api/v1/widget/leads", "192.0.2.7", "Origin: https://shop.example.com", "Access-Control-Request-Method: POST").ask(d)
	if r.StatusCode != http.StatusNoContent || r.Header.Get("X-RateLimit-Limit") != "6000" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	if r = asked(check.Traefik, "GET", "/api/v1/widget/x", "192.0.2.7").ask(d); r.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("an admitted request of a browser has %v", r.Header)
	}
}

// With an API of one's own, the backend answers the preflights of listed origins too, and nothing
// counts them. It says who may read what it answers; a refusal says that itself.
func TestListedOriginsMayReadRefusals(t *testing.T) {
	d := open(t, check.Traefik, `{limiters: [{name: a, routes: [/*], windows: [1 per hour by ip]}]}`, func(o *check.Options) {
		o.Rules.CORSOrigins = []string{"https://shop.example.com"}
	})
	ask := func(method, origin string) *http.Response {
		return asked(check.Traefik, method, "/x", "192.0.2.7", "Origin: "+origin, "Access-Control-Request-Method: POST").ask(d)
	}
	for _, test := range []struct {
		method, origin  string
		status          int
		limit, readable string
	}{
		{"OPTIONS", "https://shop.example.com", 204, "", ""},
		{"GET", "https://shop.example.com", 204, "1", ""},
		{"GET", "https://shop.example.com", 429, "1", "https://shop.example.com"},
		{"GET", "https://evil.example.com", 429, "1", ""},
		{"OPTIONS", "https://shop.example.com", 204, "", ""},
		{"OPTIONS", "https://evil.example.com", 429, "1", ""},
	} {
		r := ask(test.method, test.origin)
		if limit, readable := r.Header.Get("X-RateLimit-Limit"), r.Header.Get("Access-Control-Allow-Origin"); r.StatusCode != test.status || limit != test.limit || readable != test.readable {
			t.Errorf("%s from %s: %d, limit %q, readable by %q; want %+v", test.method, test.origin, r.StatusCode, limit, readable, test)
		}
	}
}

func TestTheDoorReadsNoBody(t *testing.T) {
	d := open(t, check.Caddy, `{limiters: [{name: a, routes: [/*], windows: [3 per minute by ip+agent]}]}`)
	addr, _ := serving(t, d)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	// The body that is announced never comes.
	_, err = conn.Write([]byte("GET /check HTTP/1.1\r\nHost: x\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: /x\r\nX-Forwarded-Host: x\r\n" +
		"X-Forwarded-For: 192.0.2.7\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || r.StatusCode != http.StatusNoContent {
		t.Errorf("%v %v", r, err)
	}
	_ = conn.Close()
}
