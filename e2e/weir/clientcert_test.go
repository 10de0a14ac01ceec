package weir

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A clientAuthority issues certificates to clients.
type clientAuthority struct {
	t      *testing.T
	file   string // of its own certificate
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
}

func newClientAuthority(t *testing.T) *clientAuthority {
	a := &clientAuthority{t: t}
	a.cert = &x509.Certificate{Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true}
	var key string
	a.file, key, a.cert, a.key = a.write(a.cert)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue writes a certificate for a name.
func (a *clientAuthority) issue(name string) (certFile, keyFile string) {
	certFile, keyFile, _, _ = a.write(&x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return certFile, keyFile
}

// write signs a certificate, its own if it has none yet.
func (a *clientAuthority) write(template *x509.Certificate) (certFile, keyFile string, _ *x509.Certificate, _ *ecdsa.PrivateKey) {
	a.t.Helper()
	must := func(err error) {
		if err != nil {
			a.t.Helper()
			a.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	by := a.key
	if by == nil {
		by = key
	}
	a.issued++
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(a.issued), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), by)
	must(err)
	cert, err := x509.ParseCertificate(der)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return certFile, keyFile, cert, key
}

const certPolicy = "limiters: [{name: api, routes: [/*], windows: [100 per day by cert], requires: cert}]\n"

// Five callers with certificates send more than their limit at once, over HTTP/1.1 and HTTP/2, each
// with two certificates of its name.
func TestEachCallerWithACertificateHasExactlyItsLimit(t *testing.T) {
	served := new(atomic.Int64)
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	t.Cleanup(backend.Close)
	own, ownKey := filepath.Join(t.TempDir(), "own.pem"), filepath.Join(t.TempDir(), "own.key")
	if err := writeCertificate(own, ownKey); err != nil {
		t.Fatal(err)
	}
	authority := newClientAuthority(t)
	s := serveWeir(t, "--policy", policyFile(t, certPolicy), "--upstream", backend.URL, "--tls-cert", own, "--tls-key", ownKey, "--client-ca", authority.file, patient)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(own)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	const callers, limit, each = 5, 100, 70
	var admitted [callers]atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		for _, http2 := range []bool{false, true} {
			pair, err := tls.LoadX509KeyPair(authority.issue(fmt.Sprintf("caller-%d.example.com", caller)))
			if err != nil {
				t.Fatal(err)
			}
			p := new(http.Protocols)
			p.SetHTTP1(!http2)
			p.SetHTTP2(http2)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, Protocols: p}
			t.Cleanup(transport.CloseIdleConnections)
			all.Go(func() {
				for range each {
					res, err := (&http.Client{Transport: transport}).Get(s.url + "/")
					if err != nil {
						t.Error(err)
						return
					}
					res.Body.Close()
					switch res.StatusCode {
					case http.StatusOK:
						admitted[caller].Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("answered %d", res.StatusCode)
					}
				}
			})
		}
	}
	all.Wait()
	for caller := range callers {
		if n := admitted[caller].Load(); n != limit {
			t.Errorf("caller %d: %d are admitted, want %d", caller, n, limit)
		}
	}
	if n := served.Load(); n != callers*limit {
		t.Errorf("the backend has served %d requests, want %d", n, callers*limit)
	}
	if log := s.stderr.String(); strings.Contains(log, "caller-0") {
		t.Errorf("the log names a caller:\n%s", log)
	}
}

// curl without a certificate, or with one of a stranger, gets no connection from the public
// listener; operators are not asked for one.
func TestCurlWithoutACertificateGetsNoConnection(t *testing.T) {
	own, ownKey := filepath.Join(t.TempDir(), "own.pem"), filepath.Join(t.TempDir(), "own.key")
	if err := writeCertificate(own, ownKey); err != nil {
		t.Fatal(err)
	}
	authority, stranger := newClientAuthority(t), newClientAuthority(t)
	for mode, status := range map[string]int{"required": 0, "optional": http.StatusUnauthorized} {
		s := serveWeir(t, "--policy", policyFile(t, certPolicy), "--upstream", accepting(t), "--tls-cert", own, "--tls-key", ownKey,
			"--client-ca", authority.file, "--client-cert", mode, patient)
		for _, version := range []string{"--http1.1", "--http2"} {
			cert, key := authority.issue("billing.example.com")
			args := []string{"--cacert", own, version}
			if r := curl(t, append(args, "--cert", cert, "--key", key, s.url+"/")...); r.status != http.StatusCreated {
				t.Errorf("%s, %s: answered %d %s", mode, version, r.status, r.body)
			}
			cert, key = stranger.issue("billing.example.com")
			if out, _, err := runCurl(append(args, "--cert", cert, "--key", key, s.url+"/")); err == nil {
				t.Errorf("%s, %s: a stranger is answered\n%s", mode, version, out)
			}
			out, stderr, err := runCurl(append(args, s.url+"/"))
			if status == 0 && err == nil {
				t.Errorf("%s, %s: without a certificate it is answered\n%s", mode, version, out)
			}
			if status != 0 && (err != nil || !strings.Contains(string(out), fmt.Sprint(status))) {
				t.Errorf("%s, %s: without a certificate: %v %s\n%s", mode, version, err, stderr.String(), out)
			}
		}
		m, err := s.stdout.await(adminAt)
		if err != nil {
			t.Fatal(err)
		}
		token := operatorToken(t, s.data)
		r := curl(t, "--cacert", own, "-H", "Authorization: Bearer "+token, m[1]+"/keys?cert=dns:Billing.example.com")
		if r.status != http.StatusOK || !strings.Contains(r.body, `"remaining":98`) {
			t.Errorf("%s: operators are answered %d %s", mode, r.status, r.body)
		}
	}
}
