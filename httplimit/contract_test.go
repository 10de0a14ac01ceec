package httplimit_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

const (
	widgetText = "Too many widget requests for this conversation. Please slow down."
	syncText   = "Too many sync requests for this workspace token. Please slow down."
)

// Contract, section 5; D19: each field occurs once, in exactly this spelling.
func TestEveryResponseCarriesTheFields(t *testing.T) {
	e := setUp(t, ok)
	e.send("POST /api/v1/widget/typing").want(200, 60, 59, 60).wantFields("Retry-After", "", "Date", startDate)
	e.clock.Advance(10 * time.Second)
	e.send("POST /api/v1/widget/typing").want(200, 60, 58, 60).wantFields("Date", "Fri, 15 Jan 2027 08:00:10 GMT")
}

// Contract, section 7; D20.
func TestA429HasTheContractsShape(t *testing.T) {
	e := setUp(t, ok)
	for i := range int64(2) {
		e.send("POST /api/v1/widget/satisfaction").want(200, 2, 1-i, 60)
	}
	e.clock.Advance(18 * time.Second)
	a := e.send("POST /api/v1/widget/satisfaction").want(429, 2, 0, 60).wantFields(
		"Retry-After", "42", "Content-Type", "application/json", "Cache-Control", "no-store", "Content-Language", "en",
		"Vary", "Accept-Language", "Date", "Fri, 15 Jan 2027 08:00:18 GMT")
	if want := rateLimited(widgetText); a.body != want {
		t.Errorf("the body is %s\nwant %s", a.body, want)
	}
	e.clock.Advance(42 * time.Second) // the wait of Retry-After is enough
	e.send("POST /api/v1/widget/satisfaction").want(200, 2, 1, 120)
}

// The bulk-sync surface has its own message (D20).
func TestTheBulkSyncSurfaceHasItsOwnMessage(t *testing.T) {
	e := setUp(t, ok)
	token := e.token()
	for range 4 {
		e.send("GET /v1/wp/status", token)
	}
	if a := e.send("GET /v1/wp/status", token).want(429, 4, 0, 60); a.body != rateLimited(syncText) {
		t.Errorf("the body is %s", a.body)
	}
}

// The response to a HEAD is that to a GET, without its body (RFC 9110, section
// 9.3.2).
func TestAHEADHasNoBody(t *testing.T) {
	e := setUp(t, ok)
	e.send("POST /api/v1/widget/satisfaction")
	e.send("POST /api/v1/widget/satisfaction")
	a := e.send("HEAD /api/v1/widget/satisfaction").want(429, 2, 0, 60)
	if a.body != "" || a.field("Content-Length") != strconv.Itoa(len(rateLimited(widgetText))) {
		t.Errorf("the body is %q, its announced length %s", a.body, a.field("Content-Length"))
	}
}

// The fields describe the binding window (D4, D13). After a refusal that is a window that refused.
func TestTheFieldsDescribeTheBindingWindow(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l /": {"2 per minute by ip+agent", "3 per hour by ip"}})
	})
	e.send("GET /", "X-Agent-Id: a").want(200, 2, 1, 60)
	e.send("GET /", "X-Agent-Id: a").want(200, 2, 0, 60)
	e.send("GET /", "X-Agent-Id: a").want(429, 2, 0, 60).wantFields("Retry-After", "60")
	e.send("GET /", "X-Agent-Id: b").want(200, 3, 0, 3600)
	e.send("GET /", "X-Agent-Id: b").want(429, 3, 0, 3600).wantFields("Retry-After", "3600")
	e.send("GET /", "X-Agent-Id: a").want(429, 3, 0, 3600) // both refuse: the one that frees last
}

// Our values replace a backend's own, in any spelling (D19, D6).
func TestABackendsOwnFieldsAreReplaced(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for _, name := range []string{"X-RateLimit-Limit", "x-ratelimit-limit", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-RATELIMIT-RESET", "retry-after", "Retry-After", "date"} {
			h[name] = []string{"7", "8"}
		}
		h.Set("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
		h.Set("X-RateLimit-Policy", "kept")
		h.Set("RateLimit", `"theirs";r=1`)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	e.send("POST /api/v1/widget/typing").want(503, 60, 59, 60).wantFields("Retry-After", "", "Date", startDate,
		"X-Ratelimit-Policy", "kept", "Ratelimit", `"theirs";r=1`)
}

// A backend's 429 keeps its body (D19). Its Retry-After is kept if it is an
// integer, and otherwise set to reset - now.
func TestABackendsOwn429KeepsItsBody(t *testing.T) {
	var retryAfter []string
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Retry-After"] = retryAfter
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "the backend is tired")
	})
	for i, test := range []struct {
		sent []string
		want string
	}{
		{[]string{"7"}, "7"},
		{[]string{"007"}, "7"},
		{nil, "60"},
		{[]string{"0"}, "60"},
		{[]string{"Fri, 15 Jan 2027 08:00:05 GMT"}, "60"},
		{[]string{"-3"}, "60"},
		{[]string{"7", "8"}, "60"},
		{[]string{"99999999999999999999"}, "60"},
	} {
		retryAfter = test.sent
		a := e.send("POST /api/v1/widget/typing").want(429, 60, 0, 60).wantFields("Retry-After", test.want, "Content-Type", "text/plain", "Content-Language", "")
		if a.body != "the backend is tired" {
			t.Errorf("%d: the body is %q", i, a.body)
		}
	}
}

// If no limiter covers a path, requests pass without fields (D9).
func TestAnUncoveredPathPassesUnchanged(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, found := httplimit.CallerOf(w); found {
			t.Error("an unlimited request has a caller")
		}
		w.Header().Set("X-RateLimit-Limit", "7")
	})
	a := e.send("GET /healthz")
	if a.status != 200 || a.field("X-RateLimit-Remaining") != "" || !strings.Contains(strings.Join(a.lines, "\n"), "X-Ratelimit-Limit: 7") {
		t.Errorf("the answer is %d %q", a.status, a.lines)
	}
}

// Exactly the limit is admitted, under any concurrency.
func TestExactlyTheLimitIsAdmitted(t *testing.T) {
	var served atomic.Int64
	e := setUp(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	var refused atomic.Int64
	var clients sync.WaitGroup
	client := e.server.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = 32
	for range 32 {
		clients.Go(func() {
			for range 5 {
				res, err := client.Post(e.server.URL+"/api/v1/widget/typing", "", nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode == http.StatusTooManyRequests {
					refused.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if served.Load() != 60 || refused.Load() != 100 {
		t.Errorf("of 160 requests %d were served and %d refused, want 60 and 100", served.Load(), refused.Load())
	}
}

// bridge returns a store that does not answer, with fallback in its place.
func bridge(t *testing.T, fallback weir.Store, now func() time.Time) weir.Store {
	t.Helper()
	s, err := failover.New(brokenStore{}, fallback, failover.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The answer is a 503 without Retry-After. It has the fields of a window that ends
// in a second (D25).
func TestAStoreThatDoesNotAnswerIsA503UnderDeny(t *testing.T) {
	e := setUp(t, ok)
	p := limiters(t, map[string][]string{"l /": {"5 per minute by ip"}})
	p.Limiters[0].OnStoreFailure = weir.FailDeny
	d, err := weir.New(p, bridge(t, nil, e.clock.Now), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(d, httplimit.Options{Identity: who}, http.HandlerFunc(ok))
	a := e.send("GET /").want(503, 5, 0, 1).wantFields("Retry-After", "", "Content-Type", "application/json", "Date", startDate, "Cache-Control", "no-store")
	if !strings.HasPrefix(a.body, `{"error":{"code":"store_unavailable","message":"`) {
		t.Errorf("the body is %s", a.body)
	}
}

// This process enforces the same limits, and callers see no difference (D25).
func TestAStoreThatDoesNotAnswerIsReplacedLocally(t *testing.T) {
	e := setUp(t, ok)
	local, err := memstore.New(memstore.Options{Now: e.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	d, err := weir.New(limiters(t, map[string][]string{"l /": {"1 per minute by ip"}}), bridge(t, local, e.clock.Now), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(d, httplimit.Options{Identity: who}, http.HandlerFunc(ok))
	e.send("GET /").want(200, 1, 0, 60)
	e.send("GET /").want(429, 1, 0, 60).wantFields("Retry-After", "60")
}

// If a request costs more than the rest of the budget, it is refused with Remaining
// 0 (D7).
func TestARequestThatDoesNotFitHasRemainingZero(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l /": {"5 per minute by ip"}})
		p.Limiters[0].Cost = 3
	})
	e.send("GET /").want(200, 5, 2, 60)
	e.send("GET /").want(429, 5, 0, 60)
}

// The fields of the IETF draft have a member for each window (D23).
func TestIETFFieldsCanBeSwitchedOn(t *testing.T) {
	on := func(_ *edge, o *httplimit.Options, _ *identity.Options, p *weir.Policy) { o.IETF = true }
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"theirs";r=1`)
		w.Header().Set("RateLimit-Policy", `"theirs";q=1`)
	}, on)
	e.send("POST /api/v1/widget/init", "X-Agent-Id: a").want(200, 1000, 999, 60).wantFields(
		"RateLimit", `"widget-init 60s by ip+agent";r=999;t=60, "widget-init 3600s by ip";r=29999;t=3600`,
		"RateLimit-Policy", `"widget-init 60s by ip+agent";q=1000;w=60, "widget-init 3600s by ip";q=30000;w=3600`)
	e.clock.Advance(10 * time.Second)
	e.send("POST /api/v1/widget/satisfaction").want(200, 2, 1, 70).wantFields("RateLimit", `"widget-satisfaction";r=1;t=60`, "RateLimit-Policy", `"widget-satisfaction";q=2;w=60`)
	e.send("POST /api/v1/widget/satisfaction")
	e.clock.Advance(time.Second)
	e.send("POST /api/v1/widget/satisfaction").want(429, 2, 0, 70).wantFields("RateLimit", `"widget-satisfaction";r=0;t=59`, "Retry-After", "59")
}

// The backend's 429 has Remaining 0 in the IETF fields too (D19, D23).
func TestABackendsOwn429IsZeroInTheIETFFieldToo(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
		func(_ *edge, o *httplimit.Options, _ *identity.Options, p *weir.Policy) { o.IETF = true })
	e.send("POST /api/v1/widget/satisfaction").want(429, 2, 0, 60).wantFields("RateLimit", `"widget-satisfaction";r=0;t=60`, "RateLimit-Policy", `"widget-satisfaction";q=2;w=60`)
}

func TestTheIETFFieldsAreOffByDefault(t *testing.T) {
	e := setUp(t, ok)
	e.send("POST /api/v1/widget/typing").want(200, 60, 59, 60).wantFields("RateLimit", "", "RateLimit-Policy", "")
}

// If a limit is lowered below the count, Remaining is 0, never negative (D5). A
// raised limit takes effect at once.
func TestAChangedLimitTakesEffectAtOnce(t *testing.T) {
	e := setUp(t, ok)
	store, err := memstore.New(memstore.Options{Now: e.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	policy := func(window string) weir.Policy { return limiters(t, map[string][]string{"l /": {window}}) }
	d, err := weir.New(policy("5 per minute by ip"), store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(d, httplimit.Options{Identity: who}, http.HandlerFunc(ok))
	e.send("GET /")
	e.send("GET /").want(200, 5, 3, 60)
	for _, change := range []struct {
		window    string
		status    int
		limit     int64
		remaining int64
	}{{"1 per minute by ip", 429, 1, 0}, {"9 per minute by ip", 200, 9, 6}} {
		if err := d.Swap(policy(change.window)); err != nil {
			t.Fatal(err)
		}
		e.send("GET /").want(change.status, change.limit, change.remaining, 60)
	}
}
