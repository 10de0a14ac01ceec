package weir

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/weirlimit/weir/e2e/pebbletest"
	"github.com/weirlimit/weir/internal/acme"
)

// pebble builds the authority of these tests once.
var pebble = sync.OnceValues(func() (string, error) { return pebbletest.Build(binDir) })

func startPebble(t *testing.T, o pebbletest.Options) *pebbletest.Authority {
	t.Helper()
	path, err := pebble()
	if err != nil {
		t.Fatal(err)
	}
	return pebbletest.Start(t, path, o)
}

// acmeFlags are the flags of a server whose certificates come from a.
func acmeFlags(a *pebbletest.Authority, names string, more ...string) []string {
	return append([]string{"--acme", names, "--acme-agree", "--acme-directory", a.Directory, "--acme-ca", a.CAFile, "--access-log=off"}, more...)
}

// redirectAt matches the URL of the listener that redirects.
var redirectAt = regexp.MustCompile(`(?m)^redirect +(http://\S+?),`)

// issuedTo matches the log line of a certificate.
func issuedTo(name string) *regexp.Regexp {
	return regexp.MustCompile(`msg="a certificate was issued by ACME" name=` + regexp.QuoteMeta(name) + ` `)
}

// awaitIssued waits until names have a certificate.
func (s *server) awaitIssued(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.stderr.await(issuedTo(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// curlName asks for a path of a name at this server, and verifies the certificate by a root.
func (s *server) curlName(t *testing.T, root, name, path string, flags ...string) reply {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	return curl(t, append([]string{"--cacert", root, "--resolve", name + ":" + port + ":127.0.0.1", "https://" + name + ":" + port + path}, flags...)...)
}

// rootFile writes what the certificates of an authority are verified by.
func rootFile(t *testing.T, a *pebbletest.Authority) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(path, a.Root(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A server without certificates gets those of its names at the listener that they are for, serves
// them by HTTP/1.1 and HTTP/2, and has them after a restart without the authority.
func TestTheServerGetsItsCertificatesByACME(t *testing.T) {
	a := startPebble(t, pebbletest.Options{})
	data, policy := t.TempDir(), policyFile(t, onePolicy(1000))
	flags := acmeFlags(a, "api.example.com,www.example.com", "--policy", policy, "--upstream", siteBackend(t, "api"))
	s := serveIn(t, data, flags...)
	a.TLS.To(s.url)
	s.awaitIssued(t, "api.example.com", "www.example.com")
	root := rootFile(t, a)
	check := func() {
		t.Helper()
		for _, name := range []string{"api.example.com", "www.example.com"} {
			for _, flag := range []string{"--http1.1", "--http2"} {
				if r := s.curlName(t, root, name, "/x", flag); r.status != 200 || !strings.HasPrefix(r.body, "api "+name) {
					t.Errorf("%s %s: %d %q", name, flag, r.status, r.body)
				}
			}
		}
		if r := s.curlName(t, root, "api.example.com", "/readyz"); r.status != 200 || r.body != "ok\n" {
			t.Errorf("/readyz: %d %q", r.status, r.body)
		}
	}
	check()
	checkACMEFiles(t, filepath.Join(data, "acme"))
	s.end(t)
	a.TLS.To()
	a.Names.Resolve(false)
	s = serveIn(t, data, flags...)
	check()
	if log := s.stderr.String(); strings.Contains(log, "level=WARN") || issuedTo("api.example.com").MatchString(log) {
		t.Errorf("after the restart:\n%s", log)
	}
	s.end(t)
}

// checkACMEFiles checks that nobody else can read what is stored.
func checkACMEFiles(t *testing.T, dir string) {
	t.Helper()
	keys := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if filepath.Ext(path) == ".key" {
			keys++
		}
		return err
	})
	if err != nil || keys != 3 { // two names, and the account
		t.Errorf("%d keys: %v", keys, err)
	}
}

// If the authority cannot reach port 443, it validates names at the listener that redirects. An
// external account is bound.
func TestTheListenerThatRedirectsAnswersTheAuthority(t *testing.T) {
	key := base64.RawURLEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	a := startPebble(t, pebbletest.Options{Binding: [2]string{"customer-1", key}})
	keyFile := filepath.Join(t.TempDir(), "eab.key")
	replaceFile(t, keyFile, key+"\n")
	s := serveWeir(t, acmeFlags(a, "api.example.com", "--redirect", "127.0.0.1:0", "--acme-eab-id", "customer-1", "--acme-eab-key", keyFile, "--acme-email", "ops@example.com")...)
	at, err := s.stdout.await(redirectAt)
	if err != nil {
		t.Fatal(err)
	}
	a.TLS.To()
	a.HTTP.To(at[1])
	s.awaitIssued(t, "api.example.com")
	if r := s.curlName(t, rootFile(t, a), "api.example.com", "/healthz"); r.status != 200 {
		t.Errorf("%d", r.status)
	}
	r := curl(t, "-X", "POST", "-H", "Host: api.example.com", "--path-as-is", at[1]+"/v1/a%2Fb/../c?x=%20&y")
	_, port, _ := strings.Cut(strings.TrimPrefix(s.url, "https://"), ":")
	if want := "https://api.example.com:" + port + "/v1/a%2Fb/../c?x=%20&y"; r.status != 308 || r.one(t, "Location") != want {
		t.Errorf("%d %q, want %s", r.status, r.fields, want)
	}
	if r := curl(t, at[1]); r.status != 421 {
		t.Errorf("a host that has no certificate: %d", r.status)
	}
	s.end(t)
}

// While the authority refuses a name, the server serves its other names, reports why at one place
// each, and gets the certificate once the reason is gone.
func TestANameThatTheAuthorityRefusesDoesNotStopTheOthers(t *testing.T) {
	a := startPebble(t, pebbletest.Options{})
	a.Names.Resolve(false)
	data, dir := t.TempDir(), t.TempDir()
	cert, keyPath := filepath.Join(dir, "shop.pem"), filepath.Join(dir, "shop.key")
	if err := writeCertificate(cert, keyPath, "shop.example.com"); err != nil {
		t.Fatal(err)
	}
	flags := acmeFlags(a, "api.example.com", "--tls-cert", cert, "--tls-key", keyPath)
	s := serveIn(t, data, flags...)
	a.TLS.To(s.url)
	const warning = `level=WARN msg="no certificate by ACME for a name: `
	if _, err := s.stderr.await(regexp.MustCompile(regexp.QuoteMeta(warning) + `.*name=api\.example\.com .*api\.example\.com`)); err != nil {
		t.Fatal(err)
	}
	if r := s.curlName(t, cert, "shop.example.com", "/readyz"); r.status != 200 || r.body != "degraded: no valid certificate by ACME for api.example.com\n" {
		t.Errorf("/readyz: %d %q", r.status, r.body)
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true})
	if err == nil || err.Error() != "remote error: tls: unrecognized name" {
		t.Errorf("a handshake for the name: %v %v", c, err)
	}
	s.end(t)
	if n := strings.Count(s.stderr.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, s.stderr)
	}
	a.Names.Resolve(true)
	s = serveIn(t, data, flags...)
	a.TLS.To(s.url)
	s.awaitIssued(t, "api.example.com")
	if r := s.curlName(t, rootFile(t, a), "api.example.com", "/readyz"); r.body != "ok\n" {
		t.Errorf("/readyz: %q", r.body)
	}
	s.end(t)
}

// A certificate is renewed while connections are made, and later ones get the new one.
func TestACertificateByACMEIsRenewedInPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a certificate is renewed after two thirds of its life, which is 15 s")
	}
	a := startPebble(t, pebbletest.Options{Life: 15 * time.Second})
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Root()) {
		t.Fatal("no root")
	}
	own := x509.NewCertPool()
	if b, err := os.ReadFile(a.CAFile); err != nil || !own.AppendCertsFromPEM(b) {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := newLines()
	read, write := io.Pipe()
	go log.read(read)
	m, err := acme.New(acme.Options{
		Names: []string{"api.example.com"}, Directory: a.Directory, Roots: own, Dir: filepath.Join(t.TempDir(), "acme"),
		Listen: netip.MustParseAddrPort(l.Addr().String()), RenewEvery: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(write, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	config := &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return m.Challenge(hello), nil },
		GetCertificate:     func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.Certificate("api.example.com"), nil },
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(tls.NewListener(l, config)) })
	running.Go(func() { m.Run(ctx) })
	defer func() {
		cancel()
		server.Close()
		running.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		write.Close()
	}()
	a.TLS.To(l.Addr().String())
	if _, err := log.await(issuedTo("api.example.com")); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	deadline, look := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer look.Stop()
	for len(seen) < 2 {
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("%d certificates:\n%s", len(seen), log)
		}
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true})
		if err != nil && len(seen) == 0 {
			continue // it is stored, and not in use yet
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[verified(t, c.ConnectionState().PeerCertificates, roots)] = true
		c.Close()
	}
}

// verified verifies a chain at the beginning of its life, since a test may be slow, and returns its
// serial number.
func verified(t *testing.T, chain []*x509.Certificate, roots *x509.CertPool) string {
	t.Helper()
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	o := x509.VerifyOptions{DNSName: "api.example.com", Roots: roots, Intermediates: between, CurrentTime: chain[0].NotBefore}
	if _, err := chain[0].Verify(o); err != nil {
		t.Fatal(err)
	}
	return chain[0].SerialNumber.String()
}

// Of servers that share a directory, one asks, and each can answer the authority, which connects to
// both.
func TestServersThatShareTheirCertificatesAnswerForEachOther(t *testing.T) {
	a := startPebble(t, pebbletest.Options{})
	shared := filepath.Join(t.TempDir(), "acme")
	// A lock keeps both from asking before the other has started.
	lock := flock.New(filepath.Join(shared, "locks", "issue_cert_api.example.com.lock"))
	if err := os.MkdirAll(filepath.Dir(lock.Path()), 0o700); err != nil {
		t.Fatal(err)
	}
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	flags := acmeFlags(a, "api.example.com", "--acme-dir", shared)
	one, two := serveWeir(t, flags...), serveWeir(t, flags...)
	a.TLS.To(one.url, two.url)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	var serials []string
	for _, s := range []*server{one, two} {
		s.awaitHandshake(t)
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		serials = append(serials, c.ConnectionState().PeerCertificates[0].SerialNumber.String())
		c.Close()
	}
	asked := issuedTo("api.example.com").FindAllString(one.stderr.String()+two.stderr.String(), -1)
	if serials[0] != serials[1] || len(asked) != 1 {
		t.Errorf("they have %v; they logged:\n%s%s", serials, one.stderr, two.stderr)
	}
	one.end(t)
	two.end(t)
}

// awaitHandshake waits until a server has a certificate in use.
func (s *server) awaitHandshake(t *testing.T) {
	t.Helper()
	deadline, look := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer look.Stop()
	for {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{ServerName: "api.example.com", InsecureSkipVerify: true})
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			t.Fatalf("%v:\n%s", err, s.stderr)
		}
	}
}

// A process that is killed while it asks leaves nothing that stops the next one.
func TestAKilledServerDoesNotStopTheNextFromAsking(t *testing.T) {
	a := startPebble(t, pebbletest.Options{})
	data := t.TempDir()
	asked, release := make(chan struct{}), make(chan struct{})
	gate, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	go func() { // the authority validates here, and waits
		if c, err := gate.Accept(); err == nil {
			close(asked)
			<-release
			c.Close()
		}
	}()
	a.TLS.To(gate.Addr().String())
	s := serveIn(t, data, acmeFlags(a, "api.example.com")...)
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatalf("the authority does not validate:\n%s", s.stderr)
	}
	if _, err := s.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	close(release)
	s = serveIn(t, data, acmeFlags(a, "api.example.com")...)
	a.TLS.To(s.url)
	s.awaitIssued(t, "api.example.com")
	s.end(t)
}
