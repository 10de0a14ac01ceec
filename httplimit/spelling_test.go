package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/policyfile"
)

// No spelling of a path reaches another limiter: it is counted as the path that a handler, or a
// server behind it, may take it for, or it is answered 400 and reaches none.
func TestNoSpellingOfAPathReachesAnotherLimiter(t *testing.T) {
	const search, rest, refused, passed = "2", "50", "400", "passed"
	for policy, paths := range map[string]map[string]string{
		"limiters:\n- {name: search, routes: [POST /v1/search], windows: [2 per minute by ip]}\n- {name: rest, routes: [/*], windows: [50 per minute by ip]}\n": {
			"/v1/search": search, "//v1/Search/": search, "/v1/search;x": search, "/v1%2Fsearch": refused,
			"/v1/search%20": search, "/%20v1/search": search, "/v1/search%3Fx": search, "/v1/search%23a": search,
			"/v1/search%00": refused, "/v1/search%0a/x": refused, "/v1/sea%09rch": refused, "/v1%5Csearch": refused, "/v1%5csearch%7f": refused,
			"/v1%252fsearch": refused, "/v1/se%2561rch": refused, "/v1/se%252561rch": refused, "/v1/search%253Fx": refused,
			"/v1/se%2561rch;%25": refused, "/v1/search%253Fx%25": refused, "/v1%25u002fsearch": refused, "/v1%C0%AFsearch": refused, "/v1%c0%afsearch": refused,
			"/x/%252e%252e/v1/search": refused, "/x/..;/v1/search": refused, "/x/%5C..%5C..%5Cv1": refused, "/v1/%20/search": refused, "/v1/;x/search": refused,
			"/v1/sear%20ch": rest, "/v1/a%20b.txt": rest, "/v1/100%25": rest, "/v1/%2541": rest, "/v1/C++": rest, "/v1/%C3%A9": rest, "/v1/é": rest,
			"/wiki/%3F": rest, "/tags/%23golang": rest, "/suggest/%20": rest, "/suggest/%20/x": rest, "/v1/a%2Fb": rest, "/@scope%2Fname": rest,
		},
		"limiters:\n- {name: search, routes: [POST /v1/search], windows: [2 per minute by ip]}\n": {
			"/v1/search": search, "/v1/search%20": search, "/v1/search%00": refused, "/v1%5Csearch": refused, "/v1%252fsearch": refused,
			"/v1/other": passed, "/v1/other%00": passed, "/v1/100%25": passed, "/a%2Fb": passed, "/a%5Cb": passed,
		},
		"limiters:\n- {name: search, routes: ['POST /t/{tenant}/search'], windows: ['2 per minute by ip+path:tenant']}\n- {name: rest, routes: [/*], windows: [50 per minute by ip]}\n": {
			"/t/a/search": search, "/t/a%2F0/search": refused, "/t/a/x": rest, "/t/a%2F0/x": rest,
		},
		"limiters:\n- {name: search, routes: ['POST /t/{tenant}/search'], windows: ['2 per minute by ip+path:tenant']}\n": {
			"/t/a/search": search, "/t/a%2F0/search": refused, "/t/a/x": passed,
		},
	} {
		f, err := policyfile.Parse("p", []byte(policy))
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range paths {
			m := perPolicy(t, f.Policy, httplimit.Options{})
			reached := false
			w := httptest.NewRecorder()
			m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })).ServeHTTP(w, httptest.NewRequest("POST", path, http.NoBody))
			got := ""
			if limits := w.Header()["X-RateLimit-Limit"]; len(limits) > 0 {
				got = limits[0]
			}
			switch {
			case w.Code == http.StatusBadRequest && !reached && got != "":
				got = refused // and it was counted
			case w.Code != http.StatusOK || !reached:
				got += "?"
			case got == "":
				got = passed
			}
			if got != want {
				t.Errorf("POST %s: %s, want %s", path, got, want)
			}
		}
	}
}

// No spelling of a parameter is another budget.
func TestNoSpellingOfAParameterIsAnotherBudget(t *testing.T) {
	f, err := policyfile.Parse("p", []byte("limiters:\n- {name: items, routes: ['/t/{tenant}/items'], windows: ['1 per minute by ip+path:tenant']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := perPolicy(t, f.Policy, httplimit.Options{})
	for i, path := range []string{"/t/ab/items", "/t/AB/items", "/t/%61b/items", "/t/ab;x/items", "/t/ab%20/items", "/t/%2561b/items", "/t/a%2562/items", "/t/ab%00/items", "/t/ab%2F/items"} {
		w := httptest.NewRecorder()
		m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest("GET", path, http.NoBody))
		if admitted := w.Code == http.StatusOK; admitted != (i == 0) {
			t.Errorf("GET %s is answered %d", path, w.Code)
		}
	}
}
