package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/weirlimit/weir/internal/logtest"
)

// An authority issues certificates in place of a real one.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	life time.Duration

	mu      sync.Mutex
	err     error // why it issues none; nil: it does
	silent  bool  // it does not answer
	useless bool  // what it issues is no certificate

	asked  int
	issued int64
}

// maxAsked is how often an authority answers: whoever asks without a pause is silenced.
const maxAsked = 1000

func newAuthority(t testing.TB, life time.Duration) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, key: key, cert: cert, life: life}
}

func (a *authority) IssuerKey() string { return "authority.example.com" }

func (a *authority) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.silent || a.asked > maxAsked {
		a.mu.Unlock()
		<-ctx.Done()
		a.mu.Lock()
		return nil, fmt.Errorf("ask the authority: %w", ctx.Err())
	}
	if a.err != nil {
		return nil, a.err
	}
	a.issued++
	if a.useless {
		return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})}, nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100 + a.issued), DNSNames: request.DNSNames,
		NotBefore: time.Now(), NotAfter: time.Now().Add(a.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// fails makes it refuse until it is given nil.
func (a *authority) fails(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// counts returns how often it was asked, and how many certificates it has issued.
func (a *authority) counts() (asked int, issued int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked, a.issued
}

// warnings returns the warnings of a log that contain a word.
func warnings(log *logtest.Buffer, of string) (all []string) {
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "level=INFO") && strings.Contains(line, of) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

const api, www = "api.example.com", "www.example.com"

// open returns a Manager of two names, which asks a.
func open(t testing.TB, dir string, a *authority) (*Manager, *logtest.Buffer) {
	t.Helper()
	log := new(logtest.Buffer)
	m, err := New(Options{Names: []string{api, www}, Dir: dir, Log: slog.New(slog.NewTextHandler(log, nil)), issuer: a})
	if err != nil {
		t.Fatal(err)
	}
	return m, log
}

// run runs it until stop is called, which also closes it.
func (m *Manager) run(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// serial returns the serial number of the certificate that clients get; 0 if there is none.
func (m *Manager) serial(name string) int64 {
	c := m.Certificate(name)
	if c == nil {
		return 0
	}
	return c.Leaf.SerialNumber.Int64()
}
