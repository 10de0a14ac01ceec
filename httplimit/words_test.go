package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// The middleware answers in the form that the request prefers, and a HEAD has the fields alone.
func TestTheMiddlewareSendsProblems(t *testing.T) {
	p := limiters(t, map[string][]string{"api /v1/*": {"2 per minute by ip"}})
	p.Answers.Refused.Status = http.StatusForbidden
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(p, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := httplimit.New(decider, httplimit.Options{Identity: who})
	if err != nil {
		t.Fatal(err)
	}
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Origin") // as a server's own middleware for browsers does
		m.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
	})
	for _, test := range []struct {
		method, path string
		status       int
		want, vary   string
	}{
		{"GET", "/v1/a/../b", 400, `"code":"invalid_request"}`, "Origin|Accept"},
		{"GET", "/v1/x", 404, "404 page not found", "Origin"},
		{"GET", "/v1/x", 403, `"code":"rate_limited","violated-policies":["api"]}`, "Origin|Accept, Accept-Language"},
		{"HEAD", "/v1/x", 403, "", "Origin|Accept, Accept-Language"},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.URL.Path = test.path
		r.Header.Set("Accept", "application/problem+json")
		w := httptest.NewRecorder()
		outer.ServeHTTP(w, r)
		body := strings.TrimSpace(w.Body.String())
		if w.Code != test.status || !strings.HasSuffix(body, test.want) || test.want == "" && body != "" || strings.Join(w.Header()["Vary"], "|") != test.vary {
			t.Errorf("%s %s is answered %d %s with %q", test.method, test.path, w.Code, body, w.Header())
		}
		if isProblem := w.Header().Get("Content-Type") == "application/problem+json"; isProblem != (test.status != 404) {
			t.Errorf("%s %s is answered %d with %q", test.method, test.path, w.Code, w.Header())
		}
	}
}
