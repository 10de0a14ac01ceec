package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// An issuer is an authority that issues certificates to clients.
type issuer struct {
	t     testing.TB
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	above []*issuer // from the one that has issued its own certificate up to the root
}

var serials int64 // no two certificates of the tests are alike

func (i *issuer) sign(template *x509.Certificate, key *ecdsa.PrivateKey, by *issuer) *x509.Certificate {
	i.t.Helper()
	serials++
	template.SerialNumber = big.NewInt(serials)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		i.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newIssuer(t testing.TB, name string) *issuer {
	i := &issuer{t: t, key: newKey(t)}
	i.cert = &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}
	i.cert = i.sign(i.cert, i.key, i)
	return i
}

// under returns an authority whose certificate i has issued.
func (i *issuer) under(name string) *issuer {
	below := &issuer{t: i.t, key: newKey(i.t), above: append([]*issuer{i}, i.above...)}
	below.cert = i.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}, below.key, i)
	return below
}

// issue returns a new certificate for a client with a DNS name, with the chain below the root.
// change may be nil.
func (i *issuer) issue(name string, change func(*x509.Certificate)) tls.Certificate {
	i.t.Helper()
	template := &x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	key := newKey(i.t)
	all := tls.Certificate{PrivateKey: key, Certificate: [][]byte{i.sign(template, key, i).Raw}}
	if len(i.above) > 0 {
		all.Certificate = append(all.Certificate, i.cert.Raw)
		for _, other := range i.above[:len(i.above)-1] {
			all.Certificate = append(all.Certificate, other.cert.Raw)
		}
	}
	return all
}

func pemOf(all ...*issuer) (text []byte) {
	for _, i := range all {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})...)
	}
	return text
}

// A certified is a gateway that asks clients for certificates.
type certified struct {
	*edge
	file  string // of the authorities
	roots *x509.CertPool
}

// certificateFields are fields about certificates, of which no caller can send any but the last to
// the backend of a certified.
var certificateFields = []string{
	"Client-Cert", "Client-Cert-Chain", "X-Ssl-Client-Dn", "X-Client-Cert-Hash", "X-Client-Dn", "X-Client-Verified", "X-Client-Subject",
	"X-Tls-Client-Cn", "Tls-Client-Cert", "X-Amzn-Mtls-Clientcert", "X-Forwarded-Client-Cert", "X-Ssl",
}

// openCertified starts a gateway whose policy is one limiter, before a backend that writes the
// fields of a request about certificates. change may be nil.
func openCertified(t *testing.T, limiter weir.Limiter, optional bool, change func(*Options), authorities ...*issuer) *certified {
	t.Helper()
	c := &certified{file: filepath.Join(t.TempDir(), "clients.pem")}
	c.write(t, pemOf(authorities...))
	limiter.Name, limiter.Routes = "all", []weir.Route{{Path: "/", Prefix: true}}
	site := behind(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range certificateFields {
			for _, value := range r.Header[name] {
				fmt.Fprintf(w, "%s: %s\n", name, value)
			}
		}
	})
	c.edge = open(t, nil, func(o *Options) {
		site(o)
		c.roots = secured(t, o)
		o.Clients = ClientTLS{CAFile: c.file, Optional: optional}
		o.Decider = testDecider(t, weir.Policy{Limiters: []weir.Limiter{limiter}})
		if change != nil {
			change(o)
		}
	})
	return c
}

func byCert(t testing.TB, window, requires string) weir.Limiter {
	t.Helper()
	w, err := weir.ParseWindow(window)
	if err != nil {
		t.Fatal(err)
	}
	return weir.Limiter{Windows: []weir.Window{w}, Requires: requires}
}

// write replaces the file of the authorities, with a time of its own.
func (c *certified) write(t testing.TB, text []byte) {
	t.Helper()
	if err := os.WriteFile(c.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	serials++
	stamp := time.Unix(1e9+serials, 0)
	if err := os.Chtimes(c.file, stamp, stamp); err != nil {
		t.Fatal(err)
	}
}

// tls returns the configuration of a client that shows a certificate, whatever the server asks for.
func (c *certified) tls(shown ...tls.Certificate) *tls.Config {
	config := &tls.Config{RootCAs: c.roots, ServerName: "127.0.0.1"}
	if len(shown) > 0 {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown[0], nil }
	}
	return config
}

// client returns a client that speaks one version of HTTP.
func (c *certified) client(config *tls.Config, http2 bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	transport := &http.Transport{TLSClientConfig: config, Protocols: p}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// get returns the status and the body of an answer.
func (c *certified) get(client *http.Client) (res *http.Response, body string) {
	c.t.Helper()
	res, err := client.Get("https://" + c.addr + "/")
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	if http2 := client.Transport.(*http.Transport).Protocols.HTTP2(); http2 != (res.ProtoMajor == 2) {
		c.t.Errorf("%s is spoken", res.Proto)
	}
	return res, text(c.t, res)
}

// ask sends a request on a new connection, and returns the first line of the answer.
func (c *certified) ask(config *tls.Config) (resumed bool, line string) {
	c.t.Helper()
	conn := tls.Client(c.dial(), config)
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n"); err != nil {
		c.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		c.t.Fatalf("%q, %v", answer, err)
	}
	line, _, _ = strings.Cut(string(answer), "\r\n")
	return conn.ConnectionState().DidResume, line
}

// refusal returns how a handshake is refused. By TLS 1.3, a client knows that when it reads what
// follows its own part; it sends nothing more, since that could destroy the alert on its way.
func (c *certified) refusal(config *tls.Config) string {
	c.t.Helper()
	conn := tls.Client(c.dial(), config)
	defer conn.Close()
	err := conn.Handshake()
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return fmt.Sprint(err)
}
