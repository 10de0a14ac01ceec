package weir

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/verify"
)

// settlingPolicy has a limiter of each kind whose units or slots come back.
const settlingPolicy = `limiters:
  - {name: exports, routes: [POST /exports], in_flight: "3 by header:X-Team", chosen: yes}
  - {name: reports, routes: [POST /reports], windows: ["60 per 5 seconds by header:X-Team"], in_flight: "4 by header:X-Team", chosen: yes}
  - {name: logins, routes: [POST /logins], windows: ["12 per 5 seconds by header:X-Team"], count: {status: [401]}, chosen: yes}
  - {name: reads, routes: [/reads, /reads/*], windows: ["30 per 5 seconds by header:X-Team"], count: {not: [404]}, chosen: yes}
  - {name: models, routes: [POST /models], windows: ["400 per 5 seconds by header:X-Team"], cost: {reserve: 40, from: "header:X-Cost"}, chosen: yes}
  - {name: units, routes: [POST /units], windows: ["30 requests per 5 seconds by header:X-Team", "100 per 5 seconds by header:X-Team"], cost: 5, chosen: yes}
`

// settlingBackend reads each request whole, and answers with a status and a cost for each path.
func settlingBackend(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has left gets no answer
		switch r.URL.Path {
		case "/exports", "/reports":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "/logins", "/reads", "/units":
		case "/models":
			w.Header().Set("X-Cost", "7")
		case "/logins/weir-verify-nothing": // only these are counted by their limiter
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// What the server gives back is proved from outside, with each store and each engine.
func TestVerifyProvesWhatComesBack(t *testing.T) {
	policy := policyFile(t, settlingPolicy)
	for name, args := range map[string][]string{
		"on the embedded store": nil,
		"with the other engine": {"--engine", "std"},
		"on Redis":              {"--store", redistest.Start(t).URL(), patient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeir(t, append([]string{"--policy", policy, "--access-log=off", "--upstream", settlingBackend(t)}, args...)...)
			v, stderr, code := verifyAt(t, s.url, "", "--policy", policy)
			if code != 0 || !v.Done {
				t.Errorf("status %d: %s", code, v.Error)
			}
			kept := map[string]bool{}
			for _, x := range v.Results {
				kept[x.Clause+" "+x.Limiter] = x.Verdict == verify.Kept
				if x.Verdict == verify.Broken {
					t.Errorf("%s, %s: broken: %s", x.Clause, x.Limiter, x.Detail)
				}
			}
			for _, want := range []string{
				"in-flight exports", "in-flight reports", "outcome logins", "outcome reads", "outcome models",
				"admitted reports", "remaining reports", "restored reports", "admitted reads", "refused-free reads", "admitted units", "restored units",
			} {
				if !kept[want] {
					t.Errorf("%s is not kept: %s", want, detailOf(v, want))
				}
			}
			if !strings.Contains(stderr, "are held under way together") {
				t.Errorf("the plan does not name the held requests:\n%s", stderr)
			}
			s.end(t)
		})
	}
}

// detailOf returns the detail of the verdict on a clause and a limiter.
func detailOf(v verification, at string) string {
	for _, x := range v.Results {
		if x.Clause+" "+x.Limiter == at {
			return x.Detail
		}
	}
	return "there is no verdict"
}
