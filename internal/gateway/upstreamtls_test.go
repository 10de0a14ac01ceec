package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// secureBackend answers with the name that it was asked for by SNI, and the client certificate that
// it was shown. Its own certificate is for backend.test; authority is the file of that.
func secureBackend(t *testing.T, change func(*tls.Config)) (site func(*Options), authority string) {
	t.Helper()
	pair, _ := issued{hosts: []string{"backend.test"}}.write(t, t.TempDir(), "backend")
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := "none"
		if len(r.TLS.PeerCertificates) > 0 {
			shown = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		w.Header().Set("Connection", "close") // each request has a handshake
		fmt.Fprintf(w, "%s %s", r.TLS.ServerName, shown)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	if change != nil {
		change(s.TLS)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return before(t, s.URL), pair.CertFile
}

func TestAnUpstreamIsVerifiedByTheGivenAuthorityAndName(t *testing.T) {
	site, authority := secureBackend(t, nil)
	_, other := secureBackend(t, nil)
	for _, test := range []struct {
		name   string
		tls    UpstreamTLS
		answer string // empty: 502
	}{
		{"the system's authorities", UpstreamTLS{Name: "backend.test"}, ""},
		{"another authority", UpstreamTLS{CAFile: other, Name: "backend.test"}, ""},
		{"the host of the URL", UpstreamTLS{CAFile: authority}, ""},
		{"another name", UpstreamTLS{CAFile: authority, Name: "other.test"}, ""},
		{"both", UpstreamTLS{CAFile: authority, Name: "backend.test"}, "backend.test none"},
	} {
		e := open(t, nil, func(o *Options) { site(o); o.UpstreamTLS = test.tls })
		res := e.ask("GET /v1/wp/status")
		if test.answer == "" {
			want(t, res, http.StatusBadGateway, "upstream_unavailable", wpPlugin)
			if !strings.Contains(e.log.String(), "x509: ") {
				t.Errorf("%s: the log does not have why: %s", test.name, e.log)
			}
		} else if got := text(t, res); got != test.answer {
			t.Errorf("%s: %d %q", test.name, res.StatusCode, got)
		}
	}
}

// An upstream is shown the client certificate, and another one after a renewal: no TLS session
// outlives the certificate that it began with.
func TestAnUpstreamIsShownTheClientCertificate(t *testing.T) {
	dir := t.TempDir()
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, first := issued{hosts: []string{"edge"}, usage: usage}.write(t, dir, "first")
	renewed, second := issued{hosts: []string{"edge"}, usage: usage}.write(t, dir, "second")
	known := x509.NewCertPool()
	known.AddCert(first)
	known.AddCert(second)
	site, authority := secureBackend(t, func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, known })
	secure := UpstreamTLS{CAFile: authority, Name: "backend.test"}

	e := open(t, nil, func(o *Options) { site(o); o.UpstreamTLS = secure })
	want(t, e.ask("GET /v1/wp/status"), http.StatusBadGateway, "upstream_unavailable", wpPlugin)

	secure.Client = pair
	e = open(t, nil, func(o *Options) { site(o); o.UpstreamTLS = secure })
	for range 3 {
		if got := text(t, e.ask("GET /v1/wp/status")); got != "backend.test first" {
			t.Fatalf("%q", got)
		}
	}
	stamp := time.Now().Add(time.Minute) // the file system's clock may be coarse
	for from, to := range map[string]string{renewed.CertFile: pair.CertFile, renewed.KeyFile: pair.KeyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the renewed certificate is shown", func() bool {
		got := text(t, e.ask("GET /v1/wp/status"))
		if got != "backend.test first" && got != "backend.test second" {
			t.Fatalf("%q", got)
		}
		return got == "backend.test second"
	})
}

func TestFilesForUpstreamsThatCannotBeReadAreReported(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("not PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for reason, secure := range map[string]UpstreamTLS{
		"no such file":            {CAFile: filepath.Join(dir, "gone.pem")},
		"no certificate in it":    {CAFile: empty},
		"failed to find any PEM":  {Client: KeyPair{empty, empty}},
		"no such file or directo": {Client: KeyPair{"gone.pem", "gone.key"}},
	} {
		e := open(t, new(recorder), nil)
		u, _ := url.Parse("https://127.0.0.1:1")
		_, err := New(Options{Decider: e.gateway.options.Decider, Identity: e.gateway.options.Identity, Sites: To(u), UpstreamTLS: secure})
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
}
