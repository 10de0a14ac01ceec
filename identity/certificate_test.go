package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// certified returns a certificate that change has filled in, valid for an hour from noon on.
func certified(t testing.TB, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour)}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// over returns a request on a connection whose client has shown a certificate. verified is false if
// the server has not verified it.
func over(peer string, cert *x509.Certificate, verified bool) *identity.HTTPRequest {
	r := request(peer)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	if verified {
		r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
	}
	return r
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestACertificateCountsByTheFirstOfItsNames(t *testing.T) {
	commonName := func(name string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}
	}
	for want, change := range map[string]func(*x509.Certificate){
		"uri:spiffe://example.com/billing": func(c *x509.Certificate) {
			c.URIs = []*url.URL{mustURL(t, "spiffe://example.com/billing"), mustURL(t, "spiffe://example.com/other")}
			c.DNSNames, c.Subject.CommonName = []string{"billing.example.com"}, "billing"
		},
		"dns:billing.example.com": func(c *x509.Certificate) {
			c.DNSNames, c.EmailAddresses = []string{"Billing.Example.COM", "other.example.com"}, []string{"ops@example.com"}
		},
		"email:ops@example.com": func(c *x509.Certificate) {
			c.EmailAddresses, c.Subject.CommonName = []string{"ops@example.com", "z@example.com"}, "billing"
		},
		"subject:CN=billing,O=Example\\, Inc.": func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "billing", Organization: []string{"Example, Inc."}}
		},
		// a name in the subject is no other kind of name
		"subject:CN=dns:billing.example.com": func(c *x509.Certificate) { c.Subject.CommonName = "dns:billing.example.com" },
		// all of the subject counts, also what comes twice
		"subject:CN=b,CN=a": func(c *x509.Certificate) {
			c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{commonName("a"), commonName("b")}
		},
	} {
		r := resolver(t, identity.Options{Certificates: true, Now: newClock().Now})
		for range 2 { // the second one has another key
			if got, ok := key(caller(r, over("192.0.2.1:1", certified(t, change), true)), identity.Cert); got != want || !ok {
				t.Errorf("%q, %t; want %q", got, ok, want)
			}
		}
	}
}

// A caller without a verified certificate of its own is counted by its address, and knows why.
func TestACertificateThatIsNotTheCallersOwnAndVerifiedCountsNobody(t *testing.T) {
	named := certified(t, func(c *x509.Certificate) { c.DNSNames = []string{"billing.example.com"} })
	for name, c := range map[string]struct {
		options identity.Options
		request *identity.HTTPRequest
		at      time.Duration // after noon
		why     string
	}{
		"no TLS":             {identity.Options{Certificates: true}, request("192.0.2.1:1"), 0, identity.ErrNone.Error()},
		"shown, not checked": {identity.Options{Certificates: true}, over("192.0.2.1:1", named, false), 0, identity.ErrNone.Error()},
		"not asked for":      {identity.Options{}, over("192.0.2.1:1", named, true), 0, identity.ErrUnverifiable.Error()},
		"expired meanwhile": {identity.Options{Certificates: true}, over("192.0.2.1:1", named, true), time.Hour + time.Second,
			"it has expired since the connection began: connect again with a renewed one"},
		"a trusted proxy's": {identity.Options{Certificates: true, TrustedProxies: networks("192.0.2.0/24")}, over("192.0.2.1:1", named, true), 0,
			"it is that of a trusted proxy, and not its client's"},
		"without a name": {identity.Options{Certificates: true}, over("192.0.2.1:1", certified(t, nil), true), 0,
			"it names nobody: it has no URI, no DNS name, no e-mail address and no subject"},
	} {
		clock := newClock()
		clock.set(c.at)
		c.options.Now = clock.Now
		r := resolver(t, c.options)
		who := caller(r, c.request)
		if got, ok := key(who, identity.Cert); ok || got != "" {
			t.Errorf("%s: counted by %q", name, got)
		}
		if err := who.Verified(identity.Cert); err == nil || err.Error() != c.why {
			t.Errorf("%s: %v; want %s", name, err, c.why)
		}
		if r.Verifies(identity.Cert) != c.options.Certificates {
			t.Errorf("%s: the resolver verifies certificates: %t", name, r.Verifies(identity.Cert))
		}
	}
	clock := newClock()
	clock.set(time.Hour) // its last second
	r := resolver(t, identity.Options{Certificates: true, Now: clock.Now, TrustedProxies: networks("198.51.100.0/24")})
	if err := caller(r, over("192.0.2.1:1", named, true)).Verified(identity.Cert); err != nil {
		t.Errorf("a valid one: %v", err)
	}
}

func TestAnOperatorNamesACertificateAsItIsCounted(t *testing.T) {
	for text, want := range map[string]string{
		"dns:Billing.Example.com.":         "dns:billing.example.com",
		"uri:spiffe://example.com/Billing": "uri:spiffe://example.com/Billing",
		"email:Ops@example.com":            "email:Ops@example.com",
		"subject:CN=billing,O=Example":     "subject:CN=billing,O=Example",
		"billing.example.com":              "",
		"dns:":                             "",
		"ip:192.0.2.1":                     "",
		"":                                 "",
	} {
		if got, err := identity.CertificateName(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// A shown is a request on a connection whose server made the certificate once.
type shown struct {
	*identity.HTTPRequest
	cert *identity.Certificate
}

func (s shown) Certificate() *identity.Certificate { return s.cert }

func TestACertificateIsCountedWithoutAllocating(t *testing.T) {
	leaf := certified(t, func(c *x509.Certificate) { c.URIs = []*url.URL{mustURL(t, "spiffe://example.com/billing")} })
	r := resolver(t, identity.Options{Certificates: true, Now: newClock().Now})
	var req identity.Request = &shown{request("192.0.2.1:1"), identity.NewCertificate([][]*x509.Certificate{{leaf}})}
	var c identity.Caller
	space := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		r.Start(&c, req)
		if _, ok := c.AppendKey(space, identity.Cert); !ok {
			t.Error("no value")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if identity.NewCertificate(nil) != nil || identity.NewCertificate([][]*x509.Certificate{{}}) != nil {
		t.Error("a certificate without a chain")
	}
	if errors.Is(c.Verified(identity.Cert), identity.ErrNone) {
		t.Error("a verified certificate is none")
	}
}
