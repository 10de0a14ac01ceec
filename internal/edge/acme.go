package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlimit/weir/internal/acme"
	"github.com/weirlimit/weir/internal/cli"
)

// ACME are the settings of certificates that are obtained by ACME. Without Names there are none.
type ACME struct {
	Names     []string // in the form of weir.AppendHost
	Email     string   // the contact of the account; empty: none
	Directory *url.URL // of the authority; nil: Let's Encrypt
	Dir       string   // of the certificates; empty: acme in Config.Data
	// CAFile has the certificates that the authority's own server is verified by; empty: the
	// system's.
	CAFile string
	// BindingID and BindingKeyFile are of an external account (RFC 8555, section 7.3.4), which some
	// authorities require; empty: none.
	BindingID, BindingKeyFile string
}

// acmeDir is the directory in Config.Data for certificates by ACME.
const acmeDir = "acme"

// openACME opens the certificates that are obtained by ACME; nil if there are none. Nothing is
// asked for before runACME.
func openACME(c *Config, l *listeners, redirect *redirectDoor, own *parts) (*acme.Manager, error) {
	if len(c.ACME.Names) == 0 {
		return nil, nil
	}
	o := acme.Options{Names: c.ACME.Names, Email: c.ACME.Email, Dir: c.ACME.Dir, Listen: addrPort(l.public.Addr()), Log: c.Log}
	if !o.Listen.IsValid() {
		return nil, cli.UsageError("give --listen a port, or leave out --acme", "certificates by ACME need a TCP listener, which --listen %s is not: the authority connects to it", l.public.Addr())
	}
	if redirect != nil {
		o.Redirect = addrPort(redirect.Addr())
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(c.Data, acmeDir)
	}
	if c.ACME.Directory != nil {
		o.Directory = c.ACME.Directory.String()
	}
	if err := c.ACME.read(&o); err != nil {
		return nil, err
	}
	m, err := acme.New(o)
	if err != nil {
		return nil, cli.Fail(err, fileHint(err, "may this user write to the directory?"))
	}
	own.own(m.Close)
	return m, nil
}

// read reads the files of the settings.
func (a *ACME) read(o *acme.Options) error {
	if a.CAFile != "" {
		b, err := os.ReadFile(a.CAFile)
		o.Roots = x509.NewCertPool()
		if err == nil && !o.Roots.AppendCertsFromPEM(b) {
			err = errors.New("there is no certificate in it")
		}
		if err != nil {
			return cli.Fail(fmt.Errorf("read the certificates of --acme-ca %q: %w", a.CAFile, err), fileHint(err, "--acme-ca must be a PEM file with certificates"))
		}
	}
	if a.BindingKeyFile != "" {
		b, err := os.ReadFile(a.BindingKeyFile)
		if err == nil && len(strings.TrimSpace(string(b))) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return cli.Fail(fmt.Errorf("read the key of --acme-eab-key %q: %w", a.BindingKeyFile, err), fileHint(err, "--acme-eab-key must be a file with the key that the authority has given out, in base64url"))
		}
		o.Binding = acme.Binding{KeyID: a.BindingID, Key: strings.TrimSpace(string(b))}
	}
	return nil
}

// runACME obtains and renews certificates until ctx ends. end waits for that.
func runACME(ctx context.Context, m *acme.Manager) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	return func() error {
		cancel()
		<-ended
		return nil
	}
}

// row returns the row of the settings.
func (a *ACME) row() Row {
	from := acme.LetsEncrypt
	if a.Directory != nil {
		from = a.Directory.Redacted()
	}
	return Row{"acme", fmt.Sprintf("certificates for %s from %s", strings.Join(a.Names, ", "), from)}
}
