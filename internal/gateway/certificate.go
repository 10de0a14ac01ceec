package gateway

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// A certificate is a TLS certificate in two files, read again when one of them changes, so that a
// renewed one is served without a restart. If the pair cannot be read, the old one stays in force.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	stamps  [2]stamp // of current's files
	checked time.Time
	logged  string // the last failure that was logged; empty after a success
}

// A CertificateError is why a certificate and its key cannot be served.
type CertificateError struct {
	CertFile, KeyFile string
	Err               error
}

func (e *CertificateError) Error() string {
	return fmt.Sprintf("read the TLS certificate %q with the key %q: %v", e.CertFile, e.KeyFile, e.Err)
}

func (e *CertificateError) Unwrap() error { return e.Err }

// A stamp is a file's, and changes when the file does.
type stamp struct {
	modified time.Time
	size     int64
}

// certificateCheck is how long the files are not looked at again. They are looked at during
// handshakes only.
const certificateCheck = time.Second

// loadCertificate reads the pair for the first time. Both files must exist and match.
func loadCertificate(certFile, keyFile string, log *slog.Logger, now func() time.Time) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: now, checked: now()}
	stamps, err := c.stat()
	if err != nil {
		return nil, &CertificateError{certFile, keyFile, err}
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, &CertificateError{certFile, keyFile, err}
	}
	c.current, c.stamps = &pair, stamps
	return c, nil
}

func (c *certificate) stat() (stamps [2]stamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamps, err
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	return stamps, nil
}

// get is a tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		c.refresh()
	}
	return c.current, nil
}

func (c *certificate) refresh() {
	stamps, err := c.stat()
	if err == nil && stamps == c.stamps {
		return
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	if err != nil {
		// It is tried again each time, since permissions can change without a change of the stamp,
		// and logged once.
		if what := err.Error(); what != c.logged {
			c.logged = what
			c.log.Error("cannot read the changed TLS certificate; the previous one stays in force",
				"certificate", c.certFile, "key", c.keyFile, "error", err)
		}
		return
	}
	c.current, c.stamps, c.logged = &pair, stamps, ""
	c.log.Info("the TLS certificate was reloaded", "certificate", c.certFile)
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
