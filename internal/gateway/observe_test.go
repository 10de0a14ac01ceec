package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
)

// A tally collects what a gateway reports as served.
type tally struct {
	mu  sync.Mutex
	all []Served
}

func (l *tally) add(s Served) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

// sums returns how many requests of each site, limiter and status were served, without the times.
func (l *tally) sums() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[string]int{}
	for _, s := range l.all {
		sums[fmt.Sprintf("%s/%s/%d/%t", s.Site, s.Limiter, s.Status, s.Upstream > 0)]++
	}
	return sums
}

// gone returns an address at which nothing listens.
func gone(t *testing.T) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

// Requests are reported by the site as it is configured, whatever the client writes as its host.
func TestRequestsAreReportedBySiteLimiterAndStatus(t *testing.T) {
	var all tally
	e := open(t, nil, func(o *Options) {
		o.Decider, o.Served = testDecider(t, sitePolicy(t)), all.add
		o.Sites = []Site{
			{Host: "api.example.com", Upstreams: []*url.URL{siteBackend(t, "api", "")}},
			{Host: "*.example.com", Upstreams: []*url.URL{siteBackend(t, "wide", "")}},
			{Host: "down.test", Upstreams: []*url.URL{gone(t)}},
		}
	})
	for range 12 { // the last is refused
		e.send("GET / HTTP/1.1\r\nHost: API.example.com.:80\r\nConnection: close\r\n\r\n")
	}
	for _, host := range []string{"a.example.com", "b.example.com", "down.test", "unknown.test"} {
		e.send("GET / HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	}
	e.send("GET / HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n") // malformed
	e.stop()
	want := map[string]int{
		"api.example.com/api/200/true": 11, "api.example.com/api/429/false": 1, "*.example.com/wide/200/true": 2,
		"down.test/rest/502/true": 1, "/rest/421/false": 1,
	}
	if got := all.sums(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v were served, want %v", got, want)
	}
	for _, s := range all.all {
		if s.Duration <= 0 || s.Upstream > s.Duration {
			t.Errorf("the times of %+v", s)
		}
	}
	for _, s := range e.gateway.Upstreams() {
		if down := s.Site == "down.test"; s.Unanswered[502] != map[bool]int64{true: 1}[down] || s.Well == down || s.Since.IsZero() == down {
			t.Errorf("the upstream of %s is %+v", s.Site, s)
		}
	}
}

// The handler of a sample backend is a site for all hosts.
func TestRequestsOfAHandlerAreReported(t *testing.T) {
	var all tally
	e := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), func(o *Options) { o.Served = all.add })
	e.ask("GET /v1/wp/status")
	e.stop()
	if got := all.sums(); fmt.Sprint(got) != "map[*/wp-plugin/200/false:1]" {
		t.Errorf("%v were served", got)
	}
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// joining is a gateway whose log has every field, and the log's lines by path.
func joining(t *testing.T, fields LogFields) (e *edge, received func() string, lines func() map[string]string) {
	t.Helper()
	var mu sync.Mutex
	var heads strings.Builder
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			mu.Lock()
			fmt.Fprintf(&heads, "%s %q %q\n", r.URL.Path, r.Header["X-Request-Id"], r.Header["Traceparent"])
			mu.Unlock()
			s.answers(ok200)
		}
	})
	e = open(t, nil, func(opts *Options) {
		o.use(opts)
		opts.Decider, opts.LogFields = testDecider(t, agentPolicy(t)), fields
		opts.CallerHash = func(who []byte) (uint64, bool) { return fakeHash(string(who)) }
		opts.Denial = func(*weir.Decision, weir.Keys, *weir.Scratch) string { return "AVs8RGzhaOA1" }
	})
	received = func() string { mu.Lock(); defer mu.Unlock(); return heads.String() }
	return e, received, func() map[string]string {
		all := map[string]string{}
		for line := range strings.Lines(e.access.String()) {
			_, path, _ := strings.Cut(line, " path=")
			path, _, _ = strings.Cut(path, " ")
			_, rest, _ := strings.Cut(line, " proto=HTTP/1.1")
			all[path] += strings.TrimSpace(rest) // the lines of one path may come in any order
		}
		return all
	}
}

func TestALineCanBeJoinedWithOtherLogs(t *testing.T) {
	e, received, lines := joining(t, AllLogFields)
	e.ask("GET /by/address/1", "User-Agent: curl/8 (\"x\")", "X-Request-Id: abc", "Traceparent: "+trace)
	e.ask("GET /by/address/2", "X-Request-Id: "+strings.Repeat("i", 200), "Traceparent: 00-"+strings.Repeat("0", 32)+"-b7ad6b7169203331-01")
	e.ask("GET /by/address/3", "Traceparent: "+trace, "Traceparent: "+trace, "X-Request-Id: wpt_abc_secret")
	e.ask("GET /by/agent/4")
	e.ask("GET /by/agent/4")
	e.ask("GET /by/agent/5")
	e.ask("GET /nowhere")
	e.stop()
	got := lines()
	const upstream, caller = `upstream=http://127\.0\.0\.1:\d+ upstream_time=\d+\.\d{3}ms`, ` caller=[0-9A-F]{16}`
	for path, want := range map[string]string{
		"/by/address/1": `user_agent="curl/8 \(\\"x\\"\)" ` + upstream + ` request_id=abc traceparent=` + trace + caller,
		"/by/address/2": upstream + ` request_id="i{128}\.\.\."` + caller,
		"/by/address/3": upstream + ` request_id=wpt_REDACTED` + caller,
		"/by/agent/5":   `denial=AVs8RGzhaOA1` + caller,
		"/nowhere":      upstream,
	} {
		if !regexp.MustCompile("^" + want + "$").MatchString(got[path]) {
			t.Errorf("%s: %q, want %s", path, got[path], want)
		}
	}
	hash := func(path string) string { return got[path][len(got[path])-16:] }
	if hash("/by/address/1") != hash("/by/address/2") || hash("/by/address/1") == hash("/by/agent/5") {
		t.Error("the callers' hashes do not tell which window has counted them")
	}
	for _, line := range []string{`/by/address/1 ["abc"] ["` + trace + `"]`, `/by/address/2 ["` + strings.Repeat("i", 200) + `"]`, "/nowhere [] []"} {
		if !strings.Contains(received(), line) {
			t.Errorf("the upstream received\n%s\nwant %s", received(), line)
		}
	}
}

func TestEachFieldCanBeSwitchedOff(t *testing.T) {
	for i, name := range LogFieldNames() {
		e, _, lines := joining(t, AllLogFields&^LogFieldOf(name))
		for range 3 {
			e.ask("GET /by/agent/1", "User-Agent: curl", "X-Request-Id: abc", "Traceparent: "+trace)
		}
		e.ask("GET /by/address/2", "User-Agent: curl", "X-Request-Id: abc", "Traceparent: "+trace)
		e.stop()
		all := lines()["/by/agent/1"] + " " + lines()["/by/address/2"]
		for j, other := range LogFieldNames() {
			if strings.Contains(all, other+"=") == (i == j) {
				t.Errorf("without %s the lines are %q", name, all)
			}
		}
	}
	if LogFieldOf("none") != 0 || !slices.Contains(LogFieldNames(), "caller") {
		t.Error("the names of the fields")
	}
}

// A line of a request that no upstream could take has the time that was lost on it.
func TestALineOfAnOutageHasNoUpstream(t *testing.T) {
	e := open(t, nil, func(o *Options) {
		o.Sites, o.LogFields, o.Decider = To(gone(t)), AllLogFields, testDecider(t, agentPolicy(t))
	})
	e.ask("GET /nowhere")
	e.stop()
	if log := e.access.String(); !strings.Contains(log, " status=502 ") || strings.Contains(log, " upstream=") || !strings.Contains(log, " upstream_time=") {
		t.Errorf("the access log is %s", log)
	}
}
