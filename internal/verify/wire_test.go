package verify

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Over TLS the verifier speaks HTTP/2, which has lower-case field names.
func TestOverTLSItSpeaksHTTP2(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	var second atomic.Int64
	server := httptest.NewUnstartedServer(nil)
	limit := limited(t, onePolicy("20 per minute by ip"), http.HandlerFunc(fine))
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			second.Add(1)
		}
		limit.ServeHTTP(w, r)
	})
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	report := verified(t, Options{URL: u, Policy: policyOf(t, onePolicy("20 per minute by ip")), Quick: true, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig})
	if report.Broken() {
		t.Errorf("broken:\n%s", table(report))
	}
	if second.Load() != int64(report.Sent) {
		t.Errorf("%d of %d requests came over HTTP/2", second.Load(), report.Sent)
	}
}

func TestAnExchangeShowsNoCredential(t *testing.T) {
	const session, key = "a-session-that-is-no-jwt-0123", "the-operators-own-key"
	s := new(secrets)
	s.add(session)
	a := &answer{
		request: request{method: "POST", path: "/things", fields: map[string]string{"Authorization": "Bearer " + session, "X-Agent-Id": "demo"}},
		status:  201, proto: "HTTP/1.1",
		header: http.Header{"Set-Cookie": {"id=" + key}, "X-Ratelimit-Limit": {"5"}},
		body:   []byte(`{"token":"eyJhbGciOiJIUzI1NiJ9.eyJzaWQiOiJhIn0.c2ln","again":"` + session + `","api":"wpt_abcdefgh_0123456789"}`),
	}
	shown := s.shown(a, http.Header{"X-Key": {key}}, "/base")
	all := shown.Request + shown.Response
	for _, secret := range []string{session, key, "eyJ", "wpt_"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is shown:\n%s", secret, all)
		}
	}
	for _, wanted := range []string{"POST /base/things\n", "X-Agent-Id: demo", "X-RateLimit-Limit: 5", "HTTP/1.1 201 Created"} {
		if !strings.Contains(all, wanted) {
			t.Errorf("%q is not shown:\n%s", wanted, all)
		}
	}
}

// No report contains a credential or a part of one, even if the server repeats it
// in a field, a body or an error.
func TestNoReportContainsACredential(t *testing.T) {
	const token, basic, cookie = "opaque-secret-token-12345678", "dXNlcjpwYXNzd29yZDEyMw==", "kX81zz"
	reset := strconv.FormatInt(time.Now().Unix()+30, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		w.Header().Set("Retry-After", authorization)
		w.Header().Set("Content-Type", strings.TrimPrefix(authorization, "Bearer "))
		w.Header().Set("X-You-Sent", basic+" "+cookie)
		w.Header().Set("X-Fresh-Session", "a-fresh-one-of-yours")
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Set("X-RateLimit-Reset", reset)
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"data":{"token":"opaque-fresh-one-of-init"},"error":%q}`, authorization+" is not known, nor "+cookie)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	report := verified(t, Options{URL: u, Policy: policyOf(t, onePolicy("20 per minute by token or ip")), Quick: true, Tokens: []string{token}, SessionAt: "data.token",
		Header: http.Header{"Proxy-Authorization": {"Basic " + basic}, "Cookie": {"id=" + cookie + "; other=1"}}})
	if !report.Broken() {
		t.Fatal("nothing is shown")
	}
	for _, secret := range []string{token[:19], basic, cookie, "fresh-one"} {
		if strings.Contains(table(report), secret) {
			t.Errorf("%q is shown:\n%s", secret, table(report))
		}
	}
}

func TestALimiterBeyondTheBudgetIsSkippedWithTheNeededBudget(t *testing.T) {
	const policy = "limiters:\n  - {name: small, routes: [/small], windows: [10 per minute by ip]}\n  - {name: large, routes: [/large], windows: [30000 per hour by ip]}\n"
	o := newNetwork().options(policyOf(t, policy))
	o.Budget = 500
	plan, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Requests > 500 || plan.Requests == 0 {
		t.Errorf("%d requests are planned with a budget of 500", plan.Requests)
	}
	if len(plan.Skipped) != len(Clauses) || plan.Skipped[0].Limiter != "large" || !strings.Contains(plan.Skipped[0].Detail, "a budget of 30") {
		t.Errorf("skipped: %+v", plan.Skipped)
	}
}

// The budget that a plan suggests for a limiter is sufficient.
func TestTheSuggestedBudgetIsSufficient(t *testing.T) {
	policy := "limiters:\n"
	for i, limit := range []int{1000, 10, 6000, 300, 30, 120} {
		policy += fmt.Sprintf("  - {name: l%d, routes: [/l%d], windows: [%d per minute by ip]}\n", i, i, limit)
	}
	o := newNetwork().options(policyOf(t, policy))
	o.Budget, o.Quick = 500, true
	plan, err := NewPlan(o)
	if err != nil {
		t.Fatal(err)
	}
	if last := plan.Lines[len(plan.Lines)-1]; strings.Contains(last, "0s") {
		t.Errorf("there are no waits, and the plan has %q", last)
	}
	for _, skipped := range plan.Skipped {
		if skipped.Clause != Clauses[0].ID {
			continue
		}
		_, text, _ := strings.Cut(skipped.Detail, "a budget of ")
		if _, err := fmt.Sscanf(text, "%d is enough", &o.Budget); err != nil {
			t.Fatalf("%q: %v", skipped.Detail, err)
		}
		for _, less := range []int{1, 0} {
			o.Budget -= less
			again, err := NewPlan(o)
			if err != nil {
				t.Fatal(err)
			}
			if out := slices.ContainsFunc(again.Skipped, func(r Result) bool { return r.Limiter == skipped.Limiter }); out != (less == 1) {
				t.Errorf("%s: %q, and with %d it is left out: %v", skipped.Limiter, skipped.Detail, o.Budget, out)
			}
			o.Budget += less
		}
	}
}

// If everything is refused, the report gives that as the reason.
func TestASpentBudgetIsTheReasonIfNothingIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := onePolicy("20 per minute by ip")
		n := newNetwork()
		defer n.serving(limited(t, policy, http.HandlerFunc(fine)))()
		o := n.options(policyOf(t, policy))
		o.Quick = true
		verified(t, o)
		for _, x := range verified(t, o).Results {
			want := ""
			switch x.Clause {
			case "fields-served", "fields-error":
				want = "the budget was spent at the start"
			case "separate":
				want = "by address"
			case "unverified":
				want = "by no credential"
			}
			if x.Detail == "" || !strings.Contains(x.Detail, want) || want != "" && x.Verdict != Untested {
				t.Errorf("%s is %s: %q, want %q", x.Clause, x.Verdict, x.Detail, want)
			}
		}
	})
}
