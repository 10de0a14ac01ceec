package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/cli"
)

// onlyThings is a policy of one limiter.
const onlyThings = "limiters:\n  - name: things\n    routes: [/things/*]\n    windows: [5 per 1 second by ip]\n"

// verifyHere runs weir verify in this process.
func verifyHere(t *testing.T, url string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append([]string{"verify", url, "--policy", policyFile(t, onlyThings)}, args...), nil, strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), code
}

// The server's text is shown with its control characters escaped.
func TestAVerifiedServerCannotControlTheTerminal(t *testing.T) {
	const evil = "\x1b]0;owned\a\x1b[2J\u202e\r\v"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Content-Type", "Content-Language"} {
			w.Header()[name] = []string{"5" + evil}
		}
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"error":{"code":"%s","message":"%s"}}`, evil, evil)
	}))
	defer server.Close()
	for _, args := range [][]string{nil, {"--json"}} {
		stdout, stderr, code := verifyHere(t, server.URL, append(args, "--quick")...)
		if code != cli.Failed {
			t.Errorf("%v: status %d", args, code)
		}
		for _, output := range []string{stdout, stderr} {
			if at := strings.IndexAny(output, "\x1b\a\u202e\r\v"); at >= 0 {
				t.Errorf("%v: a terminal would act on %q", args, output[max(0, at-40):min(len(output), at+40)])
			}
		}
		if !strings.Contains(stdout, "owned") {
			t.Errorf("%v: the server's text is not shown:\n%s", args, stdout)
		}
	}
}

// The verifier sends at most the planned requests, follows no redirect to another
// host, and adds the given fields to each request.
func TestOnlyPlannedRequestsAreSent(t *testing.T) {
	var elsewhere, asked, without atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("X-Api-Version") != "2" {
			without.Add(1)
		}
		// Redirects without end, and without rate limit fields.
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	stdout, stderr, _ := verifyHere(t, server.URL, "--quick", "--json", "--header", "X-Api-Version: 2", "--header", "X-Key: hidden-from-all")
	var v struct{ Planned, Sent int64 }
	if err := json.Unmarshal([]byte(stdout), &v); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n == 0 || n != v.Sent || n > v.Planned || !strings.Contains(stderr, fmt.Sprintf("at most %d requests", v.Planned)) {
		t.Errorf("%d requests came, %d were sent, %d planned; it printed\n%s", n, v.Sent, v.Planned, stderr)
	}
	if elsewhere.Load() != 0 || without.Load() != 0 {
		t.Errorf("%d requests went elsewhere, %d lack the field", elsewhere.Load(), without.Load())
	}
	if strings.Contains(stdout+stderr, "hidden-from-all") {
		t.Error("a field that was given is shown")
	}
}

// policyFile writes a policy, and returns its path.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
