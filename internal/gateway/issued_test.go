package gateway

import (
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/acme"
)

// issuedCertificates returns the certificates by ACME of names that are stored, and of others that
// are missing. Nothing is asked for.
func issuedCertificates(t testing.TB, stored, missing string) *acme.Manager {
	t.Helper()
	dir := t.TempDir()
	for _, name := range strings.Fields(stored) {
		files := filepath.Join(dir, "certificates", "ca.example.com-directory", name)
		if err := os.MkdirAll(files, 0o700); err != nil {
			t.Fatal(err)
		}
		pair, _ := issued{hosts: []string{name}}.write(t, files, name)
		if err := os.Rename(pair.CertFile, filepath.Join(files, name+".crt")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(files, name+".json"), []byte(`{"sans": ["`+name+`"]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := acme.New(acme.Options{
		Names: strings.Fields(stored + " " + missing), Directory: "https://ca.example.com/directory", Dir: dir, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// given returns the name of the certificate that a client gets for a name, or the alert.
func (e *edge) given(name string, c *tls.Config) string {
	e.t.Helper()
	c.ServerName, c.InsecureSkipVerify = name, true
	conn := tls.Client(e.dial(), c)
	if err := conn.Handshake(); err != nil {
		alert, ok := strings.CutPrefix(err.Error(), "remote error: ")
		if !ok {
			e.t.Fatalf("%q: %v", name, err)
		}
		return alert
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// The exact name of a file comes first, then a name by ACME, then a wildcard. A name by ACME that
// has no certificate is refused, and no other is affected.
func TestFilesAndACMEShareTheNames(t *testing.T) {
	const unrecognized = "tls: unrecognized name"
	for _, test := range []struct {
		files []string
		want  map[string]string
	}{
		{[]string{"first.example.com", "*.example.com", "both.example.com"}, map[string]string{
			"first.example.com": "c0", "both.example.com": "c2", "api.example.com": "api.example.com", "API.Example.com.": "api.example.com",
			"shop.example.com": "c1", "soon.example.com": "c1", "soon.example.org": unrecognized, "unknown.test": "c0", "": "c0",
		}},
		{nil, map[string]string{
			"api.example.com": "api.example.com", "both.example.com": "both.example.com", "soon.example.com": unrecognized,
			"unknown.test": "api.example.com", "": "api.example.com",
		}},
	} {
		e := open(t, new(recorder), func(o *Options) {
			o.Certificates = certificatesFor(t, t.TempDir(), test.files...)
			o.ACME = issuedCertificates(t, "api.example.com both.example.com", "soon.example.com soon.example.org")
		})
		for name, want := range test.want {
			if got := e.given(name, new(tls.Config)); got != want {
				t.Errorf("with the files %v, %q got %s, want %s", test.files, name, got, want)
			}
		}
		if ends := e.gateway.Certificates(); len(ends) != max(2, len(test.files)+1) || !ends["api.example.com"].After(time.Now()) {
			t.Errorf("they expire at %v", ends)
		}
	}
}

// Operators see why there is no certificate over a connection that has one.
func TestOperatorsGetACertificateBeforeTheFirst(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) { o.ACME = issuedCertificates(t, "", "soon.example.com") })
	if got := e.given("", new(tls.Config)); got != "tls: unrecognized name" {
		t.Errorf("callers got %s", got)
	}
	c, err := e.gateway.OperatorTLS()
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.GetCertificate(&tls.ClientHelloInfo{ServerName: "soon.example.com"})
	if err != nil || found == nil || len(found.Certificate) != 1 {
		t.Errorf("operators got %v, %v", found, err)
	}
}

// A certificate by ACME is for one name: a request for another on its connection is misdirected.
func TestARequestForAnotherNameByACMEIsMisdirected(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) {
		o.Certificates = certificatesFor(t, t.TempDir(), "first.example.com")
		o.ACME = issuedCertificates(t, "api.example.com shop.example.com", "")
	})
	for _, test := range []struct {
		sni, host string
		misled    bool
	}{
		{"api.example.com", "api.example.com", false}, {"api.example.com", "shop.example.com", true}, {"api.example.com", "first.example.com", true},
		{"first.example.com", "api.example.com", true}, {"", "first.example.com", false}, {"", "api.example.com", true},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			res := requestOn(t, e.secureConn(test.sni, protocol), protocol, test.host)
			if (res.StatusCode == 421) != test.misled {
				t.Errorf("%s: SNI %q, Host %q: %d", protocol, test.sni, test.host, res.StatusCode)
			}
		}
	}
}

// A connection that could be a validation, and is none, ends with the handshake.
func TestAStrangersValidationEndsWithTheHandshake(t *testing.T) {
	e := open(t, new(recorder), func(o *Options) { o.ACME = issuedCertificates(t, "api.example.com", "") })
	for _, name := range []string{"api.example.com", "unknown.test", ""} {
		got := e.given(name, &tls.Config{NextProtos: []string{acme.Protocol}})
		if got != "tls: internal error" && got != "tls: no application protocol" {
			t.Errorf("%q got %s", name, got)
		}
	}
	if log := e.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Errorf("strangers fill the log:\n%s", log)
	}
}
