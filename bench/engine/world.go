package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Each contestant has a core of its own. This process, which generates the load, shares the other
// with the upstream.
const (
	gatewayCore = 0
	loadCore    = 1
)

// A world is what all contestants share in one run.
type world struct {
	dir  string // removed at the end
	weir string // the binary
	// profiled means that it has an admin listener, which serves profiles.
	profiled bool
	engines  bool   // whether it has --engine
	nginx    string // the binary
	haproxy  string // the binary
	small    string // the address of the upstream with small answers
	// smallPid is its process, which shares a core with the load.
	smallPid int
	costs    string // of one whose small answers tell their cost in a field
	json     string // of one whose answers tell it in 4 KiB of JSON
	bodies   string // the address of the upstream that receives and sends bodyBytes
	body     string // a file of bodyBytes
	cert     string // PEM, of an ECDSA key
	certKey  string
	// certBoth has both, as HAProxy reads them.
	certBoth string
	secret   string // a file with the secret that sessions are signed with
	session  string // one of them, a JWT
	keys     string // a file with the hash of an API key
}

// newWorld creates what contestants need, and starts the upstreams. remove stops and removes
// everything.
func newWorld(ctx context.Context, temp, weir string) (w *world, remove func(), err error) {
	w = &world{weir: weir, nginx: superuserProgram("nginx"), haproxy: superuserProgram("haproxy")}
	for _, name := range []string{w.nginx, "wrk", "taskset", w.haproxy} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, nil, fmt.Errorf("measure over sockets: %w: install Debian's packages nginx, haproxy, wrk and util-linux", err)
		}
	}
	if w.dir, err = os.MkdirTemp(temp, "weir-bench-engine"); err != nil {
		return nil, nil, err
	}
	var started []*server
	stop := func() {
		for _, s := range started {
			s.stop()
		}
		os.RemoveAll(w.dir)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if err := w.makeFiles(ctx); err != nil {
		return nil, nil, err
	}
	for name, address := range map[string]*string{"small": &w.small, "costs": &w.costs, "json": &w.json, "bodies": &w.bodies} {
		s, err := startSelf(ctx, w, loadCore, name, w.body)
		if err != nil {
			return nil, nil, err
		}
		started = append(started, s)
		*address = s.address
		if address == &w.small {
			w.smallPid = s.pid
		}
	}
	return w, stop, nil
}

// superuserProgram returns the path of a program that Debian has in a directory that is not on
// every PATH.
func superuserProgram(name string) string {
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		return path
	}
	return name
}

func (w *world) makeFiles(ctx context.Context) error {
	if w.weir == "" {
		w.weir = filepath.Join(w.dir, "weir")
		// as a release is
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-pgo=release/weir.pgo", "-o", w.weir, "./cmd/weir")
		build.Dir, build.Stderr = "..", os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build weir: %w", err)
		}
	}
	help, err := exec.CommandContext(ctx, w.weir, "serve", "--help").Output()
	if err != nil {
		return fmt.Errorf("ask %s what it knows: %w", w.weir, err)
	}
	w.engines = strings.Contains(string(help), "--engine ")
	w.body = filepath.Join(w.dir, "body")
	if err := os.WriteFile(w.body, make([]byte, bodyBytes), 0o600); err != nil {
		return err
	}
	if err := w.makeCertificate(); err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	secret := []byte("what signs sessions of this benchmark, and no others")
	w.secret, w.session = filepath.Join(w.dir, "secret"), mint(secret, time.Now())
	if err := os.WriteFile(w.secret, secret, 0o600); err != nil {
		return err
	}
	w.keys = filepath.Join(w.dir, "keys")
	return os.WriteFile(w.keys, fmt.Appendf(nil, "acme %x\n", sha256.Sum256([]byte(apiKey))), 0o600)
}

// The API key of the case that sends one.
const (
	apiKey   = "sk_live_8fJ2kQx0vN4mZtR7cLwB1y"
	keyField = "X-Api-Key: " + apiKey
	byKey    = "token or ip"
)

func (w *world) makeCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"api.example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	w.cert, w.certKey, w.certBoth = filepath.Join(w.dir, "cert.pem"), filepath.Join(w.dir, "key.pem"), filepath.Join(w.dir, "both.pem")
	for path, text := range map[string][]byte{w.cert: public, w.certKey: secret, w.certBoth: slices.Concat(public, secret)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mint returns a session of a day, signed with HS256.
func mint(secret []byte, now time.Time) string {
	part := base64.RawURLEncoding.EncodeToString
	signed := part([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + part(fmt.Appendf(nil,
		`{"iss":"https://example.com","sub":"visitor-1842","sid":"8c0f2f3e-6a0f-4d0c-9a53-5f9f0f2b7d11","iat":%d,"exp":%d}`,
		now.Unix(), now.Add(24*time.Hour).Unix()))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(signed))
	return signed + "." + part(mac.Sum(nil))
}

// moduleVersion returns the version of a module in this program.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return ""
}
