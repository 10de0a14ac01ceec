package weir

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/e2e/nginxtest"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
)

// A tap forwards TCP connections to a server, and records what clients send.
type tap struct {
	addr string

	mu   sync.Mutex
	sent []byte
}

func newTap(t *testing.T, server string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tp := &tap{addr: l.Addr().String()}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { tp.pass(client, server) })
		}
	})
	return tp
}

func (tp *tap) pass(client net.Conn, server string) {
	defer client.Close()
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(client, up); _ = client.Close() })
	_, _ = io.Copy(up, io.TeeReader(client, tp))
	_ = up.Close()
	back.Wait()
}

func (tp *tap) Write(p []byte) (int, error) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.sent = append(tp.sent, p...)
	return len(p), nil
}

func (tp *tap) String() string {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return string(tp.sent)
}

// operatorToken returns the operator's token of a data directory.
func operatorToken(t *testing.T, data string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// adminURL returns the URL of a server's admin listener.
func (s *server) adminURL(t *testing.T) string {
	t.Helper()
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	return m[1]
}

func hostOf(t *testing.T, s string) string {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// proving returns a handler that proves that it knows a token, as the admin
// listener does, and that token. next answers other requests.
func proving(t *testing.T, next http.Handler) (h http.Handler, token string) {
	t.Helper()
	tokens := admin.OpenTokens(t.TempDir(), admin.TokensOptions{})
	token, err := tokens.Create(t.Context(), "ada", admin.Admin, "")
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/challenge" {
			next.ServeHTTP(w, r)
			return
		}
		a, err := tokens.Prove(r.URL.Query(), r.Host)
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(a) // the client may be gone
	}), token
}

func always(status int, field, value, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(field, value)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

// A server that cannot prove that it knows the token never receives it, no matter
// what it answers.
func TestTheTokenIsNotSentToAnotherServer(t *testing.T) {
	own := serveWeir(t, "--policy", "contract", "--upstream", accepting(t))
	token := operatorToken(t, own.data)
	other := serveWeir(t)
	listen := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return hostOf(t, s.URL)
	}
	tls := httptest.NewTLSServer(always(http.StatusOK, "X-Any", "1", "{}"))
	t.Cleanup(tls.Close)
	// Host becomes the real server's.
	renaming := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: hostOf(t, own.adminURL(t))})
	}}
	const notAdmin = " is not an admin listener: it answers "
	for _, row := range []struct {
		name, server, want string
	}{
		{"the public listener, before an upstream", hostOf(t, own.url), notAdmin},
		{"the public listener, with the sample backend", hostOf(t, other.url), notAdmin},
		{"the admin listener of another server", hostOf(t, other.adminURL(t)), "does not know the token, so it was not sent"},
		{"nginx", nginxtest.Start(t, "server { listen LISTEN; location / { return 200 '{}'; } }").Addr, notAdmin},
		{"a server that answers 200 to everything", listen(always(http.StatusOK, "Content-Type", "application/json", `{"host":"127.0.0.1","proof":"","windows":[]}`)), notAdmin},
		{"a server that redirects to the real one", listen(always(http.StatusTemporaryRedirect, "Location", own.adminURL(t)+"/challenge", "")), notAdmin},
		{"a server that asks for a token", listen(always(http.StatusUnauthorized, "WWW-Authenticate", `Bearer realm="weir admin"`, `{"error":{"code":"unauthorized","message":"Send it."}}`)), "does not know the token, so it was not sent"},
		{"a server that asks the real one under its name", listen(renaming), "forwards requests"},
		{"a port that speaks TLS", hostOf(t, tls.URL), notAdmin},
	} {
		for _, command := range [][]string{
			{"key", "show", "--ip", "192.0.2.7"},
			{"key", "reset", "--ip", "192.0.2.7", "--why", "a test"},
			{"key", "grant", "--ip", "192.0.2.7", "--limiter", "all", "--times", "2", "--for", "1h", "--why", "a test"},
			{"denial", "AVs8RGzhaOA1"},
		} {
			t.Run(row.name+"/"+strings.Join(command[:2], " "), func(t *testing.T) {
				tp := newTap(t, row.server)
				stdout, stderr, code := weirCommand(t.Context(), t, append(command, "--admin", tp.addr, "--data", own.data)...)
				if code != cli.Failed || stdout != "" || !strings.Contains(stderr, row.want) || !strings.Contains(stderr, "hint: ") {
					t.Errorf("status %d, %q, %s", code, stdout, stderr)
				}
				if sent := tp.String(); sent == "" || strings.Contains(sent, "Authorization") || strings.Contains(sent, token) || strings.Contains(sent, "192.0.2.7") {
					t.Errorf("it was sent:\n%s", sent)
				}
			})
		}
	}
}

// A proof holds only for its connection. If a server answers the challenge and
// closes, another connection to it is not trusted.
func TestTheProofHoldsOnlyForItsConnection(t *testing.T) {
	honest, token := proving(t, http.NotFoundHandler())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		honest.ServeHTTP(w, r)
	}))
	defer s.Close()
	tp := newTap(t, hostOf(t, s.URL))
	_, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", tp.addr, "--admin-token", token)
	if code != cli.Failed || !strings.Contains(stderr, "closed the connection") || strings.Contains(tp.String(), "Authorization") {
		t.Errorf("status %d: %s\n%s", code, stderr, tp)
	}
}

// Through a tunnel that forwards bytes, and over TLS, commands work as they do on
// the server's machine.
func TestOperatorCommandsWorkThroughATunnelAndTLS(t *testing.T) {
	plain := serveWeir(t, "--policy", "contract", "--upstream", accepting(t))
	tp := newTap(t, hostOf(t, plain.adminURL(t)))
	stdout, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", tp.addr, "--data", plain.data, "--json")
	if code != cli.Done || !json.Valid([]byte(stdout)) || strings.Count(tp.String(), operatorToken(t, plain.data)) != 1 {
		t.Errorf("status %d: %s %s\n%s", code, stdout, stderr, tp)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	secure := serveWeir(t, "--policy", "contract", "--upstream", accepting(t), "--tls-cert", cert, "--tls-key", key, "--admin", ":0")
	at := secure.adminURL(t)
	if _, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", at, "--data", secure.data); code != cli.Failed || !strings.Contains(stderr, "SSL_CERT_FILE") {
		t.Errorf("an untrusted certificate: status %d: %s", code, stderr)
	}
	if _, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", hostOf(t, at), "--data", secure.data); code != cli.Failed || !strings.Contains(stderr, "--admin https://") {
		t.Errorf("over plain HTTP: status %d: %s", code, stderr)
	}
	t.Setenv("SSL_CERT_FILE", cert)
	if stdout, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", at, "--data", secure.data, "--json"); code != cli.Done || !json.Valid([]byte(stdout)) {
		t.Errorf("by TLS: status %d: %s %s", code, stdout, stderr)
	}
}

// A certificate for callers does not get between operators and a server on their machine: at a
// loopback address the listeners for operators use plain HTTP, which commands use by default.
func TestOperatorsNeedNoCertificateAtALoopbackAddress(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	s := serveWeir(t, "--policy", "contract", "--upstream", accepting(t), "--tls-cert", cert, "--tls-key", key, "--metrics", "127.0.0.1:0", "--metrics-open")
	at := s.adminURL(t)
	if !strings.HasPrefix(s.url, "https://") || !strings.HasPrefix(at, "http://127.0.0.1:") {
		t.Fatalf("callers are at %s, operators at %s", s.url, at)
	}
	stdout, stderr, code := weirCommand(t.Context(), t, "key", "show", "--ip", "192.0.2.7", "--admin", hostOf(t, at), "--data", s.data, "--json")
	if code != cli.Done || !json.Valid([]byte(stdout)) {
		t.Errorf("status %d: %s %s", code, stdout, stderr)
	}
	metrics := regexp.MustCompile(`(?m)^metrics +(http://\S+/metrics),`).FindStringSubmatch(s.stdout.String())
	if metrics == nil {
		t.Fatalf("start-up prints no http URL of the metrics:\n%s", s.stdout.String())
	}
	if page := curl(t, metrics[1]); page.status != http.StatusOK || !strings.Contains(page.body, "weir_build_info") {
		t.Errorf("GET %s: %d", metrics[1], page.status)
	}
}
