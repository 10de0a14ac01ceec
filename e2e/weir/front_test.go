package weir

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A front is a server before a second one, whose sample backend it protects. The
// second has very high limits; the first accepts the second's sessions, and two of
// its tokens. So the contract is tested, with real answers, through the engine for
// upstreams.
type front struct {
	*server
	backend *server
	tokens  []string
}

func serveFront(t *testing.T, args ...string) front {
	t.Helper()
	backend := serveWeir(t, "--policy", plentyPolicy(t), "--access-log=off")
	var file []byte
	var tokens []string
	for _, workspace := range []string{"fresh", "demo"} {
		token := apiToken(t, backend.data, workspace)
		tokens = append(tokens, token)
		file = fmt.Appendf(file, "%s %x workspace=%s\n", strings.Split(token, "_")[1], sha256.Sum256([]byte(token)), workspace)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--policy", "contract", "--upstream", backend.url, "--jwt-key", filepath.Join(backend.data, "session.key"), "--token-file", path}, args...)
	return front{serveWeir(t, args...), backend, tokens}
}

// Contract, section 8, through the engine for upstreams: each limit exactly, with
// 32 connections.
func TestProxiedLimitersAdmitExactlyTheirLimits(t *testing.T) {
	s := serveFront(t, "--access-log=off")
	for _, row := range contractLimits(t, s.url, s.tokens[0]) {
		t.Run(fmt.Sprintf("%s %d", row.name, row.limit), func(t *testing.T) { wantRow(t, s.server, row) })
	}
	s.end(t)
}

// The answers that a caller receives at the limits, and the reports that the
// operator gets.
func TestProxiedAnswersFollowTheContract(t *testing.T) {
	s := serveFront(t, "--policy", leadsPerDay(t))
	lead := func(args ...string) reply {
		return curl(t, append([]string{s.url + "/api/v1/widget/leads", "-d", leadBody, "-H", "Content-Type: application/json"}, args...)...)
	}
	visitor := []string{"-H", "Authorization: Bearer " + session(t, s.url)}
	page := []string{"-H", "Origin: https://shop.example"}
	const day = 24 * 60 * 60

	t.Run("30 leads of a session are admitted", func(t *testing.T) {
		for n := range int64(30) {
			r := lead(append(visitor, page...)...)
			wantStanding(t, r, 30, day)
			if r.status != http.StatusCreated || r.integer(t, "X-RateLimit-Remaining") != 29-n {
				t.Fatalf("lead %d: %d %v %s", n+1, r.status, r.fields, r.body)
			}
			if got := r.one(t, "Access-Control-Allow-Origin"); got != "*" {
				t.Errorf("the answer is readable by pages of %q", got)
			}
		}
	})
	var refused reply
	t.Run("the next is a 429, in the caller's language", func(t *testing.T) {
		refused = lead(visitor...)
		wantRefusal(t, refused, 30, 24*time.Hour, widgetMessage)
		r := lead(append(visitor, "-H", "Accept-Language: de")...)
		if got := r.one(t, "Content-Language"); r.status != http.StatusTooManyRequests || got != "de" || strings.Contains(r.body, "Too many") {
			t.Errorf("%d in %q: %s", r.status, got, r.body)
		}
	})
	t.Run("a session that is none is a 401, on the address's account", func(t *testing.T) {
		r := lead("-H", "Authorization: Bearer nonsense")
		wantStanding(t, r, 30, day)
		if r.status != http.StatusUnauthorized || r.code(t) != "unauthenticated" || r.integer(t, "X-RateLimit-Remaining") != 29 {
			t.Errorf("%d %v %s", r.status, r.fields, r.body)
		}
	})
	t.Run("a preflight is answered, and spends no lead", func(t *testing.T) {
		r := curl(t, append([]string{"-X", "OPTIONS", s.url + "/api/v1/widget/leads", "-H", "Access-Control-Request-Method: POST", "-H", "Access-Control-Request-Headers: authorization"}, page...)...)
		wantStanding(t, r, 6000, day)
		if r.status != http.StatusNoContent || !strings.Contains(r.one(t, "Access-Control-Allow-Methods"), "POST") || r.body != "" {
			t.Errorf("%d %v %q", r.status, r.fields, r.body)
		}
	})
	t.Run("60 syncs of a token, a HEAD among them", func(t *testing.T) {
		bearer := []string{"-H", "Authorization: Bearer " + s.tokens[0]}
		for n := range int64(60) {
			args := append([]string{s.url + "/v1/wp/status"}, bearer...)
			if n == 30 {
				args = append(args, "--head")
			}
			r := curl(t, args...)
			wantStanding(t, r, 60, day)
			if r.status != http.StatusOK || r.integer(t, "X-RateLimit-Remaining") != 59-n || (r.body == "") != (n == 30) {
				t.Fatalf("sync %d: %d %v %q", n+1, r.status, r.fields, r.body)
			}
		}
		wantRefusal(t, curl(t, append([]string{s.url + "/v1/wp/status"}, bearer...)...), 60, 24*time.Hour, syncMessage)
		other := curl(t, s.url+"/v1/wp/status", "-H", "Authorization: Bearer "+s.tokens[1])
		if other.status != http.StatusOK || other.integer(t, "X-RateLimit-Remaining") != 59 {
			t.Errorf("another token: %d %v", other.status, other.fields)
		}
	})
	t.Run("the operator sees the refusals, and can reset them", func(t *testing.T) {
		metrics := operator(t, s.server).get(t, "/metrics")
		for _, want := range []string{
			`weir_decisions_total{limiter="widget-leads",outcome="admitted",window="86400s by session or ip"} 30`,
			`weir_decisions_total{limiter="widget-leads",outcome="refused",window="86400s by session or ip"} 2`,
			`weir_decisions_total{limiter="widget-leads",outcome="unauthenticated",window="86400s by session or ip"} 1`,
			`weir_decisions_total{limiter="wp-plugin",outcome="admitted",window="86400s by token or ip"} 61`,
		} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("%s is missing in:\n%s", want, strings.Join(regexp.MustCompile(`(?m)^weir_decisions.*`).FindAllString(metrics, -1), "\n"))
			}
		}
		id := refused.one(t, "X-Weir-Denial")
		if explained := s.operate(t, "denial", id); !strings.Contains(explained, "widget-leads") {
			t.Errorf("the refusal is explained as\n%s", explained)
		}
		s.operate(t, "key", "reset", "--denial", id, "--why", "a test")
		if r := lead(visitor...); r.status != http.StatusCreated || r.integer(t, "X-RateLimit-Remaining") != 29 {
			t.Errorf("after a reset: %d %v", r.status, r.fields)
		}
	})
	s.end(t)
	wantLogged(t, s.stderr.String(), map[string]int{
		`method=POST path=/api/v1/widget/leads status=201 .*limiter=widget-leads outcome=admitted`:        31,
		`method=POST path=/api/v1/widget/leads status=429 .*limiter=widget-leads outcome=refused`:         2,
		`method=POST path=/api/v1/widget/leads status=401 .*limiter=widget-leads outcome=unauthenticated`: 1,
		`method=OPTIONS path=/api/v1/widget/leads status=204 .*limiter=widget-other outcome=admitted`:     1,
		`method=HEAD path=/v1/wp/status status=200 bytes=0 .*limiter=wp-plugin outcome=admitted`:          1,
		`method=GET path=/v1/wp/status status=200 .*limiter=wp-plugin outcome=admitted`:                   60,
		`method=GET path=/v1/wp/status status=429 .*limiter=wp-plugin outcome=refused`:                    1,
	})
}

// wantLogged checks how many lines match each pattern.
func wantLogged(t *testing.T, log string, lines map[string]int) {
	t.Helper()
	for pattern, want := range lines {
		if n := len(regexp.MustCompile(pattern).FindAllString(log, -1)); n != want {
			t.Errorf("%d lines match %s, want %d in:\n%s", n, pattern, want, log)
		}
	}
}

// Every clause holds before an upstream, too, as seen from outside.
func TestProxiedServersKeepEveryClause(t *testing.T) {
	s := serveFront(t, "--access-log=off", patient)
	v, _, code := verifyAt(t, s.url, strings.Join(s.tokens, " "), "--quick")
	wantKept(t, v, code, append(slices.Clone(cannotBeSeen), notQuick...))
	s.end(t)
}

// An event stream is forwarded at once. Each event is read before the next is
// reported, so that no later data can have flushed it.
func TestProxiedEventsArriveAtOnce(t *testing.T) {
	s := serveFront(t)
	visitor := session(t, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, err := openFeed(ctx, http.DefaultClient, s.url, visitor, "")
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 5; n++ {
		if err := f.want(n, n); err != nil {
			t.Fatal(err)
		}
		if err := reportEvent(s.url, visitor, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.want(6, 6); err != nil {
		t.Error(err)
	}
	s.backend.end(t)
	if _, err := f.next(); err != io.EOF { // the end is forwarded too
		t.Errorf("the stream ends with %v", err)
	}
	s.end(t)
	wantLogged(t, s.stderr.String(), map[string]int{`method=GET path=/api/v1/widget/events status=200 .*outcome=admitted`: 1, `aborted=true`: 0})
}
