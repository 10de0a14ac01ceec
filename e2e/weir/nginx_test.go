package weir

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/nginxtest"
)

// An operator's own backend. It reports the requests it received, and writes fields
// that only Weir may write.
const nginxBackend = `
server {
	listen LISTEN;
	location / {
		add_header X-RateLimit-Limit 9 always;
		add_header x-ratelimit-remaining 9 always;
		add_header Retry-After 9 always;
		return 200 "$request_method $request_uri host=$http_host forwarded=$http_x_forwarded_for override=$http_x_http_method_override\n";
	}
	location /api/v1/widget/busy {
		add_header Retry-After 17 always;
		default_type text/plain;
		return 429 "nginx is busy\n";
	}
	location /api/v1/widget/broken { return 500 "broken\n"; }
	location /api/v1/widget/cut { return 444; }
}`

func TestWithNginxBehindIt(t *testing.T) {
	backend := nginxtest.Start(t, nginxBackend)
	s := serveWeir(t, "--policy", "contract", "--upstream", "http://"+backend.Addr)

	t.Run("the limits are the contract's, and the fields ours", func(t *testing.T) {
		wantExactly(t, s.url, 60, call{method: http.MethodPost, path: "/api/v1/widget/satisfaction", body: "{}", foreign: true}, 200)
		wantRefusal(t, curl(t, s.url+"/api/v1/widget/satisfaction", "-d", "{}"), 60, time.Minute, widgetMessage)
		r := curl(t, s.url+"/api/v1/widget/typing", "-d", "{}")
		wantStanding(t, r, 600, 60)
		if r.integer(t, "X-RateLimit-Remaining") != 599 {
			t.Errorf("the first typing leaves %v", r.fields)
		}
	})
	t.Run("it receives the canonical path, one forwarded chain and the host asked for", func(t *testing.T) {
		r := curl(t, "--path-as-is", s.url+"/v1/wp/./x/../a%7Eb?q=%2e", "-H", "Host: api.example.com",
			"-H", "X-Forwarded-For: 198.51.100.9", "-H", "X-HTTP-Method-Override: DELETE")
		want := "GET /v1/wp/a~b?q=%2e host=api.example.com forwarded=127.0.0.1 override=\n"
		if r.status != 200 || r.body != want {
			t.Errorf("nginx received\n%s, want\n%s", r.body, want)
		}
		wantStanding(t, r, 60, 60)
	})
	t.Run("its own 429 stays, with our fields and its Retry-After", func(t *testing.T) {
		r := curl(t, s.url+"/api/v1/widget/busy")
		if r.status != 429 || r.body != "nginx is busy\n" || r.one(t, "Retry-After") != "17" || r.one(t, "X-RateLimit-Remaining") != "0" {
			t.Errorf("%d %v %s", r.status, r.fields, r.body)
		}
	})
	t.Run("its errors pass", func(t *testing.T) {
		r := curl(t, s.url+"/api/v1/widget/broken")
		if r.status != 500 || r.body != "broken\n" {
			t.Errorf("%d %s", r.status, r.body)
		}
		wantStanding(t, r, 6000, 60)
	})
	t.Run("what lies outside the surfaces passes without fields", func(t *testing.T) {
		for _, path := range []string{"/", "/api/v2/widget/leads"} {
			r := curl(t, s.url+path)
			// nginx's own fields are irrelevant there.
			if r.status != 200 || len(r.values("X-RateLimit-Reset")) != 0 {
				t.Errorf("%s: %d %v", path, r.status, r.fields)
			}
		}
	})
	t.Run("a connection cut short is a 502 in our shape", func(t *testing.T) {
		wantUnavailable(t, curl(t, s.url+"/api/v1/widget/cut"))
	})
	t.Run("so is a backend that is gone", func(t *testing.T) {
		if err := backend.Stop(); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, curl(t, s.url+"/api/v1/widget/anything"))
	})
	s.end(t)
}

func wantUnavailable(t *testing.T, r reply) {
	t.Helper()
	if r.status != http.StatusBadGateway || r.code(t) != "upstream_unavailable" {
		t.Errorf("%d %s, want 502 upstream_unavailable", r.status, r.body)
	}
	wantStanding(t, r, 6000, 60)
}

// Behind a trusted proxy, the client is the address that the proxy reports. An
// untrusted peer's report is ignored (D12).
func TestBehindNginx(t *testing.T) {
	s := serveWeir(t, "--trusted-proxies", "127.0.0.1")
	addr := nginxtest.Start(t, fmt.Sprintf(`
server {
	listen LISTEN;
	location / {
		proxy_pass %s;
		proxy_set_header Host $http_host;
		proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
	}
}`, s.url)).Addr
	satisfaction := func(from, url string, more ...string) reply {
		return curl(t, append([]string{"--interface", from, url + "/api/v1/widget/satisfaction", "-d", "{}"}, more...)...)
	}
	remaining := func(r reply) int64 { return r.integer(t, "X-RateLimit-Remaining") }

	// Each request claims another address; all come from 127.0.0.2.
	for n := range int64(60) {
		r := satisfaction("127.0.0.2", "http://"+addr, "-H", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", n))
		if remaining(r) != 59-n {
			t.Fatalf("request %d through nginx: %d %v; want %d remaining", n+1, r.status, r.fields, 59-n)
		}
	}
	wantRefusal(t, satisfaction("127.0.0.2", "http://"+addr, "-H", "X-Forwarded-For: 203.0.113.1, 127.0.0.1"), 60, time.Minute, widgetMessage)

	if got := remaining(satisfaction("127.0.0.3", "http://"+addr)); got != 59 {
		t.Errorf("the first request of 127.0.0.3 leaves %d, want 59: it is another client", got)
	}
	// If a request bypasses nginx, its peer is not a trusted proxy, so the field is
	// ignored.
	if got := remaining(satisfaction("127.0.0.4", s.url, "-H", "X-Forwarded-For: 127.0.0.2")); got != 59 {
		t.Errorf("the first request of 127.0.0.4 leaves %d, want 59: it is not 127.0.0.2", got)
	}
	if got := remaining(satisfaction("127.0.0.4", s.url, "-H", "X-Forwarded-For: 127.0.0.9")); got != 58 {
		t.Errorf("the second request of 127.0.0.4 leaves %d, want 58", got)
	}
	s.end(t)
}

// nginx buffers answers by default, and forwards an event stream at once. Each
// event is read before the next is reported, so that no later data can have flushed
// it.
func TestEventsPassThroughNginxAtOnce(t *testing.T) {
	s := serveWeir(t, "--trusted-proxies", "127.0.0.1")
	addr := nginxtest.Start(t, fmt.Sprintf("server { listen LISTEN; location / { proxy_pass %s; } }", s.url)).Addr
	visitor := session(t, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	f, err := openFeed(ctx, http.DefaultClient, "http://"+addr, visitor, "")
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 5; n++ {
		if err := f.want(n, n); err != nil {
			t.Fatal(err)
		}
		if err := reportEvent("http://"+addr, visitor, "{}"); err != nil {
			t.Fatal(err)
		}
	}
	s.end(t)
	if err := f.want(6, 6); err != nil { // the drain's end is forwarded too
		t.Error(err)
	}
	if _, err := f.next(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
}

// With --proxy-protocol the header is required from trusted peers, and rejected
// from others (D12).
func TestBehindTheProxyProtocol(t *testing.T) {
	for name, behind := range map[string][]string{"the sample backend": nil, "an upstream": {"--policy", "contract", "--upstream", accepting(t)}} {
		t.Run(name, func(t *testing.T) {
			s := serveWeir(t, append(behind, "--trusted-proxies", "127.0.0.1", "--proxy-protocol")...)
			path := s.url + "/api/v1/widget/satisfaction"
			r := curl(t, "--haproxy-protocol", path, "-d", "{}")
			wantStanding(t, r, 60, 60)
			if r := curl(t, "--interface", "127.0.0.2", path, "-d", "{}"); r.integer(t, "X-RateLimit-Remaining") != 59 {
				t.Errorf("a peer that is not a proxy is counted as another address: %v", r.fields)
			}
			for _, args := range [][]string{{path}, {"--haproxy-protocol", "--interface", "127.0.0.2", path}} {
				cmd := exec.Command("curl", append([]string{"-q", "-s", "-i", "--max-time", "60"}, args...)...)
				if out, err := cmd.Output(); err == nil && !strings.Contains(string(out), " 400 ") {
					t.Errorf("curl %v was answered:\n%s", args, out)
				}
			}
			s.end(t)
		})
	}
}
