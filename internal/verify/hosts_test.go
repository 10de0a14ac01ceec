package verify

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// sitesDocument is a policy of three sites. The URL of the tests is api.example.com.
const sitesDocument = `limiters:
  - {name: shop, routes: [shop.example.com/*], windows: [20 per minute by ip]}
  - {name: sites, routes: ["*.example.org/*"], windows: [20 per minute by ip]}
  - {name: rest, routes: [/*], windows: [30 per minute by ip]}
`

// resultOf returns the result of a clause on one limiter.
func resultOf(t *testing.T, r *Report, limiter, clause string) Result {
	t.Helper()
	for _, x := range r.Results {
		if x.Clause == clause && x.Limiter == limiter {
			return x
		}
	}
	t.Fatalf("no result of %s for %s:\n%s", clause, limiter, table(r))
	return Result{}
}

// Each limiter gets requests for a host that its route names, and no spelling of it has a budget.
func TestALimiterOfOneHostGetsItsRequests(t *testing.T) {
	var mu sync.Mutex
	sent := make(map[string]int)
	r := verifiedByField(t, sitesDocument, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent[r.Host]++
	}, nil)
	if r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
	for _, limiter := range []string{"shop", "sites", "rest"} {
		if got := resultOf(t, r, limiter, "admitted"); got.Verdict != Kept {
			t.Errorf("%s: admitted is %s: %s", limiter, got.Verdict, got.Detail)
		}
	}
	for _, limiter := range []string{"shop", "sites"} {
		if got := resultOf(t, r, limiter, "value"); got.Verdict != Kept {
			t.Errorf("%s: value is %s: %s", limiter, got.Verdict, got.Detail)
		}
	}
	made := 0
	for host, n := range sent {
		if strings.HasSuffix(host, ".example.org") {
			made += n
		}
	}
	if sent["shop.example.com"] < 20 || made < 20 || sent["api.example.com"] < 30 || sent["SHOP.EXAMPLE.COM"] == 0 || sent["shop.example.com:8080"] == 0 {
		t.Errorf("sent to %v", sent)
	}
}

// The limiter of the URL's own host is tested there, and the one of all others elsewhere.
func TestTheURLsOwnHostCanHaveRoutes(t *testing.T) {
	const policy = `limiters:
  - {name: api, routes: [api.example.com/*], windows: [20 per minute by ip]}
  - {name: sites, routes: ["*.example.com/*"], windows: [20 per minute by host], chosen: yes}
  - {name: rest, routes: [/*], windows: [30 per minute by ip]}
`
	r := verifiedByField(t, policy, nil, nil)
	if r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
	for _, want := range [][2]string{{"api", "admitted"}, {"api", "value"}, {"sites", "admitted"}, {"sites", "separate"}, {"sites", "value"}} {
		if got := resultOf(t, r, want[0], want[1]); got.Verdict != Kept {
			t.Errorf("%s: %s is %s: %s", want[0], want[1], got.Verdict, got.Detail)
		}
	}
}

// A server that compares the bytes of a host lets requests escape to another limiter.
func TestASpellingOfAHostWithAnotherBudgetIsFound(t *testing.T) {
	for name, other := range map[string]func(host string) bool{
		"capitals": func(host string) bool { return host == "SHOP.EXAMPLE.COM" },
		"a port":   func(host string) bool { return host == "shop.example.com:8080" },
		"a dot":    func(host string) bool { return host == "shop.example.com." },
	} {
		r := verifiedByField(t, sitesDocument, func(r *http.Request) {
			if other(r.Host) {
				r.Host = "elsewhere.example.net"
			}
		}, nil)
		if got := resultOf(t, r, "shop", "value"); got.Verdict != Broken {
			t.Errorf("%s: value is %s: %s", name, got.Verdict, got.Detail)
		}
	}
}

// So is one that the other limiter refuses, since its budget is spent.
func TestASpellingOfAHostThatAnotherLimiterRefusesIsFound(t *testing.T) {
	api := limited(t, sitesDocument, http.HandlerFunc(fine))
	r := verifiedAgainst(t, sitesDocument, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "SHOP.EXAMPLE.COM" {
			r.Host = "elsewhere.example.net"
			for range 30 { // all that rest admits
				api.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		api.ServeHTTP(w, r)
	}), nil)
	if got := resultOf(t, r, "shop", "value"); got.Verdict != Broken || !strings.Contains(got.Detail, "the limit 30") {
		t.Errorf("value is %s: %s", got.Verdict, got.Detail)
	}
}

// A deployment need not serve every host of its policy at one URL.
func TestAHostThatIsAnswered421IsNotTestable(t *testing.T) {
	api := limited(t, sitesDocument, http.HandlerFunc(fine))
	r := verifiedAgainst(t, sitesDocument, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "api.example.com" {
			http.Error(w, "not here", http.StatusMisdirectedRequest)
			return
		}
		api.ServeHTTP(w, r)
	}), nil)
	if r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
	if got := resultOf(t, r, "rest", "admitted"); got.Verdict != Kept {
		t.Errorf("rest: admitted is %s: %s", got.Verdict, got.Detail)
	}
	for limiter, reason := range map[string]string{"shop": "shop.example.com, which its route names, is answered 421", "sites": "made up under the star of its route, is answered 421"} {
		for _, clause := range Clauses {
			if got := resultOf(t, r, limiter, clause.ID); got.Verdict != Untested || !strings.Contains(got.Detail, reason) {
				t.Errorf("%s: %s is %s: %s", limiter, clause.ID, got.Verdict, got.Detail)
			}
		}
	}
}

// A limiter of two hosts, of which one is not served at the URL, is tested on the other.
func TestTheHostOfAnotherRouteNeedNotBeServed(t *testing.T) {
	const policy = "limiters: [{name: both, routes: [api.example.com/*, shop.example.com/*], windows: [20 per minute by ip]}]"
	api := limited(t, policy, http.HandlerFunc(fine))
	r := verifiedAgainst(t, policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Host, "shop.example.com") {
			http.Error(w, "not here", http.StatusMisdirectedRequest)
			return
		}
		api.ServeHTTP(w, r)
	}), nil)
	if got := resultOf(t, r, "both", "shared"); r.Broken() || got.Verdict != Kept {
		t.Errorf("shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
}
