package weir

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/verify"
)

// shortContract has the contract's limiters and routes. Its windows are short enough to be waited
// for, and long enough for a busy machine to spend all of them in one.
const shortContract = `limiters:
  - name: widget-init
    routes: [POST /api/v1/widget/init]
    windows: [40 per 15 seconds by ip+agent, 30000 per hour by ip]
  - name: widget-session
    routes: [POST /api/v1/widget/messages*, /api/v1/widget/events*, /api/v1/widget/conversations*]
    windows: [30 per 15 seconds by session or ip]
  - name: widget-leads
    routes: [POST /api/v1/widget/leads]
    windows: [10 per 15 seconds by session or ip]
  - name: wp-plugin
    routes: [/v1/wp/*]
    windows: [20 per 15 seconds by token or ip]
    message: bulk-sync
  - name: widget-typing
    routes: [POST /api/v1/widget/typing]
    windows: [30 per 15 seconds by ip]
  - name: widget-satisfaction
    routes: [POST /api/v1/widget/satisfaction]
    windows: [12 per 15 seconds by ip]
  - name: widget-coupon
    routes: [POST /api/v1/widget/coupon/apply]
    windows: [15 per 15 seconds by ip]
  - name: widget-other
    routes: [/api/v1/widget/*]
    windows: [60 per 15 seconds by ip]
`

// A verification is the output of weir verify --json.
type verification struct {
	verify.Report
	Done  bool
	Error string
}

// verifyAt runs the real weir verify with credentials.
func verifyAt(t *testing.T, url, tokens string, args ...string) (v verification, stderr string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"verify", url, "--json"}, args...)...)
	cmd.Env = append(cleanEnv(), "WEIR_TOKEN="+tokens)
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if code, err = p.wait(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &v); err != nil {
		t.Fatalf("%v, status %d: it printed\n%s\n%s", err, code, p.stdout, p.stderr)
	}
	return v, p.stderr.String(), code
}

// An exception is a clause that cannot be tested, for some limiters, and part of
// the reason.
type exception struct{ clause, limiters, why string }

// wantKept checks that every clause is kept for every limiter, except for the
// exceptions, which must be untested.
func wantKept(t *testing.T, v verification, code int, exceptions []exception) {
	t.Helper()
	if code != cli.Done || !v.Done || v.Error != "" {
		t.Errorf("status %d, done %v: %s", code, v.Done, v.Error)
	}
	seen := map[string]bool{}
	for _, x := range v.Results {
		seen[x.Clause] = true
		i := slices.IndexFunc(exceptions, func(e exception) bool {
			return e.clause == x.Clause && slices.Contains(strings.Fields(e.limiters), x.Limiter)
		})
		switch {
		case x.Verdict == verify.Broken:
			t.Errorf("%s, %s: broken: %s", x.Clause, x.Limiter, x.Detail)
			if x.Exchange != nil {
				t.Logf("%s\n%s\nat %s", x.Exchange.Request, x.Exchange.Response, x.Exchange.At)
			}
		case x.Verdict == verify.Untested && i < 0:
			t.Errorf("%s, %s: untested: %s", x.Clause, x.Limiter, x.Detail)
		case x.Verdict == verify.Untested && !strings.Contains(x.Detail, exceptions[i].why):
			t.Errorf("%s, %s: untested, since %s; want since %s", x.Clause, x.Limiter, x.Detail, exceptions[i].why)
		case x.Verdict == verify.Kept && i >= 0:
			t.Errorf("%s, %s: kept, but expected to be untestable", x.Clause, x.Limiter)
		}
	}
	for _, c := range verify.Clauses {
		if !seen[c.ID] {
			t.Errorf("%s: there is no verdict", c.ID)
		}
	}
	if v.Sent == 0 || v.Sent > v.Planned {
		t.Errorf("%d requests were sent, %d planned", v.Sent, v.Planned)
	}
}

// twoTokens mints two API tokens in a data directory.
func twoTokens(t *testing.T, data string) string {
	t.Helper()
	return strings.TrimSpace(mintToken(t, data)) + " " + strings.TrimSpace(mintToken(t, data))
}

// Our server keeps every clause with each store, and behind each proxy.
func TestWeirKeepsEveryClause(t *testing.T) {
	t.Parallel() // it waits for windows
	policy := policyFile(t, shortContract)
	serving := []string{"--policy", policy, "--access-log=off", patient}
	verifying := []string{"--policy", policy}
	t.Run("on the embedded store", func(t *testing.T) {
		t.Parallel()
		s := serveWeir(t, serving...)
		v, _, code := verifyAt(t, s.url, twoTokens(t, s.data), verifying...)
		wantKept(t, v, code, cannotBeSeen)
		s.end(t)
	})
	t.Run("with valid bodies", func(t *testing.T) {
		t.Parallel()
		s := serveWeir(t, serving...)
		v, _, code := verifyAt(t, s.url, twoTokens(t, s.data), append(verifying, "--real")...)
		wantKept(t, v, code, cannotBeSeen)
		s.end(t)
	})
	t.Run("on Redis", func(t *testing.T) {
		t.Parallel()
		s := serveWeir(t, append(serving, "--store", redistest.Start(t).URL())...)
		v, _, code := verifyAt(t, s.url, twoTokens(t, s.data), verifying...)
		wantKept(t, v, code, cannotBeSeen)
		s.end(t)
	})
	t.Run("two of them on Redis, behind nginx", func(t *testing.T) {
		t.Parallel()
		store, data := redistest.Start(t), t.TempDir()
		args := append(serving, "--store", store.URL(), "--trusted-proxies", theProxy)
		one, two := serveIn(t, data, args...), serveIn(t, data, args...)
		addr := nginxtest.Start(t, fmt.Sprintf(`
upstream nodes { server %s; server %s; }
server { listen LISTEN; %s }`, strings.TrimPrefix(one.url, "http://"), strings.TrimPrefix(two.url, "http://"), passingOn("http://nodes"))).Addr
		v, _, code := verifyAt(t, "http://"+addr, twoTokens(t, data), verifying...)
		wantKept(t, v, code, cannotBeSeen)
		one.end(t)
		two.end(t)
	})
	t.Run("behind nginx", func(t *testing.T) {
		t.Parallel()
		s := serveWeir(t, append(serving, "--trusted-proxies", theProxy)...)
		addr := nginxtest.Start(t, "server { listen LISTEN; "+passingOn(s.url)+" }").Addr
		v, _, code := verifyAt(t, "http://"+addr, twoTokens(t, s.data), verifying...)
		wantKept(t, v, code, cannotBeSeen)
		s.end(t)
	})
	t.Run("over TLS, by HTTP/2", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		if err := writeCertificate(cert, key); err != nil {
			t.Fatal(err)
		}
		s := serveWeir(t, "--policy", policy, "--tls-cert", cert, "--tls-key", key)
		v, _, code := verifyAt(t, s.url, twoTokens(t, s.data), append(verifying, "--ca", cert)...)
		wantKept(t, v, code, cannotBeSeen)
		s.end(t)
		if log := s.stderr.String(); !strings.Contains(log, "HTTP/2.0") || strings.Contains(log, "HTTP/1.1") {
			t.Errorf("not all was HTTP/2:\n%.2000s", log)
		}
	})
}

const byAddress = "widget-typing widget-satisfaction widget-coupon widget-other"

// cannotBeSeen are the clauses of the contract's limiters that a single caller at
// one address cannot test.
var cannotBeSeen = []exception{
	{"separate", byAddress, "it counts by address, and the verifier has one address"},
	{"fields-5xx", allLimiters, "no server error was answered"},
	{"value", allLimiters, "it counts by no field, cookie, parameter or host"},
	{"penalty", allLimiters, "it has no penalty"},
	{"in-flight", allLimiters, "it does not limit the requests under way"},
	{"outcome", allLimiters, "their cost is known before they are answered"},
	{"unverified", "widget-init " + byAddress, "it counts by no credential"},
	{"fields-preflight", "widget-other", "preflights are counted by this limiter"},
	{"preflight-free", "widget-other", "preflights are counted by this limiter"},
	{"exposed", "wp-plugin", "answers allow no other origin"}, // widget only (D22)
}

const allLimiters = "widget-init widget-session widget-leads wp-plugin " + byAddress

// notQuick are the clauses that need a wait.
var notQuick = []exception{{"restored", allLimiters, "(quick)"}, {"refused-free", allLimiters, "(quick)"}, {"fixed-window", allLimiters, "(quick)"}, {"retry-after", allLimiters, "(quick)"}}

// theProxy is an address that only the proxy uses. A client at a trusted address
// may set its own address (D12).
const theProxy = "127.0.0.9"

// passingOn is an nginx location that forwards all requests with the client's
// address.
func passingOn(to string) string {
	return fmt.Sprintf(`location / {
	proxy_pass %s;
	proxy_bind %s;
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	proxy_set_header Host $http_host;
	proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
}`, to, theProxy)
}

// Without waits the verification takes seconds. It reports what it left out.
func TestAQuickVerificationReportsWhatItLeavesOut(t *testing.T) {
	t.Parallel() // it has a server of its own
	s := serveWeir(t, "--access-log=off", patient)
	v, stderr, code := verifyAt(t, s.url, twoTokens(t, s.data), "--quick")
	wantKept(t, v, code, append(slices.Clone(cannotBeSeen), notQuick...))
	if !strings.Contains(stderr, "and nothing is waited for") {
		t.Errorf("it did not report that it is quick:\n%s", stderr)
	}
	s.end(t)
}

// nextWindow matches the line that reports a wait.
var nextWindow = regexp.MustCompile(`, next window in `)

// If a verification is interrupted, it reports its results so far.
func TestAnInterruptedVerificationReportsItsResults(t *testing.T) {
	s := serveWeir(t, "--access-log=off", patient)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "verify", s.url, "--limiter", "widget-leads", "--json")
	cmd.Env = cleanEnv()
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if _, err := p.stderr.await(nextWindow); err != nil {
		t.Fatal(err)
	}
	code, err := p.signal(os.Interrupt)
	if err != nil || code != cli.Failed {
		t.Fatalf("status %d, %v:\n%s", code, err, p.stderr)
	}
	var v verification
	if err := json.Unmarshal([]byte(p.stdout.String()), &v); err != nil || !strings.HasPrefix(v.Error, "interrupted after ") || len(v.Results) == 0 || v.Done {
		t.Errorf("%v: %+v", err, v)
	}
	s.end(t)
}
