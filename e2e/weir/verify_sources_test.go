package weir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/verify"
)

// everySource has a limiter for each kind of value that a request can have.
const everySource = `limiters:
  - {name: cookie, routes: [/cookie/*], windows: ["12 per 5 seconds by cookie:sid"], chosen: yes}
  - {name: query, routes: [/query/*], windows: ["12 per 5 seconds by ip+query:tenant"]}
  - {name: host, routes: [/host/*], windows: ["12 per 5 seconds by host"], chosen: yes}
  - {name: path, routes: ["/t/{tenant}/items*"], windows: ["12 per 5 seconds by path:tenant"], chosen: yes}
  - {name: claim, routes: [/claim/*], windows: ["12 per 5 seconds by claim:org.id or ip"]}
  - {name: key, routes: [/key/*], windows: ["12 per 5 seconds by token or ip"], requires: token}
`

const sessionSecret = "0123456789abcdef0123456789abcdef"

// sessionOf is a session of one organisation.
func sessionOf(t *testing.T, id, org string) string {
	t.Helper()
	claims := jwt.MapClaims{"sid": id, "org": map[string]any{"id": org}, "exp": time.Now().Add(time.Hour).Unix()}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(sessionSecret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// serveEverySource serves by everySource. It reads API keys from a field and from Basic.
func serveEverySource(t *testing.T, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	secret, keys := filepath.Join(dir, "session.key"), filepath.Join(dir, "keys")
	lines := lineOfKey(t, customerKey, "--id", "acme") + lineOfKey(t, customerKey+"-two", "--id", "two")
	for path, content := range map[string]string{secret: sessionSecret, keys: lines} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return serveWeir(t, append([]string{"--upstream", accepting(t), "--policy", policyFile(t, everySource), "--jwt-key", secret, "--token-file", keys,
		"--token-from", "header:X-Api-Key,basic", patient}, args...)...)
}

// Our server keeps every clause, whatever a limiter counts by, and wherever the API key is.
func TestWeirKeepsEveryClauseForEachKeySource(t *testing.T) {
	s := serveEverySource(t)
	v, _, code := verifyAt(t, s.url, customerKey+" "+customerKey+"-two", "--policy", policyFile(t, everySource), "--token-from", "header:X-Api-Key,basic",
		"--session", sessionOf(t, "one", "acme"), "--session", sessionOf(t, "two", "acme"), "--session", sessionOf(t, "three", "globex"))
	const all, valued = "cookie query host path claim key", "cookie query host path"
	wantKept(t, v, code, []exception{
		{"penalty", all, "it has no penalty"},
		{"in-flight", all, "it does not limit the requests under way"},
		{"outcome", all, "it counts all requests, and their cost is known before they are answered"},
		{"fields-5xx", all, "no server error was answered"},
		{"fields-preflight", all, "the policy counts preflights here like any other request"},
		{"preflight-free", all, "the policy counts preflights here like any other request"},
		{"exposed", all, "answers allow no other origin"},
		{"unverified", valued, "it counts by no credential"},
		{"value", "claim key", "it counts by no field, cookie, parameter or host"},
	})
	s.end(t)
	for _, x := range v.Results {
		if x.Verdict == verify.Kept && strings.Contains(x.Detail, customerKey) {
			t.Errorf("%s shows a key: %s", x.Clause, x.Detail)
		}
	}
}

const penalties = `limiters:
  - {name: login, routes: [/login/*], windows: ["6 per 3 seconds by ip"], penalty: {after: 4 refusals per minute, refuse_for: 5 seconds}}
  - {name: rest, routes: [/*], windows: ["20 per 3 seconds by ip"]}
`

// Our server keeps its penalties, on both kinds of store. Without waits they are not begun, and the
// report says so.
func TestWeirKeepsItsPenalties(t *testing.T) {
	policy := policyFile(t, penalties)
	for name, store := range map[string][]string{"memory": nil, "redis": {"--store", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeir(t, append(store, "--upstream", accepting(t), "--policy", policy, patient)...)
			// A penalty that is not begun disturbs nothing.
			for _, quick := range []bool{true, false} {
				v, _, code := verifyAt(t, s.url, "", "--policy", policy, fmt.Sprintf("--quick=%v", quick))
				if code != cli.Done {
					t.Errorf("status %d: %s", code, v.Error)
				}
				wantPenalty(t, v, quick)
			}
			s.end(t)
		})
	}
}

func wantPenalty(t *testing.T, v verification, quick bool) {
	t.Helper()
	for _, x := range v.Results {
		switch {
		case x.Verdict == verify.Broken:
			t.Errorf("%s of %s is broken: %s", x.Clause, x.Limiter, x.Detail)
		case x.Limiter == "login" && quick && !strings.Contains(x.Detail, "none is waited for (quick)"):
			t.Errorf("%s is %s: %s", x.Clause, x.Verdict, x.Detail)
		case x.Limiter == "login" && x.Clause == "penalty" && !quick && x.Verdict != verify.Kept:
			t.Errorf("the penalty is %s: %s", x.Verdict, x.Detail)
		}
	}
}
