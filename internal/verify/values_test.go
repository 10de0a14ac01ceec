package verify

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// tenantPolicy has one limiter, on a route with a parameter, that declares chosen values.
func tenantPolicy(windows string) string {
	return "limiters:\n  - name: things\n    routes: ['/t/{tenant}/things*']\n    windows: [" + windows + "]\n    chosen: yes\n"
}

// A correct server keeps every clause that its limiter's values allow, whatever it counts by: two
// values have two budgets, and one value has one in any spelling.
func TestALimiterByAChosenValueKeepsEveryClause(t *testing.T) {
	for _, windows := range []string{
		"20 per minute by cookie:sid",
		"20 per minute by ip+cookie:sid, 200 per hour by ip",
		"20 per minute by query:tenant",
		"20 per minute by ip+query:tenant",
		"20 per minute by host",
		"20 per minute by ip+host+query:q",
		"20 per minute by path:tenant",
		"20 per minute by ip+path:tenant",
		"20 per minute by header:X-Tenant+cookie:sid",
		"20 per minute by cookie:sid or header:X-Tenant",
	} {
		r := verifiedByField(t, tenantPolicy(windows), nil, nil)
		if r.Broken() {
			t.Errorf("%s: a clause is broken:\n%s", windows, table(r))
		}
		for _, clause := range []string{"separate", "admitted", "shared", "value", "spelling", "forwarded"} {
			if got := verdictOf(t, r, clause); got.Verdict != Kept {
				t.Errorf("%s: %s is %s: %s", windows, clause, got.Verdict, got.Detail)
			}
		}
	}
}

// A window by the address alone is one budget for all values that another window counts by.
func TestValuesThatAnotherWindowCountsByShareTheFirst(t *testing.T) {
	const windows = "20 per minute by ip, 60 per minute by ip+cookie:sid"
	r := verifiedByField(t, tenantPolicy(windows), nil, nil)
	if got := verdictOf(t, r, "shared"); got.Verdict != Kept || r.Broken() {
		t.Errorf("shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
	// A server that counts the first window by the cookie as well.
	r = verifiedAgainst(t, tenantPolicy(windows), limited(t, tenantPolicy("20 per minute by ip+cookie:sid, 60 per minute by ip+cookie:sid+cookie:x"), http.HandlerFunc(fine)), nil)
	if got := verdictOf(t, r, "shared"); got.Verdict != Broken || !strings.Contains(got.Detail, "cookie:sid") {
		t.Errorf("shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
}

// A caller with another limit may be refused by another window than the one with the least budget.
func TestAnotherLimitOfTheCallerIsNotTakenForASecondBudget(t *testing.T) {
	policy := tenantPolicy("10 per 7 seconds by ip+agent, 15 per 14 seconds by ip+query:tenant") + "    overrides: [4 per 14 seconds for 192.0.2.0/24]\n"
	if r := verifiedByField(t, policy, nil, nil); r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
}

// verifiedAgainst verifies a server against a policy.
func verifiedAgainst(t *testing.T, policy string, server http.Handler, change func(*Options)) *Report {
	t.Helper()
	report, err := runAgainst(t, policy, server, change)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// runAgainst is verifiedAgainst for a verification that may end with an error.
func runAgainst(t *testing.T, policy string, server http.Handler, change func(*Options)) (report *Report, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		defer n.serving(server)()
		o := n.options(policyOf(t, policy))
		if change != nil {
			change(&o)
		}
		var plan *Plan
		if plan, err = NewPlan(o); err != nil {
			return
		}
		report, err = plan.Run(t.Context())
	})
	return report, err
}

func isCredentialError(err error) bool {
	_, ok := errors.AsType[*CredentialError](err)
	return ok
}

// A server that does not distinguish the values of a source is found.
func TestValuesThatShareABudgetAreFound(t *testing.T) {
	for source, one := range map[string]func(*http.Request){
		"cookie:sid":      func(r *http.Request) { r.Header.Del("Cookie") },
		"query:tenant":    func(r *http.Request) { r.URL.RawQuery = "" },
		"host":            func(r *http.Request) { r.Host = "one.example.com" },
		"path:tenant":     func(r *http.Request) { setSegment(r, "one") },
		"header:X-Tenant": func(r *http.Request) { r.Header.Del("X-Tenant") },
	} {
		for _, window := range []string{"20 per minute by " + source, "20 per minute by header:X-First+" + source} {
			r := verifiedByField(t, tenantPolicy(window), one, nil)
			if got := verdictOf(t, r, "separate"); got.Verdict != Broken {
				t.Errorf("%s: all values share a budget, and separate is %s: %s\n%s", window, got.Verdict, got.Detail, table(r))
			}
		}
	}
}

// setSegment replaces the tenant of a path, if it has one.
func setSegment(r *http.Request, tenant string) {
	parts := strings.SplitN(r.URL.Path, "/", 4)
	if len(parts) == 4 && parts[1] == "t" {
		r.URL.Path, r.URL.RawPath = "/t/"+tenant+"/"+parts[3], ""
	}
}

// A server that gives a spelling of a value a budget of its own is found.
func TestASecondBudgetOfAValueIsFound(t *testing.T) {
	last := func(all []string) string { return all[len(all)-1] }
	for name, c := range map[string]struct {
		source string
		reads  func(*http.Request) // rewrites a request to what the broken server makes of it
	}{
		"the last of two fields counts": {"header:X-Tenant", func(r *http.Request) {
			if all := r.Header.Values("X-Tenant"); len(all) > 1 {
				r.Header.Set("X-Tenant", last(all))
			}
		}},
		"two fields are joined": {"header:X-Tenant", func(r *http.Request) {
			if all := r.Header.Values("X-Tenant"); len(all) > 1 {
				r.Header.Set("X-Tenant", strings.Join(all, ","))
			}
		}},
		"the last of two cookies counts": {"cookie:sid", func(r *http.Request) {
			if all := r.CookiesNamed("sid"); len(all) > 0 {
				r.Header.Set("Cookie", "sid="+all[len(all)-1].Value)
			}
		}},
		"a cookie's quotes count": {"cookie:sid", func(r *http.Request) {
			r.Header.Set("Cookie", strings.ReplaceAll(r.Header.Get("Cookie"), `"`, "q"))
		}},
		"the whole Cookie field counts": {"cookie:sid", func(r *http.Request) {
			r.Header.Set("Cookie", "sid="+url.QueryEscape(strings.Join(r.Header.Values("Cookie"), ";")))
		}},
		"a cookie's value has blanks": {"cookie:sid", func(r *http.Request) { escapeSid(r, " ") }},
		"a cookie's value has commas": {"cookie:sid", func(r *http.Request) { escapeSid(r, ",") }},
		"a cookie's value has &":      {"cookie:sid", func(r *http.Request) { escapeSid(r, "&") }},
		"a comma ends no cookie": {"cookie:sid", func(r *http.Request) {
			if line := r.Header.Get("Cookie"); strings.HasPrefix(line, "weir-verify=1, ") {
				_, after, _ := strings.Cut(line, ";")
				r.Header.Set("Cookie", after)
			}
		}},
		"the last of two parameters counts": {"query:tenant", func(r *http.Request) {
			if all := r.URL.Query()["tenant"]; len(all) > 0 {
				r.URL.RawQuery = "tenant=" + last(all)
			}
		}},
		"the raw query counts": {"query:tenant", func(r *http.Request) {
			r.URL.RawQuery = "tenant=" + url.QueryEscape(r.URL.RawQuery)
		}},
		"a host's case counts": {"host", func(r *http.Request) {
			if strings.ToLower(r.Host) != r.Host {
				r.Host = "upper." + r.Host
			}
		}},
		"a host's port counts": {"host", func(r *http.Request) { r.Host = strings.ReplaceAll(r.Host, ":", "-port-") }},
		"X-Forwarded-Host counts": {"host", func(r *http.Request) {
			r.Host = cmp.Or(r.Header.Get("X-Forwarded-Host"), r.Host)
		}},
		"a segment's case counts": {"path:tenant", func(r *http.Request) {
			if tenant, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/t/"), "/"); strings.ToLower(tenant) != tenant {
				setSegment(r, "upper-"+tenant)
			}
		}},
		"a segment's parameters count": {"path:tenant", func(r *http.Request) {
			r.URL.Path = strings.ReplaceAll(r.URL.Path, ";", "-")
		}},
	} {
		for _, key := range []string{c.source, "ip+" + c.source} {
			r := verifiedByField(t, tenantPolicy("20 per minute by "+key), c.reads, nil)
			if got := verdictOf(t, r, "value"); got.Verdict != Broken || got.Exchange == nil {
				t.Errorf("%s: by %s: value is %s: %s\n%s", name, key, got.Verdict, got.Detail, table(r))
			}
		}
	}
}

// escapeSid escapes some bytes of the cookie sid, whose value ends at a semicolon.
func escapeSid(r *http.Request, bytes string) {
	value, ok := strings.CutPrefix(r.Header.Get("Cookie"), "sid=")
	if value, _, _ = strings.Cut(value, ";"); ok && strings.Contains(value, bytes) {
		r.Header.Set("Cookie", "sid="+url.QueryEscape(value))
	}
}

// A doubtful value for which each request has a budget of its own is found as well.
func TestADoubtfulValueHasNoBudgetOfItsOwn(t *testing.T) {
	var n atomic.Int64
	r := verifiedByField(t, tenantPolicy("20 per minute by query:tenant"), func(r *http.Request) {
		if len(r.URL.Query()["tenant"]) > 1 {
			r.URL.RawQuery = fmt.Sprintf("tenant=%d", n.Add(1))
		}
	}, nil)
	if got := verdictOf(t, r, "value"); got.Verdict != Broken {
		t.Errorf("value is %s: %s", got.Verdict, got.Detail)
	}
}

// A made-up host that another server answers is not held against the API: the URL's own is used.
func TestAHostThatIsNotServedLeavesTheOwnOne(t *testing.T) {
	policy := tenantPolicy("20 per minute by host")
	api := limited(t, policy, http.HandlerFunc(fine))
	r := verifiedAgainst(t, policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "api.example.com" {
			http.Error(w, "no such site", http.StatusNotFound)
			return
		}
		api.ServeHTTP(w, r)
	}), nil)
	if r.Broken() {
		t.Errorf("a clause is broken:\n%s", table(r))
	}
	if got := verdictOf(t, r, "admitted"); got.Verdict != Kept {
		t.Errorf("admitted is %s: %s", got.Verdict, got.Detail)
	}
	for _, clause := range []string{"separate", "value"} {
		if got := verdictOf(t, r, clause); got.Verdict != Untested || !strings.Contains(got.Detail, "a made-up host is answered 404") {
			t.Errorf("%s is %s: %s", clause, got.Verdict, got.Detail)
		}
	}
}

// A cookie that --header gives names the caller, and the others are sent as given.
func TestAGivenCookieNamesTheCaller(t *testing.T) {
	seen := make(chan string, 10_000)
	r := verifiedByField(t, tenantPolicy("20 per minute by cookie:sid"), func(r *http.Request) {
		if c, err := r.Cookie("sid"); err == nil {
			seen <- c.Value
		}
	}, http.Header{"Cookie": {"theme=dark; sid=my-session-7"}})
	close(seen)
	mine := 0
	for value := range seen {
		if value == "my-session-7" {
			mine++
		}
	}
	if r.Broken() || mine < 20 || verdictOf(t, r, "value").Verdict != Kept {
		t.Errorf("%d requests had the given cookie:\n%s", mine, table(r))
	}
}
