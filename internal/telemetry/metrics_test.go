package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/telemetry"
)

// limited returns a handler that answers every request that d admits, and reports to m.
func limited(t *testing.T, d *weir.Decider, m *telemetry.Metrics) http.Handler {
	t.Helper()
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(d, httplimit.Options{Identity: who, Observe: m.Observe})
	if err != nil {
		t.Fatal(err)
	}
	return limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
}

func ask(h http.Handler, method, target string, header ...string) int {
	r := httptest.NewRequest(method, target, nil)
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestDecisionsAreCountedUnderTheWindowThatBound(t *testing.T) {
	p := policy(t, "10 per minute by ip")
	p.Limiters[0].Routes[0].Path = "/api/"
	d := newDeciderOf(t, p, nil, weir.Options{})
	m := telemetry.New(telemetry.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	const window = `limiter="api",outcome="%s",window="60s by ip"`
	// there before the first
	want(t, m, "weir_decisions_total{"+fmt.Sprintf(window, "refused")+"}", 0)
	h := limited(t, d, m)
	for range 13 {
		ask(h, "GET", "/api/x")
	}
	ask(h, "GET", "/else")
	want(t, m, "weir_decisions_total{"+fmt.Sprintf(window, "admitted")+"}", 10)
	want(t, m, "weir_decisions_total{"+fmt.Sprintf(window, "refused")+"}", 3)
	want(t, m, `weir_decisions_total{limiter="",outcome="unlimited",window=""}`, 1)
	// with 1 and 0 of 10 left: 2 is a fifth
	want(t, m, `weir_near_limit_total{limiter="api",window="60s by ip"}`, 2)
	want(t, m, "weir_decision_duration_seconds", 13)
	absent(t, m, `weir_decisions_total{limiter="api",outcome="unlimited",window="60s by ip"}`)
	absent(t, m, `weir_decisions_total{limiter="api",outcome="misdirected",window="60s by ip"}`)
	want(t, m, `weir_decisions_total{limiter="",outcome="misdirected",window=""}`, 0)
	for range 2 {
		m.Observe(answer.Observation{Outcome: answer.Misdirected})
	}
	want(t, m, `weir_decisions_total{limiter="",outcome="misdirected",window=""}`, 2)
	want(t, m, `weir_decisions_total{limiter="",outcome="unlimited",window=""}`, 1)
}

func TestAChangedLimitGoesOnInItsSeriesAndALostLimiterIsForgottenAfterAWhile(t *testing.T) {
	d := newDecider(t, "10 per minute by ip", weir.Options{})
	at := &clock{now: time.Unix(1e9, 0)}
	m := telemetry.New(telemetry.Options{Keep: time.Minute, Now: at.Now})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	h := limited(t, d, m)
	const minute, hour = `weir_decisions_total{limiter="api",outcome="admitted",window="60s by ip"}`, `weir_decisions_total{limiter="api",outcome="admitted",window="3600s by ip"}`
	ask(h, "GET", "/")
	if err := d.Swap(policy(t, "20 per minute by ip")); err != nil {
		t.Fatal(err)
	}
	ask(h, "GET", "/")
	want(t, m, minute, 2)
	if err := d.Swap(policy(t, "20 per hour by ip")); err != nil {
		t.Fatal(err)
	}
	ask(h, "GET", "/")
	want(t, m, hour, 1)
	want(t, m, minute, 2)
	at.Advance(time.Minute)
	want(t, m, minute, 2) // a scrape may still be to come
	at.Advance(time.Second)
	absent(t, m, minute)
	want(t, m, hour, 1)
	if err := d.Swap(policy(t, "20 per minute by ip")); err != nil {
		t.Fatal(err)
	}
	ask(h, "GET", "/")
	want(t, m, minute, 1) // a counter that begins anew is one that Prometheus understands
	want(t, m, hour, 1)
}

func TestNothingIsForgottenWhileNobodyKnowsThePolicy(t *testing.T) {
	at := &clock{now: time.Unix(1e9, 0)}
	m := telemetry.New(telemetry.Options{Now: at.Now})
	ask(limited(t, newDecider(t, "10 per minute by ip", weir.Options{}), m), "GET", "/")
	for range 3 {
		want(t, m, `weir_decisions_total{limiter="api",outcome="admitted",window="60s by ip"}`, 1)
		at.Advance(time.Hour)
	}
}

func TestReloadsDoNotKeepOldPoliciesInMemory(t *testing.T) {
	d := newDecider(t, "10 per minute by ip", weir.Options{})
	m := telemetry.New(telemetry.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	h := limited(t, d, m)
	defer runtime.KeepAlive(h)
	var mu sync.Mutex
	gone := 0
	const reloads = 500
	for i := range reloads {
		p := policy(t, fmt.Sprintf("%d per minute by ip", 1000+i))
		if err := d.Swap(p); err != nil {
			t.Fatal(err)
		}
		l := d.Match("GET", "", "/").Limiter()
		runtime.AddCleanup(l, func(int) { mu.Lock(); gone++; mu.Unlock() }, 0)
		ask(h, "GET", "/")
	}
	want(t, m, `weir_decisions_total{limiter="api",outcome="admitted",window="60s by ip"}`, reloads)
	for range 100 {
		runtime.GC()
		runtime.Gosched()
		mu.Lock()
		n := gone
		mu.Unlock()
		if n >= reloads-200 {
			return
		}
	}
	t.Errorf("%d of %d former policies were released: the others are kept by stale pointers", gone, reloads)
}

// A file of networks can take 100 MB, and one that is changed every minute makes as many policies.
func TestNoMetricKeepsTheNetworksOfFormerPoliciesInMemory(t *testing.T) {
	d := newDecider(t, "1000 per minute by ip", weir.Options{})
	m := telemetry.New(telemetry.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	defer runtime.KeepAlive(m)
	var gone atomic.Int64
	const reloads = 30
	for range reloads {
		file := &blockList{addr: "192.0.2.1"}
		runtime.AddCleanup(file, func(int) { gone.Add(1) }, 0)
		p := policy(t, "1000 per minute by ip")
		p.Limiters[0].Deny = []weir.Who{{Networks: file}}
		if err := d.Swap(p); err != nil {
			t.Fatal(err)
		}
		l := d.Match("GET", "", "/").Limiter()
		counted := decide(t, d, "192.0.2.2")
		local := counted
		local.Outcome = weir.CountedLocally
		denied := weir.Decision{Outcome: weir.Denied, DeniedBy: l}
		m.Shadow(weir.Shadowed{Limiter: l, Decision: &counted})
		m.Candidate(weir.Compared{Live: &counted, Candidate: &counted})
		m.Observe(answer.Observation{Outcome: answer.Admitted, Limiter: l.Name, Window: &l.Windows[0], Decision: &local})
		m.Observe(answer.Observation{Outcome: answer.Denied, Limiter: l.Name, Decision: &denied})
	}
	want(t, m, `weir_shadow_decisions_total{limiter="api",outcome="would_admit"}`, reloads)
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="same"}`, reloads)
	want(t, m, `weir_fallback_decisions_total{how="counted_locally",limiter="api"}`, reloads)
	want(t, m, `weir_decisions_total{limiter="api",outcome="denied",window=""}`, reloads)
	for range 100 {
		runtime.GC()
		runtime.Gosched()
		if gone.Load() >= reloads-2 { // the policy in force, and the last decision's
			return
		}
	}
	t.Errorf("the networks of %d of %d former policies were released", gone.Load(), reloads)
}

type blockList struct{ addr string }

func (b *blockList) Contains(a netip.Addr) bool { return a.String() == b.addr }
func (b *blockList) String() string             { return "@blocked.txt" }

func TestCoresThatCountTogetherLoseNothing(t *testing.T) {
	d := newDecider(t, "1000000 per minute by ip", weir.Options{})
	m := telemetry.New(telemetry.Options{})
	m.Bind(telemetry.Sources{Policy: d.Policy})
	h := limited(t, d, m)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				ask(h, "GET", "/")
			}
		})
	}
	all.Go(func() {
		for range 50 {
			if _, err := m.Gatherer().Gather(); err != nil {
				t.Error(err)
			}
			if err := d.Swap(policy(t, "1000000 per minute by ip")); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	want(t, m, `weir_decisions_total{limiter="api",outcome="admitted",window="60s by ip"}`, 4000)
	want(t, m, "weir_decision_duration_seconds", 4000)
}

// silent is a store that does not answer.
type silent struct{}

func (silent) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("no answer")
}

func TestWhatIsDecidedWithoutTheStoreIsToldByWhatWasDone(t *testing.T) {
	for mode, how := range map[weir.FailureMode]string{
		weir.FailLocal: "counted_locally", weir.FailAllow: "allowed_uncounted", weir.FailDeny: "store_unavailable",
	} {
		m := telemetry.New(telemetry.Options{})
		p := policy(t, "10 per minute by ip")
		p.Limiters[0].OnStoreFailure = mode
		over, err := failover.New(silent{}, newStore(t), failover.Options{OnEvent: m.StoreEvent, OnTake: m.StoreTake})
		if err != nil {
			t.Fatal(err)
		}
		d := newDeciderOf(t, p, over, weir.Options{})
		m.Bind(telemetry.Sources{Policy: d.Policy, Health: over.Health})
		want(t, m, "weir_store_up", 1)
		want(t, m, "weir_store_breaker_open", 0)
		handler := limited(t, d, m)
		ask(handler, "GET", "/")
		want(t, m, `weir_fallback_decisions_total{how="`+how+`",limiter="api"}`, 1)
		want(t, m, "weir_store_outages_total", 1)
		want(t, m, "weir_store_failures_total", 1)
		want(t, m, "weir_store_take_duration_seconds", 1)
		want(t, m, "weir_store_up", 0)
		for range 50 { // in a row, or most of a second's
			ask(handler, "GET", "/")
		}
		want(t, m, "weir_store_breaker_open", 1)
	}
}

func TestTheStoreIsTold(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	m.StoreTake(time.Millisecond, nil)
	m.StoreTake(100*time.Millisecond, errors.New("no answer"))
	m.StoreEvent(failover.Event{Failing: true})
	m.StoreEvent(failover.Event{For: 90 * time.Second, Local: 7, Given: 5, Lost: 2})
	m.StoreEvent(failover.Event{For: -time.Second})
	for series, value := range map[string]float64{
		"weir_store_take_duration_seconds": 2, "weir_store_failures_total": 1, "weir_store_outages_total": 1, "weir_store_outage_seconds_total": 90,
		"weir_store_local_decisions_total": 7, "weir_store_given_units_total": 5, "weir_store_lost_units_total": 2,
	} {
		t.Run(series, func(t *testing.T) {
			want(t, m, series, value)
		})
	}
}

func TestShadowsAndCandidatesAreCountedByWhatTheyWouldHaveSaid(t *testing.T) {
	d := newDecider(t, "1 per minute by ip", weir.Options{})
	allowed, refused := decide(t, d, "192.0.2.1"), decide(t, d, "192.0.2.1")
	l := allowed.Standings()[0].Limiter
	m := telemetry.New(telemetry.Options{})
	m.Shadow(weir.Shadowed{Limiter: l, Decision: &allowed})
	m.Shadow(weir.Shadowed{Limiter: l, Decision: &refused})
	m.Shadow(weir.Shadowed{Limiter: l, Decision: &refused})
	m.Shadow(weir.Shadowed{Limiter: l, Decision: &allowed, Rejects: true})
	m.Shadow(weir.Shadowed{Limiter: l, Skipped: true})
	want(t, m, `weir_shadow_decisions_total{limiter="api",outcome="would_admit"}`, 1)
	want(t, m, `weir_shadow_decisions_total{limiter="api",outcome="would_refuse"}`, 3)
	want(t, m, `weir_shadow_decisions_total{limiter="api",outcome="skipped"}`, 1)

	unlimited := weir.Decision{Allowed: true, Outcome: weir.Unlimited}
	m.Candidate(weir.Compared{Live: &allowed, Candidate: &refused})
	m.Candidate(weir.Compared{Live: &refused, Candidate: &unlimited})
	m.Candidate(weir.Compared{Live: &unlimited, Candidate: &refused})
	m.Candidate(weir.Compared{Live: &refused, Candidate: &refused})
	m.Candidate(weir.Compared{Live: &unlimited, Candidate: &unlimited})
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="newly_refused"}`, 2)
	want(t, m, `weir_candidate_unauthenticated_total{limiter="api"}`, 0)
	m.Candidate(weir.Compared{Live: &allowed, Candidate: &allowed, CandidateRejects: true})
	m.Candidate(weir.Compared{Live: &allowed, Candidate: &allowed, LiveRejects: true, CandidateRejects: true})
	m.Candidate(weir.Compared{Live: &refused, Candidate: &allowed, CandidateRejects: true})
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="newly_refused"}`, 3)
	want(t, m, `weir_candidate_unauthenticated_total{limiter="api"}`, 1)
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="newly_admitted"}`, 1)
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="same"}`, 3)
	want(t, m, `weir_candidate_decisions_total{limiter="",outcome="same"}`, 1)
}

func TestConnectionsAreCountedUntilTheyAreFirstClosed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := telemetry.New(telemetry.Options{})
	l := m.Listener("edge", inner)
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	want(t, m, `weir_connections_open{listener="edge"}`, 1)
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	want(t, m, `weir_connections_open{listener="edge"}`, 1)
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(uintptr) {})
	}
	if err != nil {
		t.Errorf("the socket of a counted connection: %v", err)
	}
	_, _ = c.Close(), c.Close()
	want(t, m, `weir_connections_open{listener="edge"}`, 0)
	want(t, m, `weir_connections_accepted_total{listener="edge"}`, 1)
}

// No label value is chosen by a caller: each is from the policy or from the sets listed here.
func TestNoLabelHasAValueThatACallerChose(t *testing.T) {
	m, d := everything(t)
	h := limited(t, d, m)
	for i := range 500 {
		evil := fmt.Sprintf("evil%d", i)
		ask(h, "GET", "/"+evil+"?key="+evil, "User-Agent: "+evil, "Authorization: Bearer "+evil, "X-Forwarded-For: "+evil, "Traceparent: "+evil, "Accept-Language: "+evil)
		ask(h, strings.ToUpper(evil), "/"+evil)
	}
	fixed := []string{
		"", "admitted", "refused", "unauthenticated", "store_unavailable", "unlimited", "counted_locally", "allowed_uncounted",
		"would_admit", "would_refuse", "skipped", "denied", "misdirected", "logged", "unlogged", "repeated", "delivered", "rejected", "expired", "dropped", "unsent", "same", "newly_refused", "newly_admitted", "redirected", "challenge", "granted", "returned", "held_back", "stranded", "edge", "file", "v1", "abc", "0123abcd", "89abcdef",
		runtime.Version(), "go1", "*", "http://backend.example.com:3000", "http://backend.example.com:3001", "api.example.com", "400", "431", "502", "504",
		"2xx", "4xx", "5xx",
	}
	for _, l := range d.Policy().Limiters {
		fixed = append(fixed, l.Name)
		for _, w := range l.Windows {
			fixed = append(fixed, fmt.Sprintf("%ds by %s", w.Per/time.Second, w.Key))
		}
	}
	n := 0
	for name, f := range gather(t, m) {
		for _, one := range f.Metric {
			n++
			for _, l := range one.Label {
				if !slices.Contains(fixed, l.GetValue()) && name != "go_gc_duration_seconds" {
					t.Errorf("%s has %s=%q, which is neither of the policy nor of a fixed set", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
	if n > 150 {
		t.Errorf("there are %d series after hostile traffic", n)
	}
}

func TestAScrapeIsAnsweredInTheTextThatPrometheusReads(t *testing.T) {
	m, _ := everything(t)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%d, %v", w.Code, w.Header())
	}
}
