package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acme"
)

// certificates are all that a server has: those of files, and those that it gets by ACME. A client
// gets the one for the name that it asks for (SNI, RFC 6066, section 3). They are safe for
// concurrent use. One handshake at a time looks at the files, and the others do not wait for it. A
// handshake waits for what ACME stores only if it needs a certificate by ACME.
type certificates struct {
	now    func() time.Time
	acme   *acme.Manager                      // nil: files alone
	issued func(name string) *tls.Certificate // acme.Certificate

	log    *slog.Logger
	served []string // hosts of upstreams, in the form of weir.Route.Host

	loaded atomic.Pointer[loaded]

	mu      sync.Mutex     // held while the files are looked at
	files   []*certificate // the first is the default
	checked time.Time
}

// A loaded is what the files held when they were last read. It is immutable.
type loaded struct {
	all    []*tls.Certificate // the first is the default
	names  [][]string         // of each
	byName map[string][]*tls.Certificate
}

// certificateCheck is how long the files are not looked at again. They are looked at during
// handshakes, and for a look at the metrics.
const certificateCheck = time.Second

// loadCertificates reads all pairs. issued are those by ACME, nil if there are none. now is the
// clock.
func loadCertificates(pairs []KeyPair, issued *acme.Manager, log *slog.Logger, now func() time.Time) (*certificates, error) {
	s := &certificates{now: now, acme: issued, log: log, checked: now()}
	if issued != nil {
		s.issued = issued.Certificate
	}
	for _, pair := range pairs {
		c, err := loadCertificate(pair, log)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, c)
	}
	s.index()
	return s, nil
}

// index makes the certificates findable by name. The mutex is held, or not needed yet.
func (s *certificates) index() {
	l := &loaded{byName: make(map[string][]*tls.Certificate)}
	for _, c := range s.files {
		names := c.names()
		l.all, l.names = append(l.all, c.current), append(l.names, names)
		for _, name := range names {
			l.byName[name] = append(l.byName[name], c.current)
		}
	}
	s.loaded.Store(l)
}

// refreshed returns what the files hold, after a look at them if that is due and nobody else is
// looking.
func (s *certificates) refreshed() *loaded {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		s.refresh()
	}
	return s.loaded.Load()
}

// refresh looks at the files again if that is due. The mutex is held.
func (s *certificates) refresh() {
	now := s.now()
	if now.Sub(s.checked) < certificateCheck {
		return
	}
	s.checked = now
	changed := false
	for _, c := range s.files {
		if c.refresh() {
			changed = true
			c.warn(now)
		}
	}
	if changed {
		s.index()
		s.warnOfNames()
	}
}

// get is a tls.Config.GetCertificate. The exact name of a file comes before a name by ACME, that
// before a wildcard, and what the client supports before what it does not; without a match, it is
// the default. It returns nil for a name by ACME that has no certificate yet: the client gets the
// alert unrecognized_name.
func (s *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	l := s.refreshed()
	if len(l.all) == 1 && s.acme == nil {
		return l.all[0], nil
	}
	exact, wildcard := l.named(hello.ServerName)
	if c := supported(hello, exact); c != nil {
		return c, nil
	}
	name := s.issuedName(hello.ServerName)
	if name != "" {
		if c := s.issued(name); c != nil && (len(exact)+len(wildcard) == 0 || hello.SupportsCertificate(c) == nil) {
			return c, nil
		}
	}
	if c := supported(hello, wildcard); c != nil {
		return c, nil
	}
	// A certificate that the client cannot use gives it a better error than another name.
	for _, tier := range [][]*tls.Certificate{exact, wildcard} {
		if len(tier) > 0 {
			return tier[0], nil
		}
	}
	if name != "" {
		return nil, nil
	}
	return s.fallback(l, hello), nil
}

// supported returns the first certificate that a client supports; nil if there is none.
func supported(hello *tls.ClientHelloInfo, all []*tls.Certificate) *tls.Certificate {
	for _, c := range all {
		if hello.SupportsCertificate(c) == nil {
			return c
		}
	}
	return nil
}

// issuedName returns the name by ACME that a host is; empty if it is none.
func (s *certificates) issuedName(host string) string {
	if s.acme == nil {
		return ""
	}
	folded, ok := weir.AppendHost(nil, host)
	if !ok || !s.acme.Has(string(folded)) {
		return ""
	}
	return string(folded)
}

// fallback returns the certificate of a client that asks for no name, or for an unknown one: the
// first of files, else the first by ACME; nil while there is none.
func (s *certificates) fallback(l *loaded, hello *tls.ClientHelloInfo) *tls.Certificate {
	if len(l.all) == 0 {
		return s.issued(s.acme.Names()[0])
	}
	unnamed := *hello
	unnamed.ServerName = ""
	if c := supported(&unnamed, l.defaults()); c != nil {
		return c
	}
	return l.all[0]
}

// named returns the certificates for a host by its own name, and by the wildcard that covers it:
// one label (RFC 9525, section 6.3).
func (l *loaded) named(host string) (exact, wildcard []*tls.Certificate) {
	folded, ok := weir.AppendHost(nil, host)
	if !ok {
		return nil, nil
	}
	name := string(folded)
	exact = l.byName[name]
	if _, above, ok := strings.Cut(name, "."); ok {
		wildcard = l.byName["*."+above]
	}
	return exact, wildcard
}

// defaults returns the first certificate of files, and those of the same names with another kind of
// key.
func (l *loaded) defaults() (all []*tls.Certificate) {
	for i, c := range l.all {
		if slices.Equal(l.names[i], l.names[0]) {
			all = append(all, c)
		}
	}
	return all
}

// covers reports whether a client that asked for a name (SNI; empty: for none) may send requests
// for a host on the same connection: it is that name, or the certificate is for it too. Where the
// client may have been given one of several, all must be.
func (s *certificates) covers(asked, host string) bool {
	var space, askedSpace [128]byte
	name, ok := weir.AppendHost(space[:0], host)
	if !ok {
		return true // it is refused for that, or has no host at all
	}
	if folded, ok := weir.AppendHost(askedSpace[:0], asked); ok && string(folded) == string(name) {
		return true
	}
	l := s.loaded.Load()
	exact, wildcard := l.named(asked)
	if len(exact) == 0 && s.issuedName(asked) != "" {
		return false // it is for one name
	}
	given := slices.Concat(exact, wildcard)
	if len(given) == 0 && len(l.all) == 0 {
		return s.acme.Names()[0] == string(name)
	}
	if len(given) == 0 {
		given = l.defaults()
	}
	exact, wildcard = l.named(string(name))
	for _, c := range given {
		if !slices.Contains(exact, c) && !slices.Contains(wildcard, c) {
			return false
		}
	}
	return true
}

// isFor reports whether there is, or will be, a certificate for a host in the form of
// weir.AppendHost. If none names a host, it is true for all.
func (s *certificates) isFor(host string) bool {
	l := s.loaded.Load()
	if len(l.byName) == 0 && s.acme == nil {
		return true
	}
	exact, wildcard := l.named(host)
	return len(exact)+len(wildcard) > 0 || s.issuedName(host) != ""
}

// config returns the configuration of a listener.
func (s *certificates) config() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.get}
	if s.acme != nil {
		// An authority that validates a name agrees on a protocol of its own, and shows no
		// certificate.
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return s.acme.Challenge(hello), nil }
	}
	return c
}

// operators returns the configuration of a listener for operators. Until the first certificate by
// ACME it has one that nobody has signed, so that they can see why there is none.
func (s *certificates) operators() (*tls.Config, error) {
	c := s.config()
	if len(s.loaded.Load().all) > 0 {
		return c, nil
	}
	unsigned, err := unsignedCertificate(s.now())
	if err != nil {
		return nil, fmt.Errorf("make a certificate for operators: %w", err)
	}
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if found, err := s.get(hello); found != nil || err != nil {
			return found, err
		}
		return unsigned, nil
	}
	return c, nil
}

// unsignedCertificate returns a certificate for no name. now is when the server starts; it lasts
// for as long as a server may.
func unsignedCertificate(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "no certificate by ACME yet"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// warn logs which certificates expire soon.
func (s *certificates) warn() {
	s.warnOfFiles()
	if s.acme != nil {
		s.acme.Warn(s.now())
	}
}

func (s *certificates) warnOfFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for _, c := range s.files {
		c.warn(s.now())
	}
}

// warnOfNames logs which certificates no client accepts or gets, and which hosts have none. The
// mutex is held, or not needed yet.
func (s *certificates) warnOfNames() {
	first, alike := make(map[string]*certificate, len(s.files)), make(map[string]*certificate, len(s.files))
	for _, c := range s.files {
		if len(c.names()) == 0 {
			s.log.Warn("a TLS certificate names no host, so clients refuse it: issue one with the hosts as subject alternative names", "name", c.label(), "certificate", c.CertFile)
		}
		der := string(c.current.Leaf.Raw)
		if same := first[der]; same != nil {
			s.log.Warn("a TLS certificate is given twice, and only the first is used: leave one out", "name", c.label(), "certificate", same.CertFile, "again", c.CertFile)
			continue
		}
		first[der] = c
		use := c.use()
		if same := alike[use]; same != nil && len(c.names()) > 0 {
			s.log.Warn("a TLS certificate is never used, because an earlier one has the same names and the same kind of key: leave one out", "name", c.label(), "certificate", same.CertFile, "unused", c.CertFile)
			continue
		}
		alike[use] = c
	}
	for _, host := range s.served {
		if !s.hasFor(host) {
			s.log.Warn("a host of an upstream has no TLS certificate, so clients refuse the one that they get: give one that names it, or get it by ACME", "host", host)
		}
	}
}

// use returns what decides which clients can get the certificate: its names, and the kind of its
// key. Clients that accept one kind of key accept any size of RSA, but not any curve.
func (c *certificate) use() string {
	leaf := c.current.Leaf
	kind := leaf.PublicKeyAlgorithm.String()
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); ok {
		kind = key.Params().Name
	}
	names := slices.Clone(c.names())
	slices.Sort(names)
	return strings.Join(append(names, kind), " ")
}

// hasFor reports whether a host of an upstream has a certificate; one with a star, whether a name
// under it has.
func (s *certificates) hasFor(host string) bool {
	under, star := strings.CutPrefix(host, "*")
	if !star {
		return s.isFor(host)
	}
	isUnder := func(name string) bool { return strings.HasSuffix(name, under) }
	if s.acme != nil && slices.ContainsFunc(s.acme.Names(), isUnder) {
		return true
	}
	for name := range s.loaded.Load().byName {
		if isUnder(name) {
			return true
		}
	}
	return false
}

// watch warns now and daily until ctx ends.
func (s *certificates) watch(ctx context.Context) {
	s.mu.Lock()
	s.warnOfNames()
	s.mu.Unlock()
	s.warn()
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-daily.C:
			s.warn()
		}
	}
}

// expiries returns the first end of the certificates of each name.
func (s *certificates) expiries() map[string]time.Time {
	ends := make(map[string]time.Time)
	if s.acme != nil {
		ends = s.acme.Expiries()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for _, c := range s.files {
		end := c.current.Leaf.NotAfter
		if first, ok := ends[c.label()]; !ok || end.Before(first) {
			ends[c.label()] = end
		}
	}
	return ends
}
