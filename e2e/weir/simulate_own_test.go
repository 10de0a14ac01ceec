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

// The log of a server that forwards paths as sent has the path that was counted, so that it replays
// as served, without a flag and with --paths as-sent. The lines of an outage do not disturb it.
func TestAServersOwnLogOfPathsAsSentReplaysAsServed(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(`limiters: [{name: packages, routes: ["/p/{scope}", "/p/{scope}/*"], windows: ["3 per hour by path:scope"], chosen: yes}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json"} {
		s := serveWeir(t, "--upstream", "http://127.0.0.1:1", "--policy", policy, "--log-format", format, "--paths", "as-sent")
		got := map[int]int{}
		for _, path := range []string{
			// 3 are refused
			"/p/@acme%2Fa", "/p/@acme%2fb", "/p/%40acme/c", "/p/@ACME%2Fd", "/p/%2540acme/x", "/p/@acme//e",
			// 1 is
			"/p/caf\xc3\xa9", "/p/caf%C3%A9%2Fx", "/p/caf%E9", "/P/CAF\xc3\x89",
		} {
			r, err := http.NewRequest(http.MethodGet, s.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Opaque = path
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			got[answer.StatusCode]++
		}
		s.end(t)
		log := s.stdout.String() + s.stderr.String()
		if fmt.Sprint(got) != "map[429:4 502:6]" {
			t.Fatalf("%s: answered %v; the log:\n%s", format, got, log)
		}
		for _, flag := range []string{"strict", "as-sent"} {
			if got := replayOwn(t, policy, log, "--strict", "--paths", flag); got.Policy.Refused != 4 || got.Log.Malformed != 0 || got.Log.Requests != 10 {
				t.Errorf("%s, --paths %s: %+v\n%s", format, flag, got, log)
			}
		}
	}
}

// The log does not name the tokens of two customers behind one address. --key token=caller tells
// them apart, as docs/simulate.md says, and counts what was answered 401 as one more token.
func TestAServersOwnLogTellsCallersApartByTheirHashes(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(backend.Close)
	policy := policyFile(t, `{limiters: [{name: api, routes: [/*], windows: [2 per hour by token], requires: token}]}`)
	for _, format := range []string{"text", "json"} {
		s := serveKeys(t, backend.URL, "--policy", policy, "--log-format", format)
		served := map[int]int{}
		for _, key := range []string{customerKey, customerKey + "-gold", "unknown"} {
			for range 3 {
				served[curl(t, s.url+"/a", "-H", "Authorization: Bearer "+key).status]++
			}
		}
		s.end(t)
		log := s.stdout.String() + s.stderr.String()
		if fmt.Sprint(served) != "map[200:4 401:2 429:3]" || strings.Contains(log, customerKey) {
			t.Fatalf("%s: answered %v; the log:\n%s", format, served, log)
		}
		if got := replayOwn(t, policy, log); got.Policy.Refused != 7 || got.Log.Requests != 9 {
			t.Errorf("%s, counted by the address: %+v", format, got)
		}
		if got := replayOwn(t, policy, log, "--key", "token=caller"); got.Policy.Refused != 3 || got.Log.Requests != 9 {
			t.Errorf("%s, counted by caller: %+v", format, got)
		}
	}
}

type ownReport struct {
	Log    struct{ Requests, Malformed int64 }
	Policy struct{ Refused, Unknown int64 }
}

// replayOwn replays a log from standard input.
func replayOwn(t *testing.T, policy, log string, flags ...string) (out ownReport) {
	t.Helper()
	var stdout, errs bytes.Buffer
	if code := run(append([]string{"simulate", "-", "--policy", policy, "--json"}, flags...), nil, strings.NewReader(log), &stdout, &errs); code != 0 {
		t.Fatalf("status %d: %s", code, errs.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
