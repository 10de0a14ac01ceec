package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/internal/logtest"
)

// certificateFiles writes a new self-signed pair for 127.0.0.1.
func certificateFiles(t *testing.T, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "weir.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// secured gives a gateway a certificate for 127.0.0.1, and returns what trusts it.
func secured(t *testing.T, o *Options) *x509.CertPool {
	t.Helper()
	dir := t.TempDir()
	pair := KeyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	o.Certificates = []KeyPair{pair}
	return certificateFiles(t, pair.CertFile, pair.KeyFile)
}

func TestTLSSpeaksHTTP2AndRefusesOldVersions(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := certificateFiles(t, certFile, keyFile)
	protos := make(chan string, 1)
	e := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protos <- r.Proto }),
		func(o *Options) { o.Certificates = []KeyPair{{certFile, keyFile}} })
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		p := new(http.Protocols)
		p.SetHTTP1(proto == "HTTP/1.1")
		p.SetHTTP2(proto == "HTTP/2.0")
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: p}
		res, err := (&http.Client{Transport: transport}).Get("https://" + e.addr + "/v1/wp/status")
		if err != nil {
			t.Fatal(err)
		}
		want(t, res, http.StatusOK, "", wpPlugin)
		if got := <-protos; got != proto {
			t.Errorf("%s, want %s", got, proto)
		}
		transport.CloseIdleConnections()
	}
	if _, err := tls.Dial("tcp", e.addr, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if got := e.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("HTTP in the clear: %d", got.StatusCode)
	}
}

func TestAChangedCertificateIsServedAndABrokenOneIsNot(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificateFiles(t, certFile, keyFile)
	now := time.Now()
	log := new(logtest.Buffer)
	c, err := loadCertificates([]KeyPair{{certFile, keyFile}}, nil, slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	get := func() *tls.Certificate {
		t.Helper()
		cert, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	touch := func() {
		stamp := now.Add(time.Minute) // the file system's clock may be coarse
		for _, name := range []string{certFile, keyFile} {
			if err := os.Chtimes(name, stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := get()
	certificateFiles(t, certFile, keyFile)
	touch()
	if get() != first {
		t.Error("the files are checked more than once a second")
	}
	now = now.Add(time.Second)
	second := get()
	if second == first {
		t.Error("the renewed certificate is not served")
	}
	if err := os.WriteFile(certFile, []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(time.Second)
		if get() != second {
			t.Error("a broken certificate took the place of a good one")
		}
	}
	if n := strings.Count(log.String(), "stays in force"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
	certificateFiles(t, certFile, keyFile)
	now = now.Add(time.Second)
	touch()
	if get() == second {
		t.Error("the repaired certificate is not served")
	}
}

func TestHTTP2WithoutTLSNeedsPriorKnowledge(t *testing.T) {
	protos := make(chan string, 1)
	e := open(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protos <- r.Proto }), nil)
	res, err := h2c(t).Get(e.url("/v1/wp/status"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, res, http.StatusOK, "", wpPlugin)
	if got := <-protos; got != "HTTP/2.0" {
		t.Errorf("spoke %s", got)
	}
	res = e.ask("GET /v1/wp/status", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
	if got := <-protos; res.StatusCode != http.StatusOK || got != "HTTP/1.1" {
		t.Errorf("an Upgrade is answered %d and spoke %s", res.StatusCode, got)
	}
}

// HTTP/2's :path may hold bytes that no HTTP/1.1 request line can hold (D10).
func TestAnHTTP2PathCannotSmuggle(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	c := e.dial()
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	paths := []string{"/v1/wp/a b", "/v1/wp/a?b c", "/v1/wp/a?b HTTP/1.1", "/v1/wp/a#b", "/v1/wp/%2f", "*", "/v1/wp/a\\b"}
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for i, path := range paths {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", path}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	}
	dec := hpack.NewDecoder(4096, nil)
	for answered := 0; answered < len(paths); {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			answered++
			fields, err := dec.DecodeFull(frame.HeaderBlockFragment())
			if err != nil {
				t.Fatal(err)
			}
			if fields[0].Value != "400" {
				t.Errorf("%q: %v", paths[frame.StreamID/2], fields[0])
			}
		case *http2.RSTStreamFrame:
			answered++
		}
	}
	if s, reached := seen.last(); reached {
		t.Errorf("the backend saw %v", s)
	}
}
