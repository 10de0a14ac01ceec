package weir

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// A siteBackend answers every request with its name, and the host and path that it has received.
func siteBackend(t *testing.T, name string) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.Host+r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The test goes through the comment of examples/policies/several-sites.yaml.
func TestTheSeveralSitesExampleDoesWhatItSays(t *testing.T) {
	for name, flags := range map[string][]string{"HTTP/1.1": nil, "HTTP/2": {"--http2-prior-knowledge"}, "net/http": {"--http1.1"}} {
		t.Run(name, func(t *testing.T) {
			api, shop := siteBackend(t, "api"), siteBackend(t, "shop")
			args := []string{"--policy", policyFile(t, readText(t, examples+"policies/several-sites.yaml")), "--upstream", "api.example.com=" + api + ",shop.example.com=" + shop, patient}
			if name == "net/http" {
				args = append(args, "--engine", "std")
			}
			s := serveWeir(t, args...)
			row := `(?m)^backend +api\.example\.com at ` + regexp.QuoteMeta(api) + `; shop\.example\.com at ` + regexp.QuoteMeta(shop) + `$`
			if _, err := s.stdout.await(regexp.MustCompile(row)); err != nil {
				t.Error(err)
			}
			send := func(method, host, path string) reply {
				t.Helper()
				return curl(t, append(append([]string{"-X", method, "-H", "Host: " + host}, flags...), s.url+path)...)
			}
			want := func(r reply, status int, body string, limit, remaining int64) {
				t.Helper()
				// HTTP/2 has them in lower case.
				counts := [][]string{r.values("X-RateLimit-Limit"), r.values("X-RateLimit-Remaining")}
				if r.status != status || status == 200 && r.body != body || fmt.Sprint(counts) != fmt.Sprintf("[[%d] [%d]]", limit, remaining) {
					t.Errorf("answered %d %q, want %d %q with %d of %d remaining: %v", r.status, r.body, status, body, remaining, limit, r.fields)
				}
			}

			// Each host has its backend and its limiter, in every spelling.
			want(send("GET", "api.example.com", "/v1"), 200, "api api.example.com/v1", 600, 599)
			want(send("GET", "shop.example.com", "/v1"), 200, "shop shop.example.com/v1", 300, 299)
			want(send("GET", "SHOP.example.com", "/v1"), 200, "shop SHOP.example.com/v1", 300, 298)
			want(send("GET", "shop.example.com:8443", "/v1"), 200, "shop shop.example.com:8443/v1", 300, 297)
			want(send("GET", "shop.example.com.", "/v1"), 200, "shop shop.example.com./v1", 300, 296)

			// Logins of both hosts share one budget.
			for i := range int64(10) {
				host := [...]string{"api.example.com", "shop.example.com"}[i%2]
				want(send("POST", host, "/login"), 200, strings.TrimSuffix(host, ".example.com")+" "+host+"/login", 10, 9-i)
			}
			for _, host := range []string{"api.example.com", "shop.example.com", "API.EXAMPLE.COM:80"} {
				want(send("POST", host, "/login"), 429, "", 10, 0)
			}
			want(send("GET", "api.example.com", "/login"), 200, "api api.example.com/login", 600, 598)

			// Another host is misdirected, and counted by the routes for all hosts.
			for i, host := range []string{"example.com", "api.example.com.example.net", "127.0.0.1"} {
				r := send("GET", host, "/v1")
				want(r, 421, "", 60, 59-int64(i))
				if r.code(t) != "misdirected_request" {
					t.Errorf("%s: %s", host, r.body)
				}
			}
		})
	}
}

// A policy and --upstream that name different hosts are warned of when serve starts.
func TestServeWarnsOfHostsThatNoUpstreamServes(t *testing.T) {
	policy := policyFile(t, "limiters:\n  - name: api\n    routes: [api.example.com/*, books.example.com/*, '*.example.org/*']\n    windows: [60 per minute by ip]\n")
	s := serveWeir(t, "--policy", policy, "--upstream", "api.example.com="+siteBackend(t, "api")+",bücher.example="+siteBackend(t, "books"))
	for _, line := range []string{
		`level=WARN msg="no --upstream is for a host that routes name, so its requests are answered 421: .*" host=books\.example\.com`,
		`level=WARN msg="no --upstream is for a host .*" host=\*\.example\.org`,
		`level=WARN msg="no route covers the host of an upstream, so its requests are not limited: .*" host=xn--bcher-kva\.example`,
	} {
		if _, err := s.stderr.await(regexp.MustCompile(line)); err != nil {
			t.Error(err)
		}
	}
}
