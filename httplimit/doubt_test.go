package httplimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// troubled are Tokens that fail on demand.
type troubled struct {
	identity.Tokens
	trouble error
}

func (t *troubled) Lookup(id string) (identity.StoredToken, error) {
	if t.trouble != nil {
		return identity.StoredToken{}, t.trouble
	}
	return t.Tokens.Lookup(id)
}

// If the lookup of a token fails, the answer is 503 and does not reveal the cause
// (D15, D16). The address is not marked as spent.
func TestATokenThatCannotBeLookedUpIs503(t *testing.T) {
	tokens := &troubled{}
	e := setUp(t, ok, func(e *edge, _ *httplimit.Options, o *identity.Options, _ *weir.Policy) {
		tokens.Tokens = o.Tokens
		o.Tokens = tokens
	})
	seen, unseen := e.token(), e.token()
	e.send("GET /v1/wp/status", seen).want(200, 4, 3, 60)
	tokens.trouble = errors.New("disk I/O error at /var/lib")
	e.clock.Advance(2 * time.Second)
	for range 4 {
		a := e.send("GET /v1/wp/status", seen).wantFields("WWW-Authenticate", "", "Retry-After", "")
		if a.status != 503 || !strings.Contains(a.body, `"store_unavailable"`) || strings.Contains(a.body, "disk") {
			t.Fatalf("a token that cannot be looked up is answered %d %s", a.status, a.body)
		}
	}
	e.send("GET /v1/wp/status", seen).want(429, 4, 0, 62) // the budget of the address is spent
	tokens.trouble = nil
	e.clock.Advance(time.Second)
	e.send("GET /v1/wp/status", seen).want(200, 4, 2, 60)
	e.send("GET /v1/wp/status", unseen).want(200, 4, 3, 63) // verified: the address is not spent
}

// A path with dot segments is rejected, because the handler might not resolve them
// (D10).
func TestDotSegmentsAreRejected(t *testing.T) {
	reached := false
	e := setUp(t, func(http.ResponseWriter, *http.Request) { reached = true })
	for _, path := range []string{
		"/v1/wp/status/../../../x", "/x/../v1/wp/status", "/v1/wp/./status", "/v1/wp/..;/x", "/v1/wp/%2e%2e/x",
	} {
		if a := e.send("GET " + path); a.status != 400 || a.field("X-RateLimit-Limit") == "" {
			t.Errorf("%s is answered %d, with limit %q", path, a.status, a.field("X-RateLimit-Limit"))
		}
		e.clock.Advance(time.Minute)
	}
	if reached {
		t.Error("a path with dot segments reached the handler")
	}
	if e.send("GET /elsewhere/../else"); !reached {
		t.Error("a path that no route covers was not passed on untouched")
	}
}

// A segment of parameters alone is a name for Go's handlers, and none for others (D10).
func TestASegmentOfParametersAloneIsRejected(t *testing.T) {
	policy := weir.Policy{Limiters: []weir.Limiter{{
		Name: "login", Routes: []weir.Route{{Method: "POST", Path: "/login/{user}"}},
		Windows: []weir.Window{{Limit: 5, Per: time.Minute, Key: weir.Key{{"ip"}}}},
	}}}
	m := perPolicy(t, policy, httplimit.Options{})
	limited := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for path, want := range map[string]int{"/login/ann": 200, "/login/ann;x": 200, "/login/;x": 400, "/login/;y": 400, "/other/;x": 200} {
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		if counted := len(w.Header()["X-RateLimit-Limit"]) == 1; w.Code != want || counted == strings.HasPrefix(path, "/other") {
			t.Errorf("%s: %d, counted: %v", path, w.Code, counted)
		}
	}
}

// Trailers never contain our fields, even if the handler removed as many fields as
// it added (D19).
func TestTrailersNeverContainOurFields(t *testing.T) {
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Trailer", "Date, X-RateLimit-Remaining, X-Good")
		h.Set("X-Own", "1")
		_, _ = io.WriteString(w, strings.Repeat("body ", 1000))
		h.Del("X-Own")
		h.Set("X-RateLimit-Remaining", "999")
		h.Set("X-Good", "yes")
	})
	got := e.raw("GET /v1/wp/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + e.token() + "\r\n\r\n")
	_, trailers, found := strings.Cut(got, "\r\n0\r\n")
	if !found || strings.Contains(trailers, "999") || strings.Contains(trailers, "Date") || !strings.Contains(trailers, "X-Good: yes") {
		t.Errorf("the trailers are %q", trailers)
	}
}
