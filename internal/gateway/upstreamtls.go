package gateway

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// An UpstreamTLS is how TLS is spoken with https addresses of upstreams. The zero value verifies
// each address by its host and the system's authorities, and shows no certificate.
type UpstreamTLS struct {
	// CAFile has the certificates of the authorities that are trusted, in PEM, and no others are;
	// empty: those of the system. It is read once.
	CAFile string
	// Name is what the certificates of all addresses must be for, and what they are asked for
	// (SNI); empty: each its own host.
	Name string
	// Client is shown to upstreams that ask for a certificate; the zero value: none is. New
	// connections use a changed one.
	Client KeyPair
}

// An AuthorityError is why a file of authorities cannot be used.
type AuthorityError struct {
	File string
	Err  error
}

func (e *AuthorityError) Error() string {
	return fmt.Sprintf("read the certificates of authorities %q: %v", e.File, e.Err)
}

func (e *AuthorityError) Unwrap() error { return e.Err }

// authorities are the certificates of a file. They do not change.
type authorities struct {
	pool *x509.CertPool
	raw  map[string]bool // the bytes of each
}

// readAuthorities reads the certificates of a PEM file. All of it must be certificates, with any
// text between them: one that is damaged or cut off must not go unnoticed.
func readAuthorities(file string) (*authorities, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &AuthorityError{file, err}
	}
	all := &authorities{x509.NewCertPool(), make(map[string]bool)}
	for n := 1; ; n++ {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && bytes.Contains(rest, []byte("-----BEGIN ")):
			return nil, &AuthorityError{file, fmt.Errorf("block %d of it is damaged or cut off: expected PEM from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----", n)}
		case block == nil && n == 1:
			return nil, &AuthorityError{file, errors.New("there is no certificate in it: expected PEM, which begins with -----BEGIN CERTIFICATE-----")}
		case block == nil:
			return all, nil
		case block.Type != "CERTIFICATE":
			return nil, &AuthorityError{file, fmt.Errorf("block %d of it is a %s: expected certificates alone", n, block.Type)}
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, &AuthorityError{file, fmt.Errorf("certificate %d of it: %w", n, err)}
		}
		all.pool.AddCert(cert)
		all.raw[string(cert.Raw)] = true
		text = rest
	}
}

// config returns the configuration of connections; nil for the zero value.
func (u UpstreamTLS) config(log *slog.Logger, now func() time.Time) (*tls.Config, error) {
	if u == (UpstreamTLS{}) {
		return nil, nil
	}
	config := &tls.Config{ServerName: u.Name}
	if u.CAFile != "" {
		trusted, err := readAuthorities(u.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = trusted.pool
	}
	if u.Client != (KeyPair{}) {
		pair, err := loadCertificate(u.Client, log)
		if err != nil {
			return nil, err
		}
		client := &clientCertificate{now: now, checked: now(), certificate: pair}
		config.GetClientCertificate = client.get
		config.ClientSessionCache = noSessions{}
	}
	return config, nil
}

// A clientCertificate is shown to upstreams. It is safe for concurrent use.
type clientCertificate struct {
	now func() time.Time

	mu      sync.Mutex
	checked time.Time
	*certificate
}

// get is a tls.Config.GetClientCertificate. A certificate of another authority than those that the
// upstream names is shown too: its refusal is a clearer error than a missing certificate.
func (c *clientCertificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		c.refresh()
	}
	return c.current, nil
}

// noSessions keeps no TLS sessions. One that is resumed shows no certificate, so sessions of an old
// certificate would go on after a renewal, each with a new ticket, without end.
type noSessions struct{}

// Get is tls.ClientSessionCache's.
func (noSessions) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

// Put is tls.ClientSessionCache's.
func (noSessions) Put(string, *tls.ClientSessionState) {}
