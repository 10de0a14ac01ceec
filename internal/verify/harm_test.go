package verify

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// Requests that may change data are sent only with Real. The methods are those of
// the routes, and one that no route has.
func TestOnlyRealSendsRequestsThatChangeData(t *testing.T) {
	var mu sync.Mutex
	methods := map[string]bool{}
	asked := 0
	reset := time.Now().Unix() + 30
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		methods[r.Method] = true
		asked++
		w.Header().Set("X-RateLimit-Limit", "3")
		w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(max(3-asked, 0)))
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(reset, 10))
		if asked > 3 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	key, err := weir.ParseKey("ip")
	if err != nil {
		t.Fatal(err)
	}
	window := []weir.Window{{Limit: 3, Per: time.Minute, Key: key}}
	policy := weir.Policy{Limiters: []weir.Limiter{
		{Name: "cart", Routes: []weir.Route{{Method: "DELETE", Path: "/v1/cart"}}, Windows: window},
		{Name: "all", Routes: []weir.Route{{Path: "/v1/", Prefix: true}}, Windows: window},
	}}
	for _, test := range []struct{ real, deletes bool }{{false, false}, {true, true}} {
		clear(methods)
		asked = 0
		plan, err := NewPlan(Options{URL: at, Policy: policy, Quick: true, Real: test.real})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if methods["DELETE"] != test.deletes || !methods["GET"] || !methods["PROPFIND"] {
			t.Errorf("real %v: it sent %v", test.real, methods)
		}
		if skipped := len(plan.Skipped) > 0; skipped != !test.real {
			t.Errorf("real %v: %d results were known beforehand", test.real, len(plan.Skipped))
		}
	}
}

// The contract's endpoints are not sent to another API, even if its policy has a
// prefix that covers them.
func TestAnotherAPIGetsRequestsForItsPolicysPaths(t *testing.T) {
	for route, want := range map[string]string{
		"/*": "GET /weir-verify", "/api/*": "GET /api/weir-verify", "/v1/*": "GET /v1/weir-verify", "POST /api/items, /api/*": "POST /api/items",
		"/api/v1/widget/*": "POST /api/v1/widget/init", "/v1/wp/*": "GET /v1/wp/status",
	} {
		t.Run(route, func(t *testing.T) {
			o := newNetwork().options(policyOf(t, "limiters:\n  - {name: all, routes: ["+route+"], windows: [10 per minute by ip]}\n"))
			plan, err := NewPlan(o)
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.parts[0].endpoints[0].String(); got != want {
				t.Errorf("%s is verified by %s, want %s", route, got, want)
			}
		})
	}
}

// If one limiter gets no answers, the verification fails, although the others work.
func TestALimiterWithoutAnswersIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := "limiters:\n  - {name: up, routes: [/up], windows: [10 per minute by ip]}\n  - {name: down, routes: [/down], windows: [10 per minute by ip]}\n"
		n := newNetwork()
		defer n.serving(limited(t, policy, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/down" {
				panic(http.ErrAbortHandler)
			}
		})))()
		plan, err := NewPlan(n.options(policyOf(t, policy)))
		if err != nil {
			t.Fatal(err)
		}
		report, err := plan.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(err.Error(), "down") || report.Broken() {
			t.Errorf("error %v:\n%s", err, table(report))
		}
	})
}

// A Reset in seconds is not a time. It is reported once, and compared with nothing.
func TestAResetInSecondsIsNotATime(t *testing.T) {
	a := answer{fields: fields{date: 1_800_000_000, reset: 10}}
	if !a.noTime() {
		t.Error("10 is taken for a time")
	}
	a.reset = a.date - 3600
	if a.noTime() {
		t.Error("an hour ago is no time")
	}
	a.reset = absent
	if a.noTime() {
		t.Error("a missing field is checked")
	}
}
