package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/memstore"
)

// The contract's limiters, all by address: these tests check which limiter applies,
// not to whom. The limits differ, so that X-RateLimit-Limit identifies the limiter.
var testLimiters = []struct {
	name   string
	routes []string
	window string
}{
	{"widget-init", []string{"POST /api/v1/widget/init"}, "1000000 per minute by ip"},
	{"widget-session", []string{"POST /api/v1/widget/messages*", "/api/v1/widget/events*", "/api/v1/widget/conversations*"}, "1000001 per minute by ip"},
	{"widget-leads", []string{"POST /api/v1/widget/leads"}, "1000002 per minute by ip"},
	{"wp-plugin", []string{"/v1/wp/*"}, "1000003 per minute by ip"},
	{"widget-typing", []string{"POST /api/v1/widget/typing"}, "1000004 per minute by ip"},
	{"widget-satisfaction", []string{"POST /api/v1/widget/satisfaction"}, "1000005 per minute by ip"},
	{"widget-coupon", []string{"POST /api/v1/widget/coupon/apply"}, "1000006 per minute by ip"},
	{"widget-other", []string{"/api/v1/widget/*"}, "1000007 per minute by ip"},
}

const (
	initLimit = "1000000"
	leads     = "1000002"
	wpPlugin  = "1000003"
	other     = "1000007"
)

func testPolicy(t testing.TB) weir.Policy {
	t.Helper()
	var p weir.Policy
	for _, l := range testLimiters {
		limiter := weir.Limiter{Name: l.name}
		for _, s := range l.routes {
			r, err := weir.ParseRoute(s)
			if err != nil {
				t.Fatal(err)
			}
			limiter.Routes = append(limiter.Routes, r)
		}
		w, err := weir.ParseWindow(l.window)
		if err != nil {
			t.Fatal(err)
		}
		limiter.Windows = []weir.Window{w}
		p.Limiters = append(p.Limiters, limiter)
	}
	return p
}

func testDecider(t testing.TB, p weir.Policy) *weir.Decider {
	t.Helper()
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// An edge is a gateway that listens.
type edge struct {
	t       testing.TB
	gateway *Gateway
	addr    string
	log     *logtest.Buffer // lines that do not belong to a request
	access  *logtest.Buffer
	stop    func() // drains, and returns the result of Serve
	result  chan error
}

// testEngine is the engine of open's gateways. The whole suite runs on each.
var testEngine Engine

func TestMain(m *testing.M) {
	for _, engine := range []Engine{EngineAuto, EngineStd} {
		testEngine = engine
		if code := m.Run(); code != 0 {
			fmt.Fprintf(os.Stderr, "with the engine %v\n", engine)
			os.Exit(code)
		}
	}
}

// open starts a gateway before backend with the test policy. change may alter the
// options.
func open(t testing.TB, backend http.Handler, change func(*Options)) *edge {
	t.Helper()
	e := &edge{t: t, log: new(logtest.Buffer), access: new(logtest.Buffer), result: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(e.log, nil))
	access := NewAccessLog(e.access, LogText, logger)
	o := Options{Backend: backend, Log: logger, AccessLog: access, Engine: testEngine}
	if change != nil {
		change(&o)
	}
	lasting(&o.Limits)
	if o.Decider == nil {
		o.Decider = testDecider(t, testPolicy(t))
	}
	resolver, err := identity.New(identity.Options{TrustedProxies: o.TrustedProxies, Certificates: o.Clients.CAFile != ""})
	if err != nil {
		t.Fatal(err)
	}
	o.Identity = resolver
	if o.Sites != nil {
		o.Backend = nil
	}
	e.gateway, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.result <- e.gateway.Serve(ctx, l)
		_ = access.Close()
	}()
	e.stop = func() { cancel(); <-done }
	t.Cleanup(e.stop)
	return e
}

func (e *edge) url(path string) string { return "http://" + e.addr + path }

// patience is how long a test waits for what must happen. Only a failing test waits that long. It
// is less than the gateway's own timeouts for a silent peer (lasting), which would otherwise make
// it happen.
const patience = 3 * time.Minute

// lasting sets the timeouts for a silent peer that a test has not set: no test passes because of
// one by chance.
func lasting(l *Limits) {
	for _, timeout := range []*time.Duration{&l.Header, &l.ProxyHeader, &l.Stall, &l.Idle, &l.Upstream, &l.Grace} {
		if *timeout == 0 {
			*timeout = time.Hour
		}
	}
}

// dial opens a connection that ends with the test. It fails on a timeout.
func (e *edge) dial() net.Conn {
	e.t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// send writes raw bytes on a new connection, and reads one answer.
func (e *edge) send(raw string) *http.Response {
	e.t.Helper()
	c := e.dial()
	defer c.Close()
	if _, err := io.WriteString(c, raw); err != nil {
		e.t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		e.t.Fatalf("%.200q: %v", raw, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatalf("%.200q: %v", raw, err)
	}
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	return res
}

// ask sends one request line with a minimal header.
func (e *edge) ask(line string, header ...string) *http.Response {
	e.t.Helper()
	return e.send(line + " HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n")
}

func text(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// limitOf returns the X-RateLimit-Limit, in any spelling of the header map.
func limitOf(h http.Header) string { return h.Get("X-RateLimit-Limit") }

// want checks the status, the error's code if there is one, and the limiter by its
// limit.
func want(t testing.TB, res *http.Response, status int, code, limit string) {
	t.Helper()
	body := text(t, res)
	if res.StatusCode != status {
		t.Errorf("status %d, want %d; body %q", res.StatusCode, status, body)
	}
	if code != "" && !strings.Contains(body, `"code":"`+code+`"`) {
		t.Errorf("body %q, want the code %q", body, code)
	}
	if got := limitOf(res.Header); got != limit {
		t.Errorf("X-RateLimit-Limit %q, want %q", got, limit)
	}
}

// A recorder is a backend that records requests.
type recorder struct {
	mu   sync.Mutex
	seen []sighting
}

type sighting struct {
	method, path, escaped, query string
	limiter                      string
}

func (b *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := sighting{method: r.Method, path: r.URL.Path, escaped: r.URL.EscapedPath(), query: r.URL.RawQuery}
	if d, ok := httplimit.DecisionOf(w); ok && d.Binding().Limiter != nil {
		s.limiter = d.Binding().Limiter.Name
	}
	b.mu.Lock()
	b.seen = append(b.seen, s)
	b.mu.Unlock()
}

// last returns and removes the recorded request; ok is false unless there is
// exactly one.
func (b *recorder) last() (s sighting, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.seen) == 1 {
		s, ok = b.seen[0], true
	}
	b.seen = nil
	return s, ok
}

// behind starts a server for --upstream.
func behind(t testing.TB, h http.HandlerFunc) func(*Options) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return before(t, s.URL)
}

func before(t testing.TB, rawURL string) func(*Options) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Sites = To(u) }
}

var loopback = []netip.Prefix{mustPrefix("127.0.0.0/8")}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// eventually waits for an action of another goroutine that has no event to wait
// for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		case <-tick.C:
		}
	}
}

// bodyFailed answers as the gateway does if a request's body does not arrive.
func bodyFailed(w http.ResponseWriter, err error) {
	a := rules.BodyFailed(err)
	if a.Closes {
		w.Header().Set("Connection", "close")
	}
	httplimit.WriteError(w, a.Status, a.Code, a.Message)
}
