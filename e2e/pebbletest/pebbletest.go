// Package pebbletest runs Pebble, a small authority that speaks ACME, for a test. Only tests import
// it.
package pebbletest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/e2e/child"
	"github.com/weirlimit/weir/e2e/selfsigned"
)

// version is built by version, so that Pebble is not in the go.mod of a service that embeds Weir.
const version = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1"

// Build builds Pebble in a directory, and returns its path.
func Build(dir string) (path string, err error) {
	cmd := exec.Command("go", "install", version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install %s: %w\n%s", version, err, out)
	}
	return filepath.Join(dir, "pebble"), nil
}

// Options are what an authority is started with.
type Options struct {
	Life time.Duration // of its certificates; 0: 90 days
	// Binding, if it is not empty, is the id and the key of an external account, which the
	// authority then requires.
	Binding [2]string
}

// An Authority is a running Pebble. It validates names at TLS and HTTP, and finds them all at
// 127.0.0.1.
type Authority struct {
	t         testing.TB
	Directory string // the URL of its directory
	CAFile    string // what its own server is verified by
	TLS, HTTP *Forwarder
	Names     *Names

	management string
	client     *http.Client
}

// Start runs the Pebble that Build has built.
func Start(t testing.TB, path string, o Options) *Authority {
	t.Helper()
	dir := t.TempDir()
	a := &Authority{t: t, CAFile: filepath.Join(dir, "ca.pem"), TLS: forward(t), HTTP: forward(t), Names: serveNames(t)}
	own, err := selfsigned.Write(a.CAFile, filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own.Leaf)
	a.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(a.client.CloseIdleConnections)
	for range 10 {
		if a.run(path, dir, o) {
			return a
		}
	}
	t.Fatal("start pebble: every port was taken")
	return nil
}

// run starts it on two spare ports, and waits until it answers. It reports false if it has ended,
// such as because another process has taken a port.
func (a *Authority) run(path, dir string, o Options) bool {
	a.t.Helper()
	at, management := spare(a.t), spare(a.t)
	profile := map[string]any{"description": "of a test", "validityPeriod": int((90 * 24 * time.Hour).Seconds())}
	if o.Life > 0 {
		profile["validityPeriod"] = int(o.Life.Seconds())
	}
	settings := map[string]any{
		"listenAddress": at, "managementListenAddress": management, "certificate": a.CAFile, "privateKey": filepath.Join(dir, "ca.key"),
		"httpPort": a.HTTP.Port(), "tlsPort": a.TLS.Port(), "keyAlgorithm": "ecdsa",
		"profiles": map[string]any{"default": profile}, "retryAfter": map[string]any{"authz": 1, "order": 1},
	}
	if o.Binding[0] != "" {
		settings["externalAccountBindingRequired"], settings["externalAccountMACKeys"] = true, map[string]string{o.Binding[0]: o.Binding[1]}
	}
	config, err := json.Marshal(map[string]any{"pebble": settings})
	file, log := filepath.Join(dir, "config.json"), filepath.Join(dir, "log")
	if err == nil {
		err = os.WriteFile(file, config, 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(path, "-config", file, "-dnsserver", a.Names.Addr())
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0")
	p, err := child.Start(cmd, log, syscall.SIGKILL)
	if err != nil {
		a.t.Fatal(err)
	}
	a.Directory, a.management = "https://"+at+"/dir", "https://"+management
	deadline, look := time.NewTimer(child.Patience), time.NewTicker(10*time.Millisecond)
	defer deadline.Stop()
	defer look.Stop()
	for a.ask(a.Directory) == nil || a.ask(a.management+"/roots/0") == nil {
		select {
		case <-p.Done():
			return false
		case <-deadline.C:
			p.Kill()
			a.t.Fatal("pebble does not answer")
		case <-look.C:
		}
	}
	a.t.Cleanup(func() {
		p.Kill()
		if b, err := os.ReadFile(log); err == nil && a.t.Failed() {
			a.t.Logf("pebble:\n%s", b)
		}
	})
	return true
}

// ask returns the answer to GET; nil if there is none.
func (a *Authority) ask(url string) []byte {
	res, err := a.client.Get(url)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	return b
}

// Root returns the certificate that the authority's certificates are verified by, in PEM.
func (a *Authority) Root() []byte {
	a.t.Helper()
	b := a.ask(a.management + "/roots/0")
	if b == nil {
		a.t.Fatal("pebble has no root certificate")
	}
	return b
}

// spare returns an address with a port that nothing listens on.
func spare(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A Forwarder has a port before the server that it leads to has one. Connections wait until it is
// known where they go.
type Forwarder struct {
	l     net.Listener
	known chan struct{}
	once  sync.Once // closes known
	mu    sync.Mutex
	to    []string
}

func forward(t testing.TB) *Forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Forwarder{l: l, known: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.pass(c) })
		}
	})
	t.Cleanup(func() { l.Close(); f.To(); all.Wait() })
	return f
}

// Port returns its own port.
func (f *Forwarder) Port() int { return f.l.Addr().(*net.TCPAddr).Port }

// To sets the servers, HOST:PORT or URLs, that connections go to in turn; none: nowhere.
func (f *Forwarder) To(servers ...string) {
	var to []string
	for _, server := range servers {
		if _, at, ok := strings.Cut(server, "://"); ok {
			server = at
		}
		to = append(to, server)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	f.once.Do(func() { close(f.known) })
}

// next returns whose turn it is; empty if there is no server.
func (f *Forwarder) next() (server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.to) > 0 {
		server = f.to[0]
		f.to = append(f.to[1:], server)
	}
	return server
}

func (f *Forwarder) pass(c net.Conn) {
	defer c.Close()
	<-f.known
	server, err := net.DialTimeout("tcp", f.next(), child.Patience)
	if err != nil {
		return
	}
	defer server.Close()
	until := time.Now().Add(child.Patience)
	_, _ = c.SetDeadline(until), server.SetDeadline(until)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, server)
		c.Close()
	})
	_, _ = io.Copy(server, c)
	server.Close()
	back.Wait()
}
