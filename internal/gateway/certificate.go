package gateway

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// A KeyPair names the files of a certificate chain and of its private key, in PEM. They are read
// again when they change.
type KeyPair struct{ CertFile, KeyFile string }

// A certificate is a pair that is read again when one of its files changes. If it cannot be read
// then, the old one stays in force. It is for one goroutine at a time.
type certificate struct {
	KeyPair
	log     *slog.Logger
	current *tls.Certificate
	stamps  [2]stamp // of current's files
	logged  string   // the last failure that was logged; empty after a success
}

// A CertificateError is why a certificate and its key cannot be used.
type CertificateError struct {
	KeyPair
	Err error
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

func stampOf(file string) (stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

// loadCertificate reads the pair for the first time. Both files must exist and match.
func loadCertificate(pair KeyPair, log *slog.Logger) (*certificate, error) {
	c := &certificate{KeyPair: pair, log: log}
	stamps, err := c.stat()
	if err != nil {
		return nil, &CertificateError{pair, err}
	}
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		return nil, &CertificateError{pair, err}
	}
	c.current, c.stamps = &loaded, stamps
	return c, nil
}

func (c *certificate) stat() (stamps [2]stamp, err error) {
	for i, name := range []string{c.CertFile, c.KeyFile} {
		if stamps[i], err = stampOf(name); err != nil {
			return stamps, err
		}
	}
	return stamps, nil
}

// refresh reads the pair again if its files have changed, and reports whether it took another.
func (c *certificate) refresh() (changed bool) {
	stamps, err := c.stat()
	if err == nil && stamps == c.stamps {
		return false
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	}
	if err != nil {
		// It is tried again each time, since permissions can change without a change of the stamp,
		// and logged once.
		if what := err.Error(); what != c.logged {
			c.logged = what
			c.log.Error("cannot read the changed TLS certificate; the previous one stays in force",
				"certificate", c.CertFile, "key", c.KeyFile, "error", err)
		}
		return false
	}
	c.current, c.stamps, c.logged = &pair, stamps, ""
	c.log.Info("the TLS certificate was reloaded", "certificate", c.CertFile)
	return true
}

// names returns the hosts that the certificate is for, as weir.AppendHost returns them; a wildcard
// begins with "*.". There are none if it names none but in its subject, which clients do not read.
func (c *certificate) names() (all []string) {
	for _, name := range c.current.Leaf.DNSNames {
		name, star := strings.CutPrefix(name, "*.")
		host, ok := weir.AppendHost(nil, name)
		switch {
		case ok && star:
			all = append(all, "*."+string(host))
		case ok:
			all = append(all, string(host))
		}
	}
	for _, ip := range c.current.Leaf.IPAddresses {
		literal := ip.String()
		if ip.To4() == nil {
			literal = "[" + literal + "]"
		}
		if host, ok := weir.AppendHost(nil, literal); ok {
			all = append(all, string(host))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// label returns the name by which operators know the certificate: the first of its hosts in its own
// order, or what names it instead.
func (c *certificate) label() string {
	leaf := c.current.Leaf
	switch {
	case len(leaf.DNSNames) > 0:
		return strings.ToValidUTF8(leaf.DNSNames[0], "?")
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	case leaf.Subject.CommonName != "":
		return strings.ToValidUTF8(leaf.Subject.CommonName, "?")
	}
	return filepath.Base(c.CertFile)
}

// maxNotice is for how long before its end a certificate is reported at most.
const maxNotice = 14 * 24 * time.Hour

// warn logs that the certificate has expired or expires soon: in two weeks, or in the last third of
// a shorter life.
func (c *certificate) warn(now time.Time) {
	leaf := c.current.Leaf
	left := leaf.NotAfter.Sub(now)
	if left > min(maxNotice, leaf.NotAfter.Sub(leaf.NotBefore)/3) {
		return
	}
	what := "a TLS certificate expires soon: renew its files, they are read again without a restart"
	if left <= 0 {
		what = "a TLS certificate has expired, and clients refuse it: renew its files, they are read again without a restart"
	}
	c.log.Warn(what, "name", c.label(), "certificate", c.CertFile, "expires", leaf.NotAfter.UTC().Format(time.RFC3339))
}
