package promtool

import (
	"net"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
	"github.com/weirlimit/weir/redisstore"
)

// everything returns Metrics that export every family.
func everything(t *testing.T) *telemetry.Metrics {
	t.Helper()
	s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	d, err := weir.New(policy(t, "10 per minute by ip"), s, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
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

		Events:     func() map[string]int64 { return map[string]int64{"delivered": 2, "dropped": 0} },
		Malformed:  func() map[int]int64 { return map[int]int64{400: 7, 431: 0} },
		Unanswered: func() map[string]map[int]int64 { return map[string]map[int]int64{"": {502: 1, 504: 0}} },
		Upstreams: func() []telemetry.Upstream {
			return []telemetry.Upstream{
				{Address: "http://backend.example.com:3000", Well: true, Busy: 3, Kept: 2},
				{Address: "http://backend.example.com:3001", Kept: -1, Failures: 5},
			}
		},
		Certificates: func() map[string]time.Time { return map[string]time.Time{"api.example.com": loaded} },
		Redirects:    func() map[string]int64 { return map[string]int64{"redirected": 3, "challenge": 1, "rejected": 0} },
		TokenFile:    func() telemetry.TokenFileState { return telemetry.TokenFileState{Tokens: 12} },
		PolicyState: func() telemetry.PolicyState {
			return telemetry.PolicyState{Version: "0123abcd", Source: "file", Loaded: loaded, Tried: loaded.Add(time.Hour)}
		},
		CandidateState: func() (telemetry.PolicyState, bool) {
			return telemetry.PolicyState{Version: "89abcdef", Source: "file", Loaded: loaded}, true
		},
	})
	decision, err := d.Decide(t.Context(), weir.Request{Method: "GET", Path: "/", Keys: address("192.0.2.9")})
	if err != nil {
		t.Fatal(err)
	}
	b := decision.Standings()[0]
	m.Observe(answer.Observation{Limiter: "api", Window: b.Window, Outcome: answer.Admitted, Decision: &decision})
	m.Held(b.Limiter, 1)
	m.Shadow(weir.Shadowed{Limiter: b.Limiter, Decision: &decision})
	m.Candidate(weir.Compared{Live: &decision, Candidate: &decision})
	m.StoreTake(time.Millisecond, nil)
	m.Served(telemetry.Request{Site: "api.example.com", Limiter: "api", Status: 200, Duration: 2 * time.Millisecond, Upstream: time.Millisecond})
	return m
}

func policy(t *testing.T, window string) weir.Policy {
	t.Helper()
	f, err := policyfile.Parse("policy.yaml", []byte("limiters: [{name: api, routes: [/*], windows: ["+window+"]}]"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policy
}

// An address is a caller that has no other key source.
type address string

func (a address) AppendKey(dst []byte, source string) ([]byte, bool) {
	return append(dst, a...), source == "ip"
}

func TestPromtoolReadsEveryMetric(t *testing.T) {
	w := httptest.NewRecorder()
	everything(t).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\|").FindAllStringSubmatch(read(t, "../../docs/operate.md"), -1) {
		if !strings.Contains(w.Body.String(), "\n# TYPE "+row[1]+" ") {
			t.Errorf("%s is documented, and promtool does not check it", row[1])
		}
	}
	promtool(t, w.Body.String(), "check", "metrics")
}
