package edge

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

// A scrape reads the open server.
func TestTheMetricsDescribeTheOpenServer(t *testing.T) {
	c := testConfig(t, twoPolicy)
	contract, err := live.Parse(policies, live.Contract, "the contract", policyfile.ContractSource())
	if err != nil {
		t.Fatal(err)
	}
	c.Policy, c.Sites, c.Memory, c.MaxData = contract, nil, 256<<20, 1<<30
	s, h := opened(t, c)
	s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/api/v1/widget/typing", nil))
	w := httptest.NewRecorder()
	h.operators().Metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`weir_decisions_total{limiter="widget-typing",outcome="admitted",window="60s by ip"} 1`, `weir_decisions_total{limiter="wp-plugin",outcome="refused",window="60s by token or ip"} 0`,
		"weir_store_up 1", "weir_requests_in_flight 0", "weir_table_keys 1", "weir_table_bound_bytes 2.68435456e+08",
		`weir_policy_info{source="contract",version="` + s.policy.State().Version + `"} 1`, "weir_policy_last_reload_successful 1", "weir_decision_duration_seconds_count 1",
	} {
		if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			t.Errorf("%q is not among the metrics", line)
		}
	}
	if strings.Contains(w.Body.String(), "weir_candidate_info") || strings.Contains(w.Body.String(), "weir_shared_store") {
		t.Error("there are metrics of a candidate or a shared store, and there is none")
	}
}
