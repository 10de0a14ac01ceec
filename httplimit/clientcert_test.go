package httplimit_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// A service's own server counts by the certificates that it has verified. One that it has only
// asked for is no credential.
func TestOnlyAVerifiedCertificateCounts(t *testing.T) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"billing.example.com"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(nil, template, template, signer.Public(), ed25519.PrivateKey(signer))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AddCert(cert)
	for auth, statuses := range map[tls.ClientAuthType][]int{
		tls.RequireAnyClientCert:       {401, 429, 429},
		tls.RequestClientCert:          {401, 429, 429},
		tls.VerifyClientCertIfGiven:    {200, 429, 429},
		tls.RequireAndVerifyClientCert: {200, 429, 429},
	} {
		e := setUp(t, func(http.ResponseWriter, *http.Request) {}, func(_ *edge, _ *httplimit.Options, who *identity.Options, p *weir.Policy) {
			who.Certificates = true
			*p = limiters(t, map[string][]string{"l / requires cert": {"1 per minute by cert"}})
		})
		s := httptest.NewUnstartedServer(e.server.Config.Handler)
		s.TLS = &tls.Config{ClientAuth: auth, ClientCAs: known}
		s.StartTLS()
		t.Cleanup(s.Close)
		client := s.Client()
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: signer}}
		for i, want := range statuses {
			res, err := client.Get(s.URL + "/")
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%v, request %d: %d, want %d", auth, i+1, res.StatusCode, want)
			}
		}
	}
}
