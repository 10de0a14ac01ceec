package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Certificate is one that a client has shown and its server has verified. It does not change, so
// a server may make it once for a connection.
type Certificate struct {
	name string    // by which it counts; empty: it names nobody
	ends time.Time // it is valid until then
}

// NewCertificate returns the certificate of a client by the chains that were verified when its
// connection began (tls.ConnectionState.VerifiedChains), or nil if there are none. It must not be
// given certificates that were only shown (PeerCertificates).
func NewCertificate(chains [][]*x509.Certificate) *Certificate {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return nil
	}
	leaf := chains[0][0]
	return &Certificate{nameOf(leaf), leaf.NotAfter}
}

// The kinds of names by which certificates count. A name begins with its kind and a colon, so that
// no two kinds have one budget.
const (
	certURI     = "uri:"
	certDNS     = "dns:"
	certEmail   = "email:"
	certSubject = "subject:"
)

// nameOf returns the name of a certificate's owner: its first URI, else its first DNS name, else
// its first e-mail address (RFC 5280, section 4.2.1.6), else its whole subject as RFC 4514 writes
// it. A renewed certificate has the same name, with other bytes and perhaps another issuer.
func nameOf(leaf *x509.Certificate) string {
	for _, uri := range leaf.URIs {
		if text := uri.String(); text != "" {
			return certURI + text
		}
	}
	for _, name := range leaf.DNSNames {
		if name != "" {
			return certDNS + dnsName(name)
		}
	}
	for _, address := range leaf.EmailAddresses {
		if address != "" {
			return certEmail + address
		}
	}
	// leaf.Subject has only the last of several common names
	var subject pkix.RDNSequence
	if rest, err := asn1.Unmarshal(leaf.RawSubject, &subject); err != nil || len(rest) > 0 || len(subject) == 0 {
		return ""
	}
	return certSubject + subject.String()
}

// dnsName returns the one spelling of a DNS name: letters of either case are alike (RFC 4343).
func dnsName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// CertificateName returns the value of the key source cert that text names, as an operator writes
// it: its kind (uri, dns, email or subject), a colon, and the name, such as
// uri:spiffe://example.com/billing, dns:billing.example.com or subject:CN=billing,O=Example.
func CertificateName(text string) (string, error) {
	for _, kind := range []string{certURI, certDNS, certEmail, certSubject} {
		name, ok := strings.CutPrefix(text, kind)
		switch {
		case !ok:
		case name == "":
			return "", fmt.Errorf("%q has no name after the colon, as in dns:billing.example.com", text)
		case kind == certDNS:
			return kind + dnsName(name), nil
		default:
			return text, nil
		}
	}
	return "", fmt.Errorf("%q is not the name of a certificate: expected uri:, dns:, email: or subject: and the first such name in it, such as dns:billing.example.com", text)
}

var (
	errNameless    = errors.New("it names nobody: it has no URI, no DNS name, no e-mail address and no subject")
	errCertExpired = errors.New("it has expired since the connection began: connect again with a renewed one")
	errOfProxy     = errors.New("it is that of a trusted proxy, and not its client's")
)

// certificate returns the caller's verified certificate, or the reason that there is none, as
// Session does.
func (c *Caller) certificate() (*Certificate, error) {
	if c.known&knowsCert == 0 {
		c.known |= knowsCert
		c.cert, c.errs[2] = c.findCertificate()
	}
	return c.cert, c.errs[2]
}

func (c *Caller) findCertificate() (*Certificate, error) {
	if !c.resolver.options.Certificates {
		return nil, ErrUnverifiable
	}
	cert := c.request.Certificate()
	switch {
	case cert == nil:
		return nil, ErrNone
	case c.fromProxy(): // the connection is its own
		return nil, errOfProxy
	case cert.name == "":
		return nil, errNameless
	case c.resolver.now(c).After(cert.ends):
		return nil, errCertExpired
	}
	return cert, nil
}

// appendCertificate appends the name in the verified certificate. It allocates nothing.
func (c *Caller) appendCertificate(dst []byte, _ string) ([]byte, bool) {
	cert, _ := c.certificate()
	if cert == nil {
		return dst, false
	}
	return append(dst, cert.name...), true
}
