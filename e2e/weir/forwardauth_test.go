package weir

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/child"
	"github.com/weirlimit/weir/e2e/nginxtest"
)

const forwardAuthPolicy = `{limiters: [{name: leads, routes: [POST /api/leads], windows: [30 per minute by ip]}, {name: all, routes: [/*], windows: [6000 per minute by ip]}]}`

// serveForwardAuth starts a server that only answers a proxy.
func serveForwardAuth(t *testing.T, proxy, policy string, args ...string) *server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	cmd := exec.Command(path, append([]string{"serve", "--data", data, "--policy", policyFile(t, policy), "--access-log=off",
		"--forward-auth", "127.0.0.1:0", "--forward-auth-proxy", proxy, "--forward-auth-peers", "127.0.0.1"}, args...)...)
	cmd.Env, cmd.Dir = cleanEnv(), t.TempDir()
	return begin(t, cmd, data)
}

// leadsBackend counts the leads that reach it, and reports fields that only Weir may write.
func leadsBackend(t *testing.T) (addr string, leads *atomic.Int64) {
	t.Helper()
	leads = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(strings.ToLower(r.URL.Path), "leads") {
			leads.Add(1)
		}
		w.Header().Set("X-RateLimit-Limit", "9")
		fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), leads
}

// proxyExample returns a file of examples/ with the addresses of a test.
func proxyExample(t *testing.T, path, weir, backend string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", path))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("127.0.0.1:9000", strings.TrimPrefix(weir, "http://"), "127.0.0.1:3000", backend).Replace(string(text))
}

func TestNginxAsksAboutEachRequest(t *testing.T) {
	backend, leads := leadsBackend(t)
	s := serveForwardAuth(t, "nginx", forwardAuthPolicy)
	proxy := nginxtest.Start(t, nginxExample(t, s.url, backend))
	throughProxy(t, "http://"+proxy.Addr, leads)
	wantRefusal(t, curl(t, "http://"+proxy.Addr+"/api/leads", "-d", "{}"), 30, time.Minute, "Too many requests. Please slow down.")
	s.end(t)
}

func TestCaddyAsksAboutEachRequest(t *testing.T) {
	backend, leads := leadsBackend(t)
	s := serveForwardAuth(t, "caddy", forwardAuthPolicy)
	addr := startCaddy(t, proxyExample(t, "caddy/Caddyfile", s.url, backend))
	throughProxy(t, "http://"+addr, leads)
	s.end(t)
}

// A proxy before Caddy passes on what its client has sent, and Caddy passes it on too if it trusts
// the proxy.
func TestAClientOfCaddyCannotChooseItsHost(t *testing.T) {
	backend, _ := leadsBackend(t)
	const policy = `{limiters: [{name: partners, routes: [partners.example.com/*], windows: [9000 per minute by ip]}, {name: all, routes: [/*], windows: [3 per minute by ip]}]}`
	s := serveForwardAuth(t, "caddy", policy, "--trusted-proxies", "127.0.0.1")
	const rewrite = "rewrite /check\n" // Caddy 2.6.2 has no global trusted_proxies
	text := strings.Replace(proxyExample(t, "caddy/Caddyfile", s.url, backend), rewrite, rewrite+"trusted_proxies 127.0.0.1/32\n", 1)
	url := "http://" + startCaddy(t, text)
	asked := func(fields ...string) (limit string) {
		args := []string{url + "/things", "-H", "X-Forwarded-For: 192.0.2.7"}
		for _, f := range fields {
			args = append(args, "-H", f)
		}
		return strings.Join(curl(t, args...).values("X-RateLimit-Limit"), " ")
	}
	for _, forged := range []string{"partners.example.com", "partners.example.com:80"} {
		if limit := asked("X-Forwarded-Host: " + forged); limit != "3" {
			t.Errorf("with X-Forwarded-Host: %s the limit is %s, want 3", forged, limit)
		}
	}
	for _, host := range []string{"partners.example.com", "partners.example.com:8080"} {
		if limit := asked("Host: "+host, "X-Forwarded-Host: shop.example.com"); limit != "9000" {
			t.Errorf("with Host: %s the limit is %s, want 9000", host, limit)
		}
	}
	if limit := asked("Host: [::1]:8080"); limit != "3" {
		t.Errorf("with an address of IPv6 as its host the limit is %s, want 3", limit)
	}
	s.end(t)
}

// startCaddy starts Caddy with a Caddyfile, and returns its address.
func startCaddy(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := l.Addr().String(), t.TempDir()
	_ = l.Close()
	text = "{\n\tadmin off\n}\n" + strings.Replace(text, "\n:8080 {", "\nhttp://:"+strings.TrimPrefix(addr, "127.0.0.1:")+" {\n\tbind 127.0.0.1", 1)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("caddy", "run", "--config", filepath.Join(dir, "Caddyfile"), "--adapter", "caddyfile")
	// with several processors, Caddy 2.6 sometimes writes the name of a field as its value
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	caddy, err := child.Start(cmd, filepath.Join(dir, "said"), syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop(child.Patience) })
	err = caddy.Await("Caddy listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Keys in a field still arrive at the server, and no longer at the backend, with the lines of the
// page.
func TestAProxyThatAsksCanRemoveKeys(t *testing.T) {
	var seen atomic.Pointer[http.Header]
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(&r.Header) }))
	t.Cleanup(backend.Close)
	to, page := backend.Listener.Addr().String(), readText(t, repository+"/docs/forward-auth.md")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(lineOfKey(t, customerKey, "--id", "acme")), 0o600); err != nil {
		t.Fatal(err)
	}
	for proxy, add := range map[string]struct{ line, after string }{
		"nginx": {`proxy_set_header X-Api-Key "";`, "proxy_pass http://backend;"},
		"caddy": {"header_up -X-Api-Key", "reverse_proxy " + to + " {"},
	} {
		if !strings.Contains(page, "`"+add.line+"`") {
			t.Errorf("docs/forward-auth.md does not show %s", add.line)
		}
		for _, removed := range []bool{false, true} {
			s := serveForwardAuth(t, proxy, keyPolicy, "--token-file", keys, "--token-from", "header:X-Api-Key")
			after, line := add.after, ""
			if removed {
				line = "\n" + add.line
			}
			var url string
			if proxy == "nginx" {
				url = "http://" + nginxtest.Start(t, strings.Replace(nginxExample(t, s.url, to), after, after+line, 1)).Addr
			} else {
				url = "http://" + startCaddy(t, strings.Replace(proxyExample(t, "caddy/Caddyfile", s.url, to), after, after+line, 1))
			}
			if r := curl(t, url+"/a"); r.status != http.StatusUnauthorized {
				t.Errorf("%s: without a key it is answered %d", proxy, r.status)
			}
			r := curl(t, url+"/a", "-H", "X-Api-Key: "+customerKey)
			if r.status != http.StatusOK || strings.Join(r.values("X-RateLimit-Limit"), " ") != "8" {
				t.Fatalf("%s: with a key it is answered %d %v", proxy, r.status, r.fields)
			}
			if got := seen.Load().Get("X-Api-Key"); (got == "") != removed {
				t.Errorf("%s, the field removed: %v: the backend has got the key: %v", proxy, removed, got != "")
			}
			s.end(t)
		}
	}
}

// throughProxy checks what callers get through a proxy before a backend.
func throughProxy(t *testing.T, url string, leads *atomic.Int64) {
	t.Helper()
	wantExactly(t, url, 30, call{method: http.MethodPost, path: "/api/leads", body: "{}", foreign: true}, 200)
	served := leads.Load()
	for _, path := range []string{
		"/api/leads", "/API/Leads", "/api//leads", "/api/leads/", "/api/leads;x", "/api/%6ceads", "/api/./leads", "/x/../api/leads", "/api%2Fleads", "/api/leads.json",
		"/api/leads%3Bx", "/api/leads?x=1", "/api/%256ceads",
	} {
		r := curl(t, "--path-as-is", url+path, "-d", "{}", "-H", "X-Forwarded-For: 198.51.100.9", "-H", "X-Original-Addr: 198.51.100.9")
		if r.status != http.StatusTooManyRequests && r.status != http.StatusBadRequest {
			t.Errorf("%s is answered %d", path, r.status)
		}
	}
	for _, forged := range []string{"X-Original-URI: /free", "X-Forwarded-Uri: /free", "X-Original-Method: GET", "X-Forwarded-Method: GET", "X-Weir-Answer: AAAA", "Connection: X-Forwarded-Uri, X-Original-Uri"} {
		if r := curl(t, url+"/api/leads", "-d", "{}", "-H", forged); r.status != http.StatusTooManyRequests && r.status != http.StatusBadRequest {
			t.Errorf("with %s it is answered %d", forged, r.status)
		}
	}
	if n := leads.Load(); n != served {
		t.Errorf("%d leads reached the backend after the limit was spent", n-served)
	}
	r := curl(t, url+"/api/leads", "-d", "{}")
	if r.status != 429 || r.code(t) != "rate_limited" || len(r.values("Retry-After")) != 1 || len(r.values("X-Weir-Denial")) != 1 || strings.Join(r.values("Content-Language"), "") != "en" {
		t.Errorf("the refusal is %d %v %s", r.status, r.fields, r.body)
	}
	r = curl(t, "-I", url+"/things?q=1")
	if r.status != 200 || strings.Join(r.values("X-RateLimit-Limit"), " ") != "6000" {
		t.Errorf("a HEAD is answered %d %v", r.status, r.fields)
	}
}

// Without the line of the example, nginx would wait for a minute.
func TestNginxAnswers500IfWeirHangs(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was forwarded") }))
	t.Cleanup(backend.Close)
	const wait = "proxy_read_timeout 5s;"
	text := nginxExample(t, hangs.Addr().String(), backend.Listener.Addr().String())
	if strings.Count(text, wait) != 1 {
		t.Fatalf("the example does not have one %q", wait)
	}
	proxy := nginxtest.Start(t, strings.Replace(text, wait, "proxy_read_timeout 200ms;", 1))
	client := &http.Client{Timeout: 30 * time.Second}
	r, err := client.Get("http://" + proxy.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusInternalServerError {
		t.Errorf("it answers %d, %v: want 500", r.StatusCode, err)
	}
}

// nginxExample returns what examples/nginx/nginx.conf has in its http block, for a test's nginx.
func nginxExample(t *testing.T, weir, backend string) string {
	t.Helper()
	_, text, _ := strings.Cut(proxyExample(t, "nginx/nginx.conf", weir, backend), "http {")
	return strings.Replace(text[:strings.LastIndexByte(text, '}')], "listen 8080;", "listen LISTEN;", 1)
}
