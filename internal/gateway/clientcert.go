package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A ClientTLS is whether clients are asked for certificates. The zero value asks for none.
type ClientTLS struct {
	// CAFile has the certificates of the authorities that those of clients must come from, in PEM;
	// empty: clients are not asked. It is read again when it changes; a file that cannot be used
	// leaves the previous authorities in force. A client whose certificate does not verify gets no
	// connection.
	CAFile string
	// Optional means that a client without a certificate gets a connection too.
	Optional bool
}

// clientAuthorities are those that the certificates of clients must come from. They are safe for
// concurrent use.
type clientAuthorities struct {
	ClientTLS
	log     *slog.Logger
	current atomic.Pointer[authorities]

	mu     sync.Mutex // of refresh
	stamp  stamp      // of the file that was read last
	logged string     // the last failure that was logged; empty after a success
}

// loadClientAuthorities reads the file for the first time.
func loadClientAuthorities(from ClientTLS, log *slog.Logger) (*clientAuthorities, error) {
	a := &clientAuthorities{ClientTLS: from, log: log}
	now, err := stampOf(from.CAFile)
	if err != nil {
		return nil, &AuthorityError{from.CAFile, err}
	}
	read, err := readAuthorities(from.CAFile)
	if err != nil {
		return nil, err
	}
	a.stamp = now
	a.current.Store(read)
	return a, nil
}

// refresh reads the file again if it has changed. If it cannot be used, the authorities stay.
func (a *clientAuthorities) refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, err := stampOf(a.CAFile)
	if err == nil && now == a.stamp {
		return
	}
	var read *authorities
	if err == nil {
		read, err = readAuthorities(a.CAFile)
	}
	if err != nil {
		// It is tried again each time, since permissions can change without a change of the stamp,
		// and logged once.
		if what := err.Error(); what != a.logged {
			a.logged = what
			a.log.Error("cannot read the changed authorities of client certificates; the previous ones stay in force", "file", a.CAFile, "error", err)
		}
		return
	}
	a.stamp, a.logged = now, ""
	a.current.Store(read)
	a.log.Info("the authorities of client certificates were reloaded", "file", a.CAFile, "authorities", len(read.raw))
}

// authorityCheck is how often the file is looked at.
const authorityCheck = time.Second

// watch looks at the file regularly until ctx ends.
func (a *clientAuthorities) watch(ctx context.Context) {
	ticker := time.NewTicker(authorityCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.refresh()
		}
	}
}

// askClients returns what makes the configuration of an engine ask clients for certificates; nil if
// they are not asked.
func (g *Gateway) askClients() func(*tls.Config) {
	if g.clients == nil {
		return nil
	}
	return g.clients.ask
}

// ask makes the complete configuration of a listener ask clients for certificates, and verify them
// by the authorities that are in force at the handshake. crypto/tls also checks by them whether a
// session may be resumed. A connection for which config has a configuration of its own keeps that.
func (a *clientAuthorities) ask(config *tls.Config) {
	type asking struct {
		by     *authorities
		config *tls.Config
	}
	base, own := config.Clone(), config.GetConfigForClient
	var last atomic.Pointer[asking]
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if own != nil {
			if other, err := own(hello); other != nil || err != nil {
				return other, err
			}
		}
		by := a.current.Load()
		if known := last.Load(); known != nil && known.by == by {
			return known.config, nil
		}
		now := &asking{by, base.Clone()}
		now.config.ClientAuth, now.config.ClientCAs = tls.RequireAndVerifyClientCert, by.pool
		if a.Optional {
			now.config.ClientAuth = tls.VerifyClientCertIfGiven
		}
		last.Store(now)
		return now.config, nil
	}
}

// hold reports whether one of the chains that verified when a connection began does so at now: its
// authority is still one of the file, and no certificate of it has expired.
func (a *clientAuthorities) hold(chains [][]*x509.Certificate, now time.Time) bool {
	by := a.current.Load()
	return slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		expired := func(c *x509.Certificate) bool { return now.After(c.NotAfter) }
		return len(chain) > 0 && by.raw[string(chain[len(chain)-1].Raw)] && !slices.ContainsFunc(chain, expired)
	})
}

// RequireClients makes the complete configuration of a listener that is not the gateway's require
// certificates of clients, from the authorities in a file. follow reads the file again when it
// changes, until ctx ends. The error is an *AuthorityError.
func RequireClients(config *tls.Config, file string, log *slog.Logger) (follow func(ctx context.Context), err error) {
	a, err := loadClientAuthorities(ClientTLS{CAFile: file}, log)
	if err != nil {
		return nil, err
	}
	a.ask(config)
	return a.watch, nil
}
