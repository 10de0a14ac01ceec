package telemetry_test

import (
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/redisstore"
)

// everything returns Metrics that export every family, and the Decider that they observe.
func everything(t *testing.T) (*telemetry.Metrics, *weir.Decider) {
	t.Helper()
	d := newDecider(t, "10 per minute by ip", weir.Options{})
	s := newStore(t)
	m := telemetry.New(telemetry.Options{Build: telemetry.Build{Version: "v1", Revision: "abc", Go: "go1"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Listener("edge", l).Close()
	loaded := time.Unix(1e9, 0)
	m.Bind(telemetry.Sources{
		Policy:    d.Policy,
		Candidate: func() (weir.Policy, bool) { return policy(t, "5 per minute by ip"), true },
		Health:    func() failover.Health { return failover.Health{} },
		Table:     s.Stats,
		Shared:    func() redisstore.Stats { return redisstore.Stats{Asked: 3, Remembered: 1} },
		InFlight:  func() int64 { return 2 },

		Events: func() map[string]int64 {
			return map[string]int64{"logged": 3, "unlogged": 0, "repeated": 1, "delivered": 2, "rejected": 0, "expired": 0, "dropped": 0, "unsent": 0}
		},
		Malformed: func() map[int]int64 { return map[int]int64{400: 7, 431: 0} },
		Unanswered: func() map[string]map[int]int64 {
			return map[string]map[int]int64{"": {502: 1, 504: 0}, "api.example.com": {502: 3, 504: 4}}
		},
		Upstreams: func() []telemetry.Upstream {
			return []telemetry.Upstream{
				{Address: "http://backend.example.com:3000", Well: true, Busy: 3, Kept: 2},
				{Address: "http://backend.example.com:3001", Failures: 5},
			}
		},
		Certificates: func() map[string]time.Time { return map[string]time.Time{"api.example.com": loaded.Add(time.Minute)} },
		Redirects:    func() map[string]int64 { return map[string]int64{"redirected": 3, "challenge": 1, "rejected": 0} },
		TokenFile:    func() telemetry.TokenFileState { return telemetry.TokenFileState{Tokens: 12} },
		PolicyState: func() telemetry.PolicyState {
			return telemetry.PolicyState{Version: "0123abcd", Source: "file", Loaded: loaded, Tried: loaded.Add(time.Hour)}
		},
		CandidateState: func() (telemetry.PolicyState, bool) {
			return telemetry.PolicyState{Version: "89abcdef", Source: "file", Loaded: loaded}, true
		},
	})
	decision := decide(t, d, "192.0.2.9")
	b := decision.Standings()[0]
	m.Observe(answer.Observation{Limiter: "api", Window: b.Window, Outcome: answer.Admitted, Decision: &decision})
	m.Shadow(weir.Shadowed{Limiter: b.Limiter, Decision: &decision})
	m.Held(b.Limiter, 1)
	m.Candidate(weir.Compared{Live: &decision, Candidate: &decision})
	m.StoreTake(time.Millisecond, nil)
	m.Served(telemetry.Request{Site: "*", Limiter: "api", Status: 200, Duration: time.Millisecond, Upstream: time.Microsecond})
	return m, d
}

func TestAFailedReloadIsToldApartFromNone(t *testing.T) {
	m, _ := everything(t)
	want(t, m, "weir_policy_last_reload_successful", 0)
	want(t, m, "weir_policy_last_reload_timestamp_seconds", 1e9+3600)
	want(t, m, "weir_policy_loaded_timestamp_seconds", 1e9)
	want(t, m, `weir_certificate_expires_timestamp_seconds{name="api.example.com"}`, 1e9+60)
	want(t, m, `weir_redirect_requests_total{answer="redirected"}`, 3)
	want(t, m, `weir_policy_info{source="file",version="0123abcd"}`, 1)
	want(t, m, "weir_token_file_tokens", 12)
	want(t, m, "weir_token_file_last_reload_successful", 0)
	want(t, m, "weir_candidate_last_reload_successful", 1)
	want(t, m, "weir_candidate_last_reload_timestamp_seconds", 0)
}

func TestTheUpstreamsAddressesAreToldOneByOne(t *testing.T) {
	m, _ := everything(t)
	const one, two = `{site="*",upstream="http://backend.example.com:3000"}`, `{site="*",upstream="http://backend.example.com:3001"}`
	for series, value := range map[string]float64{
		"weir_upstream_up" + one: 1, "weir_upstream_up" + two: 0,
		"weir_upstream_requests_in_flight" + one: 3, "weir_upstream_requests_in_flight" + two: 0,
		"weir_upstream_connections_kept" + one: 2, "weir_upstream_connections_kept" + two: 0,
		"weir_upstream_failures_total" + one: 0, "weir_upstream_failures_total" + two: 5,
		`weir_upstream_unanswered_total{site="*",status="502"}`: 1, `weir_upstream_unanswered_total{site="*",status="504"}`: 0,
		`weir_upstream_unanswered_total{site="api.example.com",status="502"}`: 3, `weir_upstream_unanswered_total{site="api.example.com",status="504"}`: 4,
		`weir_malformed_requests_total{status="400"}`: 7, `weir_malformed_requests_total{status="431"}`: 0,
	} {
		want(t, m, series, value)
	}
	for name := range gather(t, telemetry.New(telemetry.Options{})) {
		if strings.Contains(name, "upstream") || strings.Contains(name, "malformed") {
			t.Errorf("%s is exported without an upstream", name)
		}
	}
}

// A Decider reports shadows, candidates and exempt callers, each under a limiter of the policies.
func TestADeciderTellsOfWhatItTriesOut(t *testing.T) {
	m := telemetry.New(telemetry.Options{})
	p := policy(t, "2 per minute by ip")
	tried := policy(t, "1 per minute by ip").Limiters[0]
	tried.Name, tried.Mode = "tried", weir.Shadow
	tried.Routes[0].Path = "/tried/"
	p.Limiters[0].Exempt = []weir.Who{{Network: netip.MustParsePrefix("198.51.100.7/32")}}
	p.Limiters = append(p.Limiters, tried)
	d := newDeciderOf(t, p, nil, weir.Options{OnShadow: m.Shadow, OnCandidate: m.Candidate})
	candidate := policy(t, "4 per minute by ip")
	candidate.Limiters[0].Name = "another"
	if err := d.SetCandidate(&candidate, newStore(t)); err != nil {
		t.Fatal(err)
	}
	m.Bind(telemetry.Sources{Policy: d.Policy, Candidate: func() (weir.Policy, bool) { return candidate, true }})
	// there before the first
	want(t, m, `weir_candidate_decisions_total{limiter="another",outcome="newly_admitted"}`, 0)
	h := limited(t, d, m)
	for range 3 { // of httptest's client, 192.0.2.1
		ask(h, "GET", "/tried/it")
	}
	want(t, m, `weir_shadow_decisions_total{limiter="tried",outcome="would_admit"}`, 1)
	want(t, m, `weir_shadow_decisions_total{limiter="tried",outcome="would_refuse"}`, 2)
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="same"}`, 2)
	want(t, m, `weir_candidate_decisions_total{limiter="api",outcome="newly_admitted"}`, 1)
	want(t, m, `weir_decisions_total{limiter="api",outcome="refused",window="60s by ip"}`, 1)
	want(t, m, `weir_exempt_decisions_total{limiter="api",window="60s by ip"}`, 0)
	absent(t, m, `weir_decisions_total{limiter="tried",outcome="refused",window="60s by ip"}`)
	r := httptest.NewRequest("GET", "/else", nil)
	r.RemoteAddr = "198.51.100.7:1"
	for range 5 {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	want(t, m, `weir_exempt_decisions_total{limiter="api",window="60s by ip"}`, 5)
	want(t, m, `weir_decisions_total{limiter="api",outcome="refused",window="60s by ip"}`, 1)
	// the last of the two that were admitted
	want(t, m, `weir_near_limit_total{limiter="api",window="60s by ip"}`, 1)
}
