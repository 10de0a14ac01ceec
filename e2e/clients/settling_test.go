package clients

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// Four calls at a time reserve nearly the whole day. A hundred are served before it ends, because
// each gives most of its charge back, and no more than four are ever in flight.
func TestTheClientForJavaScriptUsesWhatARealServerGivesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	var inFlight, most atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := inFlight.Add(1)
		defer inFlight.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"usage":{"total_tokens":100}}`)
	}))
	t.Cleanup(backend.Close)
	const limiter = `{"name": "chat", "routes": ["POST /v1/chat"], "windows": ["18000 per day by ip"],
  "cost": {"reserve": 4000, "from": "json:usage.total_tokens"}, "in_flight": "4 by ip"}`
	a := new(api)
	a.start(t, "limiters: ["+limiter+"]\n", "--upstream", backend.URL)
	cmd := exec.CommandContext(t.Context(), "node", "testdata/settling.mjs", a.url, "100", "20", "["+limiter+"]")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	if want := fmt.Sprintln(`{"served":100,"refused":0}`); string(out) != want {
		t.Errorf("the client printed %s, want %s", out, want)
	}
	if most.Load() > 4 {
		t.Errorf("%d calls were in flight, more than 4", most.Load())
	}
}
