package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
)

// certificates are all that a server has. A client gets the one for the name that it asks for (SNI,
// RFC 6066, section 3). They are safe for concurrent use.
type certificates struct {
	now func() time.Time

	mu      sync.Mutex
	all     []*certificate            // at least one; the first is the default
	byName  map[string][]*certificate // by names, each in the order of all
	checked time.Time
}

// certificateCheck is how long the files are not looked at again. They are looked at during
// handshakes, and for a look at the metrics.
const certificateCheck = time.Second

// loadCertificates reads all pairs. now is the clock.
func loadCertificates(pairs []KeyPair, log *slog.Logger, now func() time.Time) (*certificates, error) {
	s := &certificates{now: now, checked: now()}
	for _, pair := range pairs {
		c, err := loadCertificate(pair, log)
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, c)
	}
	s.index()
	return s, nil
}

// index makes the certificates findable by name. The mutex is held, or not needed yet.
func (s *certificates) index() {
	s.byName = make(map[string][]*certificate)
	for _, c := range s.all {
		for _, name := range c.names() {
			s.byName[name] = append(s.byName[name], c)
		}
	}
}

// refresh looks at the files again if that is due. The mutex is held.
func (s *certificates) refresh() {
	now := s.now()
	if now.Sub(s.checked) < certificateCheck {
		return
	}
	s.checked = now
	changed := false
	for _, c := range s.all {
		if c.refresh() {
			changed = true
			c.warn(now)
		}
	}
	if changed {
		s.index()
	}
}

// get is a tls.Config.GetCertificate. The exact name comes before a wildcard, and what the client
// supports before what it does not; without a match, it is the default.
func (s *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	if len(s.all) == 1 {
		return s.all[0].current, nil
	}
	exact, wildcard := s.named(hello.ServerName)
	for _, tier := range [][]*certificate{exact, wildcard} {
		for _, c := range tier {
			if hello.SupportsCertificate(c.current) == nil {
				return c.current, nil
			}
		}
	}
	// A certificate that the client cannot use gives it a better error than another name.
	for _, tier := range [][]*certificate{exact, wildcard} {
		if len(tier) > 0 {
			return tier[0].current, nil
		}
	}
	unnamed := *hello
	unnamed.ServerName = ""
	for _, c := range s.defaults() {
		if unnamed.SupportsCertificate(c.current) == nil {
			return c.current, nil
		}
	}
	return s.all[0].current, nil
}

// named returns the certificates for a host by its own name, and by the wildcard that covers it:
// one label (RFC 9525, section 6.3). The mutex is held.
func (s *certificates) named(host string) (exact, wildcard []*certificate) {
	folded, ok := weir.AppendHost(nil, host)
	if !ok {
		return nil, nil
	}
	name := string(folded)
	exact = s.byName[name]
	if _, above, ok := strings.Cut(name, "."); ok {
		wildcard = s.byName["*."+above]
	}
	return exact, wildcard
}

// defaults returns the first certificate, and those of the same names with another kind of key. The
// mutex is held.
func (s *certificates) defaults() (all []*certificate) {
	names := s.all[0].names()
	for _, c := range s.all {
		if c == s.all[0] || slices.Equal(c.names(), names) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	exact, wildcard := s.named(asked)
	given := slices.Concat(exact, wildcard)
	if len(given) == 0 {
		given = s.defaults()
	}
	exact, wildcard = s.named(string(name))
	for _, c := range given {
		if !slices.Contains(exact, c) && !slices.Contains(wildcard, c) {
			return false
		}
	}
	return true
}

// config returns the configuration of a listener.
func (s *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.get}
}

// warn logs which certificates expire soon.
func (s *certificates) warn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for _, c := range s.all {
		c.warn(s.now())
	}
}

// watch warns now and daily until ctx ends.
func (s *certificates) watch(ctx context.Context) {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	ends := make(map[string]time.Time, len(s.all))
	for _, c := range s.all {
		end := c.current.Leaf.NotAfter
		if first, ok := ends[c.label()]; !ok || end.Before(first) {
			ends[c.label()] = end
		}
	}
	return ends
}
