// Package acme gets certificates for the names of a server from a certificate authority, by ACME
// (RFC 8555), and renews them. The protocol, its repetitions and the files are certmagic's. This
// package holds it to a fixed list of names, and reports what becomes of each:
//
//	acme.go    what a Manager is made from, and which certificate a client gets
//	keep.go    the first certificate of each name, and its renewal
//	state.go   which names have a certificate, which fail, and what the log has of it
//	damage.go  stored files that cannot be used
//	locks.go   who may change them
//	log.go     the log lines of certmagic
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/gofrs/flock"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
	"go.uber.org/zap"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/owned"
)

// LetsEncrypt is the directory of Let's Encrypt, the default authority.
const LetsEncrypt = certmagic.LetsEncryptProductionCA

// Options are what a Manager is made from. Names, Dir and Log are required. Whoever makes a Manager
// agrees to the authority's terms of service.
type Options struct {
	// Names are the hosts that get one certificate each, in the form of weir.AppendHost, without
	// addresses and stars. No other name ever gets one, whatever clients ask for.
	Names []string
	// Directory is the URL of the authority's directory; empty: LetsEncrypt.
	Directory string
	// Email is the contact of the account at the authority; empty: none.
	Email string
	// Roots verify the authority's own server; nil: those of the system.
	Roots *x509.CertPool
	// Binding is the account of a customer that the authority knows otherwise.
	Binding Binding
	// Dir is the directory of the account's key, the certificates and their keys. It is made if it
	// is missing, for this user alone. Several servers may share one: only one of them asks for a
	// certificate, and each can answer the authority's questions.
	Dir string

	// Listen is the address at which this server answers TLS-ALPN-01 challenges (RFC 8737), and
	// Redirect the one at which it answers HTTP-01 challenges (RFC 8555, section 8.3). Without
	// Redirect there are none of those.
	Listen, Redirect netip.AddrPort

	Log *slog.Logger

	// RenewEvery is how often the certificates are looked at for renewal; 0: once a minute.
	RenewEvery time.Duration

	issuer certmagic.Issuer // instead of an authority, for tests
}

// A Binding ties an account to one that an authority has given out before (RFC 8555, section
// 7.3.4). The zero value ties to none.
type Binding struct {
	KeyID string
	Key   string // in base64url, as authorities give it out
}

// A Manager has the certificates of a server's names. Make one with New. It is safe for concurrent
// use.
type Manager struct {
	options Options
	log     *slog.Logger
	config  *certmagic.Config
	cache   *certmagic.Cache
	files   *storage
	solver  *certmagic.ACMEIssuer // nil if options.issuer is set
	names   map[string]bool       // Options.Names

	mu      sync.Mutex
	failing map[string]bool // the names that the log has a failure of, and no success since
	issued  map[string]bool // the names that got a certificate of which the log does not tell yet
}

// New returns a Manager with the certificates that Dir has. It asks the authority for nothing
// before Run. Files that are damaged are put aside, and are no error; an error is about Dir.
func New(o Options) (*Manager, error) {
	if err := owned.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("make the directory of certificates by ACME: %w", err)
	}
	m := &Manager{options: o, log: o.Log, failing: make(map[string]bool), issued: make(map[string]bool)}
	m.files = &storage{FileStorage: &certmagic.FileStorage{Path: o.Dir}, held: make(map[string]*flock.Flock)}
	if m.options.Directory == "" {
		m.options.Directory = LetsEncrypt
	}
	if m.options.RenewEvery == 0 {
		m.options.RenewEvery = time.Minute
	}
	logger := zap.New(&logCore{manager: m})
	m.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return m.config, nil },
		RenewCheckInterval: m.options.RenewEvery,
		Logger:             logger,
	})
	m.config = certmagic.New(m.cache, certmagic.Config{
		Storage: m.files, Logger: logger, OnEvent: m.note,
		ShouldEmitFunc: func(event string) bool { return event == eventFailed || event == eventObtained },
	})
	m.config.Issuers = []certmagic.Issuer{o.issuer}
	if o.issuer == nil {
		m.solver = certmagic.NewACMEIssuer(m.config, m.issuer(logger))
		m.config.Issuers = []certmagic.Issuer{m.solver}
	}
	m.names = make(map[string]bool, len(o.Names))
	for _, name := range o.Names {
		m.names[name] = true
	}
	m.putAsideAccounts()
	for _, name := range o.Names {
		// Run loads what another server is just writing.
		if err := m.stored(context.Background(), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errBusy) {
			m.failed(name, err)
		}
	}
	return m, nil
}

// issuer returns the settings of the authority.
func (m *Manager) issuer(logger *zap.Logger) certmagic.ACMEIssuer {
	o := m.options
	with := certmagic.ACMEIssuer{
		CA: o.Directory, Email: o.Email, Agreed: true, TrustedRoots: o.Roots, Logger: logger.Named("acme"),
		// Certmagic listens itself where nothing does. These are the addresses at which we do.
		ListenHost: o.Listen.Addr().String(), AltTLSALPNPort: int(o.Listen.Port()), AltHTTPPort: int(o.Redirect.Port()),
		DisableHTTPChallenge: !o.Redirect.IsValid(),
	}
	if o.Listen.Addr().IsUnspecified() {
		with.ListenHost = ""
	}
	if o.Binding.KeyID != "" {
		with.ExternalAccount = &acme.EAB{KeyID: o.Binding.KeyID, MACKey: o.Binding.Key}
	}
	return with
}

// Names returns the hosts that get certificates.
func (m *Manager) Names() []string { return m.options.Names }

// Has reports whether a host, in the form of weir.AppendHost, is one of Names.
func (m *Manager) Has(host string) bool { return m.names[host] }

// Certificate returns the certificate of one of Names; nil while there is none. Once it has
// expired, it is returned all the same, since it gives clients the better error.
func (m *Manager) Certificate(name string) *tls.Certificate {
	if c := m.current(name); c != nil {
		return &c.Certificate
	}
	return nil
}

// current returns the certificate of a name that expires last; nil if there is none.
func (m *Manager) current(name string) (last *certmagic.Certificate) {
	for _, c := range m.cache.AllMatchingCertificates(name) {
		if last == nil || c.Leaf.NotAfter.After(last.Leaf.NotAfter) {
			last = &c
		}
	}
	return last
}

// Protocol is what a connection has agreed on by ALPN if the authority has made it to validate a
// name (RFC 8737). It ends with its handshake.
const Protocol = acmez.ACMETLS1Protocol

// Challenge returns the configuration for a connection that an authority makes to validate one of
// Names (TLS-ALPN-01); nil for any other.
func (m *Manager) Challenge(hello *tls.ClientHelloInfo) *tls.Config {
	if len(hello.SupportedProtos) != 1 || hello.SupportedProtos[0] != Protocol {
		return nil
	}
	if name, ok := weir.AppendHost(nil, hello.ServerName); !ok || !m.Has(string(name)) {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{Protocol}, GetCertificate: m.config.GetCertificate}
}

// AnswerChallenge answers a request that an authority makes to validate one of Names (HTTP-01). It
// reports false, and has done nothing, if the request is another.
func (m *Manager) AnswerChallenge(w http.ResponseWriter, r *http.Request) bool {
	if m.solver == nil || !strings.HasPrefix(r.URL.Path, "/.well-known/acme-challenge/") {
		return false
	}
	name, ok := weir.AppendHost(nil, r.Host)
	return ok && m.Has(string(name)) && m.solver.HandleHTTPChallenge(w, r)
}

// maxStop bounds the wait of Close for what is asked of the authority.
const maxStop = 5 * time.Second

// Close ends the renewals. Run must have returned.
func (m *Manager) Close() error {
	stopped := make(chan struct{})
	go func() { // it may be asking an authority that does not answer
		m.cache.Stop()
		close(stopped)
	}()
	late := time.NewTimer(maxStop)
	defer late.Stop()
	select {
	case <-stopped:
	case <-late.C:
	}
	return nil
}
