package edge

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/acme"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
)

// A publicDoor serves HTTP to callers.
type publicDoor struct {
	gateway  *gateway.Gateway
	listener net.Listener
}

// Goodbye is how long a server that is replaced serves kept connections, to ask their clients to
// connect anew, and so does one that ends, unless its Limits have another time.
const Goodbye = 2 * time.Second

// identityOptions returns the settings of finding callers, without a backend's sessions and tokens.
func (c *Config) identityOptions() identity.Options {
	return identity.Options{
		TrustedProxies: c.Callers.TrustedProxies,
		ClientIPHeader: c.Callers.ClientIPHeader,
		IPv6Prefix:     c.Callers.IPv6Prefix,
		Certificates:   c.asksClients(),
		Now:            c.Now,
	}
}

// openPublic makes the gateway between callers and the backend.
func openPublic(c *Config, l *listeners, k *counter, b *backend, issued *acme.Manager, h *hooks) (*publicDoor, error) {
	who := c.identityOptions()
	who.Sessions, who.Tokens, who.TokenFrom = b.sessions, b.tokens, c.TokenFrom
	if c.rlsAlone() {
		who.Extra = rlsExtra()
	}
	resolver, err := identity.New(who)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	h.policies = append(h.policies, warnOfPlans(c.Log, resolver), warnOnce(c.Log, func(p weir.Policy) []Warning { return PolicyWarnings(p, c) }))
	o := gateway.Options{
		Decider:        k.Decider,
		Identity:       resolver,
		Forwarded:      c.Forwarded,
		Paths:          c.Paths,
		Methods:        c.Methods,
		CORSOrigins:    c.CORSOrigins,
		IETF:           c.IETFHeaders,
		Certificates:   c.Certificates,
		Clients:        c.Clients,
		ACME:           issued,
		ProxyProtocol:  c.Callers.ProxyProtocol,
		TrustedProxies: c.Callers.TrustedProxies,
		Degraded:       degraded(k, issued),
		Observe:        each(h.decisions),
		Spent:          each(h.spent),
		Log:            c.Log,
		Engine:         c.Engine,
		Limits:         c.Limits,
		HealthCheck:    c.HealthCheck,
	}
	o.Limits.Rate, o.Limits.Grace, o.Limits.Upload = c.MinRate, c.MinRateGrace, c.MaxUploadTime
	o.WrapListener = func(l net.Listener) net.Listener { return h.listener("edge", l) }
	b.attach(&o)
	for _, attach := range h.gateway {
		attach(&o)
	}
	g, err := gateway.New(o)
	var bad *gateway.CertificateError
	var authority *gateway.AuthorityError
	switch {
	case errors.As(err, &authority) && authority.File == c.Clients.CAFile:
		return nil, cli.Fail(err, fileHint(authority.Err, "--client-ca must be a PEM file with certificates alone"))
	case errors.As(err, &authority):
		return nil, cli.Fail(err, fileHint(authority.Err, "--upstream-ca must be a PEM file with certificates"))
	case errors.As(err, &bad) && bad.KeyPair == c.UpstreamTLS.Client:
		return nil, cli.Fail(err, fileHint(bad.Err, "--upstream-cert and --upstream-key must be PEM files that belong together"))
	case errors.As(err, &bad):
		return nil, cli.Fail(err, fileHint(bad.Err, "each --tls-cert and its --tls-key must be PEM files that belong together"))
	case err != nil:
		return nil, cli.UsageError("see 'weir serve --help'", "%w", err)
	}
	return &publicDoor{g, l.public}, nil
}

// degraded returns a function that returns why requests are not served as they should be: by the
// counter, or without a certificate. issued may be nil.
func degraded(k *counter, issued *acme.Manager) func() error {
	if issued == nil {
		return k.degraded
	}
	return func() error { return errors.Join(k.degraded(), issued.Missing(time.Now())) }
}

// shownUpstreams returns the state of the upstream's addresses for operators.
func (d *publicDoor) shownUpstreams() []admin.Upstream {
	states := d.gateway.Upstreams()
	all := make([]admin.Upstream, len(states))
	for i, s := range states {
		all[i] = admin.Upstream{
			Site: cmp.Or(s.Site, "*"), Address: s.Address.String(), Up: s.Well, InFlight: s.Busy, Failures: s.Failures,
			Unavailable: s.Unanswered[http.StatusBadGateway], Late: s.Unanswered[http.StatusGatewayTimeout],
		}
		if !s.Since.IsZero() {
			all[i].Since = s.Since.Unix()
		}
	}
	return all
}

// Serve implements Door.
func (d *publicDoor) Serve(ctx context.Context) error { return d.gateway.Serve(ctx, d.listener) }

// Addr implements Door.
func (d *publicDoor) Addr() net.Addr { return d.listener.Addr() }

// row returns the row of what speaks HTTP with callers, and why that is net/http if it is.
func (d *publicDoor) row(c *Config) Row {
	text := "net/http, since traces are on"
	switch {
	case d.gateway.Fast():
		text = "Weir's own, for HTTP/1.1 and HTTP/2"
	case len(c.Sites) == 0:
		text = "net/http, as always for the sample backend"
	case c.Engine == gateway.EngineStd:
		text = "net/http, since --engine is std"
	}
	return Row{"engine", text}
}

// A pulse checks for the watchdog whether a server works: it counts, and it accepts connections. It
// ignores a shared store or a backend that does not answer, because a restart would not help. A
// pulse is for one goroutine.
type pulse struct {
	counter  *counter
	front    front
	at       net.Addr
	accepted int64 // at the last check
}

// alive returns nil if the server works. It waits until ctx ends at most, except for the counts,
// which never wait if they work.
func (p *pulse) alive(ctx context.Context) error {
	if err := p.counter.works(ctx); err != nil {
		return err
	}
	if p.front.Draining() {
		return nil // it accepts nothing any more
	}
	last := p.accepted
	if p.accepted = p.front.Accepted(); p.accepted != last {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, p.at.Network(), p.at.String())
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // it cannot be reached from here, which proves nothing
	}
	if err == nil {
		defer conn.Close()
	}
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for p.front.Accepted() == last && !p.front.Draining() {
		select {
		case <-retry.C:
		case <-ctx.Done():
			return errors.New("no connection is accepted")
		}
	}
	return nil
}
