//go:build linux

package weir

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/e2e/redistest"
)

// serveProxies starts a server that answers a proxy at an address.
func serveProxies(t *testing.T, proxy, at, policy string, args ...string) *swapped {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--policy", policy, "--forward-auth", at, "--forward-auth-proxy", proxy}, args...)
	if !strings.HasPrefix(at, "unix:") {
		args = append(args, "--forward-auth-peers", "127.0.0.1")
	}
	return swappedProgram(t, path, args...)
}

// A refusal that one server has sealed is opened by any that counts in the same Redis: nginx asks
// them in turn.
func TestServersAtUnixSocketsShareTheirRefusals(t *testing.T) {
	backend, leads := leadsBackend(t)
	dir, err := os.MkdirTemp("", "weir") // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	redis, policy := redistest.Start(t), policyFile(t, forwardAuthPolicy)
	var all []*swapped
	for _, name := range []string{"a", "b"} {
		all = append(all, serveProxies(t, "nginx", "unix:"+filepath.Join(dir, name), policy, "--store", redis.URL(), patient))
	}
	text := nginxExample(t, fmt.Sprintf("unix:%s/a;\n\t\tserver unix:%s/b", dir, dir), backend)
	proxy := nginxtest.Start(t, text)
	throughProxy(t, "http://"+proxy.Addr, leads)
	for range 4 {
		wantRefusal(t, curl(t, "http://"+proxy.Addr+"/api/leads", "-d", "{}"), 30, time.Minute, "Too many requests. Please slow down.")
	}
	for _, s := range all {
		s.end()
	}
}

// An upgrade is one request. What follows it is not seen.
func TestNginxAsksOverTLSAboutWebsockets(t *testing.T) {
	backend := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	t.Cleanup(backend.Close)
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := writeCertificate(cert, key, "weir.example.com"); err != nil {
		t.Fatal(err)
	}
	s := serveProxies(t, "nginx", "0.0.0.0:0", policyFile(t, "{limiters: [{name: all, routes: [/*], windows: [2 per minute by ip]}]}"), "--tls-cert", cert, "--tls-key", key)
	at, isTLS := strings.CutPrefix(s.url, "https://")
	if !isTLS {
		t.Errorf("it listens at %s", s.url)
	}
	text := nginxExample(t, at, backend.Listener.Addr().String())
	verified := "proxy_ssl_verify on;\nproxy_ssl_trusted_certificate " + cert + ";\nproxy_ssl_name weir.example.com;\n"
	proxy := nginxtest.Start(t, verified+strings.ReplaceAll(text, "http://weir", "https://weir"))
	for range 2 {
		c, err := websocket.Dial("ws://"+proxy.Addr+"/socket", "", "http://example.com")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", "two", "three"} {
			var got string
			if err := errors.Join(websocket.Message.Send(c, text), websocket.Message.Receive(c, &got)); err != nil || got != text {
				t.Errorf("%s comes back as %s, %v", text, got, err)
			}
		}
		_ = c.Close()
	}
	r := curl(t, "http://"+proxy.Addr+"/socket", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", "Sec-WebSocket-Version: 13", "-H", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
	if r.status != http.StatusTooManyRequests || r.code(t) != "rate_limited" {
		t.Errorf("the third upgrade is answered %d %s", r.status, r.body)
	}
	s.end()
}

// A questioner asks about one request of a client, as Traefik does.
type questioner struct{ http.RoundTripper }

func (q questioner) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0
	r.Header = http.Header{"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/x"}, "X-Forwarded-Host": {"example.com"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-For": {"192.0.2.7"}}
	return q.RoundTripper.RoundTrip(r)
}

// A policy and then a process are replaced while a proxy asks. No question fails, and exactly the
// limit is admitted.
func TestForwardAuthGoesOnWithAnotherPolicyAndInTheNextProcess(t *testing.T) {
	const low, high = 200, 900
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	replaceFile(t, policy, onePolicy(low))
	w := serveProxies(t, "traefik", "127.0.0.1:0", policy)
	callers := &tallyman{limits: map[int]bool{low: true, high: true}}
	var ended atomic.Bool
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			client := &http.Client{Timeout: patience, Transport: questioner{&http.Transport{DisableKeepAlives: i >= 2}}}
			defer client.CloseIdleConnections()
			for !ended.Load() {
				callers.ask(client, w.url+"/check")
			}
		})
	}
	callers.await(t, low+10)
	replaceFile(t, policy, onePolicy(high))
	w.signal(syscall.SIGHUP)
	if _, err := w.stderr.await(regexp.MustCompile("was replaced; counts continue")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		callers.await(t, callers.answered()+100)
		w.swap()
	}
	callers.await(t, callers.answered()+high)
	ended.Store(true)
	asking.Wait()
	callers.check(t)
	if n := len(callers.counts); n != high {
		t.Errorf("%d requests were admitted, want %d", n, high)
	}
	w.end()
}
