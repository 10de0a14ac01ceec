package telemetry_test

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
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/telemetry"
)

// A collector records what is posted to it.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	raw   []byte
	spans []*tracepb.Span
}

func newCollector(t *testing.T) *collector {
	c := new(collector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err == nil {
			err = proto.Unmarshal(b, &data)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("the collector got %s, %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, b...)
		for _, rs := range data.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of returns the only span of a kind.
func (c *collector) of(t *testing.T, kind tracepb.Span_SpanKind) *tracepb.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*tracepb.Span
	for _, s := range c.spans {
		if s.Kind == kind {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of kind %v, want one: %v", len(found), kind, c.spans)
	}
	return found[0]
}

func attributes(s *tracepb.Span) string {
	var b strings.Builder
	for _, a := range s.Attributes {
		fmt.Fprintf(&b, "%s=%s%v;", a.Key, a.Value.GetStringValue(), a.Value.GetIntValue())
	}
	return b.String()
}

// A traced gateway is a gateway with a limit of 3 per minute, between a client and an upstream.
type traced struct {
	url    string
	tracer *telemetry.Tracer
	log    *bytes.Buffer // after the end
}

func newTraced(t *testing.T, upstream http.Handler, to string, change func(*telemetry.TraceOptions)) *traced {
	t.Helper()
	return newTracedUnder(t, newDecider(t, "3 per minute by ip", weir.Options{}), upstream, to, change)
}

func newTracedUnder(t *testing.T, d *weir.Decider, upstream http.Handler, to string, change func(*telemetry.TraceOptions)) *traced {
	t.Helper()
	back := httptest.NewServer(upstream)
	t.Cleanup(back.Close)
	endpoint, err := url.Parse(to + "/v1/traces")
	if err != nil {
		t.Fatal(err)
	}
	e := &traced{log: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(e.log, nil))
	o := telemetry.TraceOptions{Endpoint: endpoint, Ratio: 1, Service: "weir", Version: "v1", Log: log,
		Trusts: func(*http.Request) bool { return true }}
	if change != nil {
		change(&o)
	}
	if e.tracer, err = telemetry.NewTracer(o); err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(back.URL)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Decider: d, Identity: who, Sites: gateway.To(at), Log: log,
		Observe: e.tracer.Observe, Wrap: e.tracer.Wrap, TraceUpstream: e.tracer.TraceUpstream, TracePath: e.tracer.TracePath,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e.url = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.tracer.Close(ended); err != nil && ended.Err() == nil {
			t.Error(err)
		}
	})
	return e
}

// flush closes the tracer, which posts everything.
func (e *traced) flush(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.tracer.Close(ctx); err != nil {
		t.Error(err)
	}
}

func (e *traced) send(t *testing.T, target string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.url+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
	traceparent  = "Traceparent: 00-" + callersTrace + "-" + callersSpan + "-01"
)

func TestATraceGoesThroughToTheUpstreamAndSaysWhatWasDecidedAndNothingOfTheCaller(t *testing.T) {
	to := newCollector(t)
	heard := make(chan http.Header, 1)
	e := newTraced(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.Header }), to.URL, nil)
	e.send(t, "/docs?token=secret-query", traceparent, "Tracestate: a=secret-state", "User-Agent: secret-agent", "Authorization: Bearer secret-token",
		"Cookie: secret-cookie", "X-Forwarded-For: 198.51.100.7", "Baggage: k=secret-baggage")
	if got := (<-heard).Get("Traceparent"); !strings.HasPrefix(got, "00-"+callersTrace+"-") || strings.Contains(got, callersSpan) {
		t.Errorf("the upstream heard %q, want the caller's trace and our span", got)
	}
	e.flush(t)
	server, client := to.of(t, tracepb.Span_SPAN_KIND_SERVER), to.of(t, tracepb.Span_SPAN_KIND_CLIENT)
	if fmt.Sprintf("%x/%x", server.TraceId, server.ParentSpanId) != callersTrace+"/"+callersSpan || !bytes.Equal(client.ParentSpanId, server.SpanId) {
		t.Errorf("the server's span is %x under %x, the client's under %x", server.TraceId, server.ParentSpanId, client.ParentSpanId)
	}
	for _, s := range []string{"weir.limiter=api0;", "weir.window=60s by ip0;", "weir.outcome=admitted0;", "url.path=/docs0;", "http.response.status_code=200;"} {
		if strings.Count(attributes(server), s) != 1 {
			t.Errorf("the span has %s, want %s once", attributes(server), s)
		}
	}
	for _, s := range []string{"secret", "198.51.100.7", "query", "client.address", "network.peer", "user_agent", "url.full"} {
		if bytes.Contains(to.raw, []byte(s)) {
			t.Errorf("the collector hears %q:\n%q", s, to.raw)
		}
	}
}

// What a window counts by can be a secret, such as an API key in the path.
func TestASegmentThatIsCountedByIsNotTraced(t *testing.T) {
	p := policy(t, "1 per minute by ip+path:key")
	p.Limiters[0].Routes = []weir.Route{{Path: "/k/{key}/x"}}
	to := newCollector(t)
	e := newTracedUnder(t, newDeciderOf(t, p, nil, weir.Options{}), http.NotFoundHandler(), to.URL, nil)
	e.send(t, "/k/sk_live_secretkey/x")
	e.flush(t)
	if s := attributes(to.of(t, tracepb.Span_SPAN_KIND_SERVER)); !strings.Contains(s, "url.path=/k/{key}/x0;") || bytes.Contains(to.raw, []byte("secretkey")) {
		t.Errorf("the span has %s:\n%q", s, to.raw)
	}
}

func TestARefusedRequestAndOneWithoutALimiterAreToldApart(t *testing.T) {
	to := newCollector(t)
	e := newTraced(t, http.NotFoundHandler(), to.URL, nil)
	for range 4 {
		e.send(t, "/x")
	}
	e.send(t, "/healthz")
	e.flush(t)
	outcomes := map[string]int{}
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, s := range to.spans {
		for _, a := range s.Attributes {
			if a.Key == "weir.outcome" {
				outcomes[a.Value.GetStringValue()]++
			}
		}
	}
	if len(outcomes) != 2 || outcomes["admitted"] != 3 || outcomes["refused"] != 1 {
		t.Errorf("outcomes %v, want 3 admitted and 1 refused", outcomes)
	}
}

func TestAStrangersTraceIsLinkedAndNotTakenUp(t *testing.T) {
	to := newCollector(t)
	e := newTraced(t, http.NotFoundHandler(), to.URL, func(o *telemetry.TraceOptions) {
		o.Trusts = nil
	})
	e.send(t, "/x", traceparent, "Tracestate: a=secret")
	e.flush(t)
	s := to.of(t, tracepb.Span_SPAN_KIND_SERVER)
	if fmt.Sprintf("%x", s.TraceId) == callersTrace || len(s.Links) != 1 || fmt.Sprintf("%x", s.Links[0].TraceId) != callersTrace || s.Links[0].TraceState != "" {
		t.Errorf("trace %x, links %v", s.TraceId, s.Links)
	}
}

func TestARatioOfNoneRecordsWhatCallersRecord(t *testing.T) {
	to := newCollector(t)
	heard := make(chan string, 2)
	e := newTraced(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.Header.Get("Traceparent") }), to.URL,
		func(o *telemetry.TraceOptions) { o.Ratio = 0 })
	e.send(t, "/unrecorded")
	if got := <-heard; !strings.HasSuffix(got, "-00") {
		t.Errorf("the upstream heard %q, want a trace that is not recorded", got)
	}
	e.send(t, "/recorded", traceparent)
	e.flush(t)
	if s := to.of(t, tracepb.Span_SPAN_KIND_SERVER); !strings.Contains(attributes(s), "url.path=/recorded0") {
		t.Errorf("%s was recorded", attributes(s))
	}
}

func TestACollectorThatCannotBeReachedCostsRequestsNothingAndIsLoggedOnce(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	e := newTraced(t, http.NotFoundHandler(), closed.URL, nil)
	for range 3 {
		if res := e.send(t, "/x"); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s", res.Status)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := e.tracer.Close(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to end", took)
	}
	if strings.Count(e.log.String(), "\n") != 1 || !strings.Contains(e.log.String(), "the trace collector does not accept spans") {
		t.Errorf("the log has\n%s", e.log)
	}
}

func TestWebsocketsAndEventsPassTheTracer(t *testing.T) {
	to := newCollector(t)
	more := make(chan struct{})
	e := newTraced(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(c, rw)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "data: two\n\n")
	}), to.URL, nil)
	dial := func(request string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, request)
		return c, bufio.NewReader(c)
	}
	expect := func(r *bufio.Reader, text string) {
		t.Helper()
		for line := ""; !strings.Contains(line, text); {
			var err error
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatalf("want %q: %v", text, err)
			}
		}
	}
	c, r := dial("GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
	expect(r, "data: one")
	close(more) // the first arrived before the second was written
	expect(r, "data: two")
	_ = c.Close()

	c, r = dial("GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	expect(r, "101 Switching")
	_, _ = io.WriteString(c, "over and back\n")
	expect(r, "over and back")
	_ = c.Close()
}

func TestATracerNeedsAPlaceAndAPart(t *testing.T) {
	at := &url.URL{Scheme: "http", Host: "127.0.0.1:4318"}
	nan := 0.0
	nan /= nan
	for _, o := range []telemetry.TraceOptions{
		{}, {Endpoint: &url.URL{Scheme: "grpc", Host: "h"}}, {Endpoint: &url.URL{Scheme: "http"}},
		{Endpoint: at, Ratio: -0.1}, {Endpoint: at, Ratio: 1.1}, {Endpoint: at, Ratio: nan},
	} {
		if _, err := telemetry.NewTracer(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
