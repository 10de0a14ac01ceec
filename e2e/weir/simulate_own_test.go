package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownPolicy has a window by agent that refuses, and one by address that does not.
const ownPolicy = `limiters:
  - name: chat
    routes: [/v1/chat*]
    windows: [5 per hour by ip+agent, 1000 per day by ip]
`

// A server's own log, including its start-up and shutdown lines, replays as the
// server served it: the same requests are refused, though the log does not name
// their agents. Without the agents' hashes the result is unknown.
func TestAServersOwnLogReplaysAsServed(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(backend.Close)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(ownPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json"} {
		s := serveWeir(t, "--upstream", backend.URL, "--policy", policy, "--log-format", format)
		refused := 0
		for i := range 40 {
			r, err := http.NewRequest(http.MethodPost, s.url+"/v1/chat", strings.NewReader(fmt.Sprintf(`{"agent_id":"agent %d"}`, i%4)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode == http.StatusTooManyRequests {
				refused++
			}
		}
		s.end(t)
		log := s.stdout.String() + s.stderr.String()
		if refused != 20 || strings.Count(log, "agent") < 40 || strings.Contains(log, "agent 1") {
			t.Fatalf("%s: %d of 40 were refused; the log:\n%s", format, refused, log)
		}
		if got := replayOwn(t, policy, log); got.Policy.Refused != 20 || got.Policy.Unknown != 0 || got.Log.Malformed != 0 || got.Log.Requests != 40 {
			t.Errorf("%s: %+v", format, got)
		}
		log = strings.ReplaceAll(strings.ReplaceAll(log, " agent=", " other="), `"agent":`, `"other":`)
		if got := replayOwn(t, policy, log); got.Policy.Refused != 0 || got.Policy.Unknown != 40 {
			t.Errorf("%s, without the agents: %+v", format, got)
		}
	}
}

type ownReport struct {
	Log    struct{ Requests, Malformed int64 }
	Policy struct{ Refused, Unknown int64 }
}

// replayOwn replays a log from standard input.
func replayOwn(t *testing.T, policy, log string) (out ownReport) {
	t.Helper()
	var stdout, errs bytes.Buffer
	if code := run([]string{"simulate", "-", "--policy", policy, "--json"}, nil, strings.NewReader(log), &stdout, &errs); code != 0 {
		t.Fatalf("status %d: %s", code, errs.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
