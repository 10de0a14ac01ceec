package weir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
)

// A backend that answers with the request line and the fields it received.
const nginxEcho = `
merge_slashes off;
server {
	listen LISTEN;
	location / {
		return 200 "$request | $http_x_forwarded_for | $http_x_real_ip | $http_forwarded\n";
	}
}`

// nginx receives the target byte for byte, with either engine.
func TestNginxGetsTheRequestLineAsSent(t *testing.T) {
	backend := nginxtest.Start(t, nginxEcho)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "{limiters: [{name: api, routes: [/*], windows: [1000 per day by ip]}, {name: search, routes: [/v1/search], windows: [2 per day by ip]}]}"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"auto", "std"} {
		s := serveWeir(t, "--policy", policy, "--upstream", "http://"+backend.Addr, "--engine", engine,
			"--paths", "as-sent", "--methods", "PROPFIND", "--forwarded", "x-real-ip,forwarded")
		for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
			for _, c := range []struct{ method, target string }{
				{"DELETE", "/items?filter=name;eq;bob"}, {"GET", "/a?q=100%&b=%zz"}, {"GET", "/@scope%2fname"}, {"GET", "/api/v4/projects/group%2Fproject"},
				{"GET", "/img/https://example.com//a%2520b.png"}, {"GET", "/caf%E9"}, {"PROPFIND", "/dav//x"},
			} {
				r := curl(t, "--path-as-is", version, "-X", c.method, s.url+c.target, "-H", "Host: api.example.com", "-H", "X-Real-IP: 192.0.2.1")
				want := c.method + " " + c.target + " HTTP/1.1 |  | 127.0.0.1 | for=127.0.0.1;host=api.example.com;proto=http\n"
				if r.status != 200 || r.body != want {
					t.Errorf("%s %s: %d, nginx received\n%swant\n%s", engine, version, r.status, r.body, want)
				}
			}
			for _, path := range []string{"/v1%2fsearch", "/v1//search", "/x/%2e%2e/v1/search", "/x%00"} {
				if r := curl(t, "--path-as-is", version, s.url+path); r.status != 400 {
					t.Errorf("%s %s: %s is answered %d", engine, version, path, r.status)
				}
			}
		}
		for _, c := range []struct {
			path   string
			status int
		}{{"/v1/%73earch", 200}, {"/V1/search;x", 200}, {"/v1/search", 429}, {"/v1/search/x%2fy", 429}} {
			if r := curl(t, "--path-as-is", s.url+c.path); r.status != c.status {
				t.Errorf("%s: %s is answered %d, want %d", engine, c.path, r.status, c.status)
			}
		}
		if r := curl(t, "-X", "PURGE", s.url+"/x"); r.status != 405 || !strings.HasSuffix(r.one(t, "Allow"), ", PROPFIND") {
			t.Errorf("%s: PURGE is answered %d %v", engine, r.status, r.fields)
		}
	}
}
