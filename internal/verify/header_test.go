package verify

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// verifiedByField verifies a server that limits by policy, behind a function that
// changes its requests, or nil.
func verifiedByField(t *testing.T, policy string, change func(*http.Request), given http.Header) (report *Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		handler := limited(t, policy, http.HandlerFunc(fine))
		stop := n.serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if change != nil {
				change(r)
			}
			handler.ServeHTTP(w, r)
		}))
		defer stop()
		o := n.options(policyOf(t, policy))
		o.Header = given
		report = verified(t, o)
	})
	return report
}

func verdictOf(t *testing.T, r *Report, clause string) Result {
	t.Helper()
	for _, x := range r.Results {
		if x.Clause == clause {
			return x
		}
	}
	t.Fatalf("no result of %s:\n%s", clause, table(r))
	return Result{}
}

// A limiter by an HTTP field is tested with values that the verifier invents. Two
// of them have two budgets.
func TestALimiterByAFieldKeepsEveryClause(t *testing.T) {
	for _, window := range []string{"20 per minute by header:X-Api-Key or ip", "20 per minute by ip+header:X-Api-Key, 200 per hour by ip", "20 per minute by header:Cookie"} {
		r := verifiedByField(t, chosenPolicy(window), nil, nil)
		if r.Broken() {
			t.Errorf("%s: a clause is broken:\n%s", window, table(r))
		}
		for _, clause := range []string{"separate", "admitted", "shared"} {
			if got := verdictOf(t, r, clause); got.Verdict != Kept {
				t.Errorf("%s: %s is %s: %s", window, clause, got.Verdict, got.Detail)
			}
		}
	}
}

func TestAServerThatCountsAnotherFieldIsFound(t *testing.T) {
	const window = "20 per minute by header:X-Api-Key or ip"
	r := verifiedByField(t, chosenPolicy(window), func(r *http.Request) { r.Header.Set("X-Api-Key", "one for all") }, nil)
	if got := verdictOf(t, r, "separate"); got.Verdict != Broken {
		t.Errorf("all values share a budget, and separate is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
	r = verifiedByField(t, chosenPolicy(window), func(r *http.Request) { r.Header.Set("X-Api-Key", r.Header.Get("X-Api-Key")+r.RemoteAddr) }, nil)
	// If the window ends before shared is tested, another clause shows the defect.
	if got := verdictOf(t, r, "shared"); got.Verdict == Kept || !r.Broken() {
		t.Errorf("each connection has a budget, and shared is %s: %s\n%s", got.Verdict, got.Detail, table(r))
	}
}

// A given value is used, but is in no report.
func TestAGivenFieldNamesTheCaller(t *testing.T) {
	const key = "sk_live_27ab"
	var mu sync.Mutex
	seen := make(map[string]bool)
	remember := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Header.Get("X-Api-Key")] = true
	}
	r := verifiedByField(t, chosenPolicy("20 per minute by header:X-Api-Key or ip"), remember, http.Header{"X-Api-Key": {key}})
	// Another caller's, one beside the given one, and none.
	if r.Broken() || !seen[key] || !seen[""] || len(seen) != 4 {
		t.Errorf("%d values, want the given one, two that are invented, and none:\n%s", len(seen), table(r))
	}
	if text, err := json.Marshal(r); err != nil || strings.Contains(string(text), key) {
		t.Errorf("%v: the report has the value:\n%s", err, text)
	}
}

func TestAFieldThatOtherClausesVaryCannotBeTested(t *testing.T) {
	for _, field := range []string{"Origin", "Authorization", "X-Forwarded-For", "Accept-Language"} {
		r := verifiedByField(t, chosenPolicy("20 per minute by header:"+field+" or ip"), nil, nil)
		if got := verdictOf(t, r, "admitted"); got.Verdict != Untested || !strings.Contains(got.Detail, "header:"+field) {
			t.Errorf("%s: %s: %s", field, got.Verdict, got.Detail)
		}
	}
}

// chosenPolicy is onePolicy for a window by a value that the caller chooses.
func chosenPolicy(window string) string { return onePolicy(window) + "    chosen: yes\n" }
