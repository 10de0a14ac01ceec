package httplimit_test

import (
	"context"
	"maps"
	"net/http"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// judge asks e's middleware as another engine would.
func (e *edge) judge(q httplimit.Question) (*httplimit.Answer, map[string]string) {
	e.Helper()
	var c identity.Caller
	a := new(httplimit.Answer)
	if q.Request == nil {
		q.Request = fromHome
	}
	if err := e.middleware.Judge(context.Background(), q, &c, a); err != nil {
		e.Fatal(err)
	}
	return a, maps.Collect(a.Fields())
}

func (e *edge) wantFields(got map[string]string, pairs ...string) {
	e.Helper()
	if len(got) != len(pairs)/2 {
		e.Errorf("the fields are %q, want %q", got, pairs)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			e.Errorf("%s is %q, want %q", pairs[i], got[pairs[i]], pairs[i+1])
		}
	}
}

// The answer is values: no net/http is needed to say it.
func TestAnAnswerIsValues(t *testing.T) {
	e := setUp(t, ok)
	q := httplimit.Question{Method: "POST", Path: "/api/v1/widget/satisfaction"}
	a, fields := e.judge(q)
	if a.Status != 0 || a.Body() != nil || a.Outcome != httplimit.Admitted {
		t.Errorf("the answer is %d %s, %v", a.Status, a.Body(), a.Outcome)
	}
	e.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800000060", "Date", startDate)
	e.judge(q)
	a, fields = e.judge(q)
	if a.Status != http.StatusTooManyRequests || string(a.Body()) != rateLimited(widgetText) {
		t.Errorf("the answer is %d %s", a.Status, a.Body())
	}
	e.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1800000060", "Retry-After", "60", "Date", startDate,
		"Content-Type", "application/json", "Content-Length", "111", "Cache-Control", "no-store", "Content-Language", "en", "Vary", "Accept-Language")
	a, fields = e.judge(httplimit.Question{Method: "GET", Path: "/healthz"})
	if a.Status != 0 || a.Outcome != httplimit.Unlimited || len(fields) != 0 {
		t.Errorf("an unlimited request is answered %d with %q", a.Status, fields)
	}
}

// D4, D7: a peek spends nothing; before the first request it shows the whole budget and a full window ahead.
func TestAPeekShowsTheStandingAndSpendsNothing(t *testing.T) {
	e := setUp(t, ok)
	q := httplimit.Question{Method: "POST", Path: "/api/v1/widget/satisfaction", Cost: weir.Peek}
	for range 3 {
		a, fields := e.judge(q)
		if a.Status != 0 {
			t.Errorf("a peek is answered %d", a.Status)
		}
		e.wantFields(fields, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "1800000060", "Date", startDate)
	}
	spend := q
	spend.Cost = 2
	e.judge(spend)
	if a, fields := e.judge(q); a.Status != 0 || fields["X-RateLimit-Remaining"] != "0" {
		t.Errorf("a peek at a spent budget is answered %d with %q", a.Status, fields)
	}
	if a, _ := e.judge(spend); a.Status != http.StatusTooManyRequests {
		t.Errorf("a spent budget is answered %d", a.Status)
	}
}

func TestACostThatCouldNeverBeServedIsAnError(t *testing.T) {
	e := setUp(t, ok)
	var c identity.Caller
	var a httplimit.Answer
	q := httplimit.Question{Request: fromHome, Method: "POST", Path: "/api/v1/widget/satisfaction", Cost: 3}
	if err := e.middleware.Judge(context.Background(), q, &c, &a); err == nil {
		t.Errorf("the answer is %d", a.Status)
	}
}

// An engine of another kind drops the handler's fields by name, in any spelling.
func TestAnAnswerOwnsItsFieldsInAnySpelling(t *testing.T) {
	e := setUp(t, ok)
	a, _ := e.judge(httplimit.Question{Method: "POST", Path: "/api/v1/widget/typing"})
	for name, want := range map[string]bool{
		"X-RateLimit-Limit": true, "x-ratelimit-limit": true, "X-Ratelimit-Remaining": true, "X-RATELIMIT-RESET": true, "Retry-after": true, "DATE": true,
		"X-RateLimit-Policy": false, "RateLimit": false, "RateLimit-Policy": false, "": false, "Etag": false, "X-RateLimit-Used1": false, "Content-Type": false,
	} {
		if got := a.Owns(name); got != want {
			t.Errorf("Owns(%q) is %v", name, got)
		}
	}
}

func TestServingOneRequestAllocatesTwice(t *testing.T) {
	h := perIP(t, weir.MaxLimit, httplimit.Options{}).Wrap(http.HandlerFunc(okHandler))
	w, r := &bareWriter{header: http.Header{}}, typing(t)
	n := testing.AllocsPerRun(1000, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	if n > 2 {
		t.Errorf("the middleware allocates %v times a request, at most 2 are allowed: one for the response, one for its values", n)
	}
}
