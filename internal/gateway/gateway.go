// Package gateway is the edge itself: it listens, brings each request to one safe form, asks the
// limiter, and passes what is admitted to a handler or to an upstream. It chooses the engine that
// speaks HTTP, accepts its connections, and drains it:
//
//	options.go      what a Gateway is made from
//	gateway.go      its constructor, and what it reports
//	engine.go       which engine serves
//	listener.go     the layers of a connection below HTTP: the PROXY protocol, the pace
//	serve.go        start and drain
//	certificate.go  a TLS certificate; certificates.go  all of them, and which one a client gets
//	clientcert.go   the authorities that certificates of clients must come from
//	redirect.go     another listener, which sends clients to https
//	upstreams.go    the addresses of the upstream; upstreamtls.go  TLS with them
//	health.go       their health checks
//
// The rest is in packages of its own, from the top down:
//
//	fast   HTTP/1.1 before an upstream: a loop of our own
//	http2  HTTP/2 before an upstream: another one
//	std    net/http: both before a handler
//	rules  what both ask: what is forwarded, withheld, answered and logged
//	relay  one request to an upstream, and its answer
//	pace   how slow a peer may be
package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/gateway/std"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
)

// Limits bound what one peer can hold. A zero field means its default.
type Limits = rules.Limits

// An AccessLog writes one line a request. Make one with NewAccessLog.
type AccessLog = rules.AccessLog

// A LogRecord is what the access log reports of one request.
type LogRecord = rules.Record

// LogFields are the fields of a line that can be switched off, as a set. The zero value is none.
type LogFields = rules.LogFields

// AllLogFields are all of them.
const AllLogFields = rules.AllLogFields

// LogFieldNames returns their names, in the order of a line, and LogFieldOf the field of a name; 0
// if there is none.
func LogFieldNames() []string { return rules.LogFieldNames() }

// LogFieldOf is described at LogFieldNames.
func LogFieldOf(name string) LogFields { return rules.LogFieldOf(name) }

// A Served is a request whose answer is complete, for figures.
type Served = rules.Served

// A LogFormat is how a line of the access log looks.
type LogFormat = rules.LogFormat

// The formats of an access log.
const (
	LogText = rules.LogText
	LogJSON = rules.LogJSON
)

// Paths selects which form of a path an upstream receives.
type Paths = target.Paths

// The forms: the canonical one, or the path as received.
const (
	Strict = target.Strict
	AsSent = target.AsSent
)

// ForwardingNames returns the names of the fields by which an upstream can learn who is calling, in
// lower case.
func ForwardingNames() []string { return rules.ForwardingNames() }

// DefaultForwarding returns those of ForwardingNames that are written by default.
func DefaultForwarding() []string { return rules.DefaultForwarding() }

// NoForwarding, alone in Options.Forwarded, has none of these fields written.
const NoForwarding = rules.NoForwarding

// CheckMethod returns why a method cannot be accepted beside the known ones; nil if it can.
func CheckMethod(method string) error { return rules.CheckMethod(method) }

// IsMethod reports whether every gateway accepts a method.
func IsMethod(method string) bool { return target.IsMethod(method) }

// NewAccessLog returns a log to w and starts its goroutine, which ends with Close. A write that
// fails is reported to log (nil means slog.Default()) once, until a write succeeds.
func NewAccessLog(w io.Writer, format LogFormat, log *slog.Logger) *AccessLog {
	return rules.NewAccessLog(w, format, log)
}

// A Gateway serves one policy before one backend. Make one with New.
type Gateway struct {
	options Options
	rules   *rules.Rules
	std     *std.Engine
	certs   *certificates      // nil: cleartext
	clients *clientAuthorities // nil: clients are not asked for certificates
	clock   *pace.Clock

	lingerFor atomic.Int64 // see LingerFor; 0: Limits.Linger

	redirects redirectTally
}

// New checks the options and returns a Gateway that does not listen yet. An error about what
// operators set names that and not this function, since they read it.
func New(o Options) (*Gateway, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Limits = o.Limits.WithDefaults(len(o.Sites) > 0)
	g := &Gateway{options: o, clock: pace.NewClock()}
	with := o.rules()
	log := cmp.Or(o.Log, slog.Default())
	secure, err := o.UpstreamTLS.config(log, time.Now)
	if err != nil {
		return nil, err
	}
	if with.Sites, err = g.newSites(secure); err != nil {
		return nil, err
	}
	if len(o.Certificates) > 0 || o.ACME != nil {
		if g.certs, err = loadCertificates(o.Certificates, o.ACME, log, time.Now); err != nil {
			return nil, err
		}
		for _, site := range o.Sites {
			if site.Host != "" {
				g.certs.served = append(g.certs.served, site.Host)
			}
		}
		if len(o.Certificates)+o.issued() > 1 || len(o.Sites) > 1 {
			with.Covers = g.certs.covers
		}
	}
	if o.Clients.CAFile != "" {
		if g.certs == nil {
			return nil, errors.New("new gateway: clients show certificates over TLS alone: Certificates are required")
		}
		if g.clients, err = loadClientAuthorities(o.Clients, log); err != nil {
			return nil, err
		}
		with.Holds = g.clients.hold
	}
	if g.rules, err = rules.New(with); err != nil {
		return nil, err
	}
	engine := std.Options{
		Backend: o.Backend, TLS: g.TLSConfig(), AskClients: g.askClients(),
		Wrap: o.Wrap, TraceUpstream: o.TraceUpstream, Traceparent: o.Traceparent, TracePath: o.TracePath,
	}
	g.std = std.New(g.rules, engine)
	return g, nil
}

func (o *Options) check() error {
	switch {
	case o.Decider == nil || o.Identity == nil:
		return errors.New("new gateway: Decider and Identity are required")
	case (o.Backend == nil) == (len(o.Sites) == 0):
		return errors.New("new gateway: one of Backend and Sites is required, not both")
	case o.Paths == target.AsSent && len(o.Sites) == 0:
		return errors.New("new gateway: paths are forwarded as sent to Sites alone: leave Paths out before Backend")
	case o.ProxyProtocol && len(o.TrustedProxies) == 0:
		return errors.New("new gateway: the PROXY protocol needs trusted proxies to take it from: name their networks")
	}
	return o.HealthCheck.check()
}

// issued returns how many names get their certificates by ACME.
func (o *Options) issued() int {
	if o.ACME == nil {
		return 0
	}
	return len(o.ACME.Names())
}

// rules returns the options that the engines' rules are made from.
func (o *Options) rules() rules.Options {
	return rules.Options{
		Decider:        o.Decider,
		Identity:       o.Identity,
		CORSOrigins:    o.CORSOrigins,
		IETF:           o.IETF,
		TrustedProxies: o.TrustedProxies,
		Ready:          o.Ready,
		Degraded:       o.Degraded,
		AccessLog:      o.AccessLog,
		Log:            o.Log,
		Credentials:    o.Credentials,
		Denial:         o.Denial,
		ValueHash:      o.ValueHash,
		CallerHash:     o.CallerHash,
		LogFields:      o.LogFields,
		Served:         o.Served,
		Observe:        o.Observe,
		Spent:          o.Spent,
		HideTokens:     o.HideTokens,
		Forwarded:      o.Forwarded,
		Paths:          o.Paths,
		Methods:        o.Methods,
		Limits:         o.Limits,
		Judged:         std.Judged,
		Ended:          std.Ended,
	}
}

// Handler serves one request after another, without the listeners' part (time-outs of headers,
// PROXY protocol, TLS).
func (g *Gateway) Handler() http.Handler { return g.std.Handler() }

// Fast reports whether requests are served by the fast engine rather than by net/http.
func (g *Gateway) Fast() bool { return g.options.isFast() }

// TLSConfig returns what connections to the gateway are secured by, for another listener of the
// same server; nil if they are not. It asks no client for a certificate.
func (g *Gateway) TLSConfig() *tls.Config {
	if g.certs == nil {
		return nil
	}
	return g.certs.config()
}

// OperatorTLS returns what connections of operators to another listener of the same server are
// secured by; nil if they are not.
func (g *Gateway) OperatorTLS() (*tls.Config, error) {
	if g.certs == nil {
		return nil, nil
	}
	return g.certs.operators()
}

// Certificates returns when the first certificate of each name expires; none without TLS. A
// certificate's name is the first of its hosts.
func (g *Gateway) Certificates() map[string]time.Time {
	if g.certs == nil {
		return nil
	}
	return g.certs.expiries()
}

// InFlight returns how many requests are under way, taken-over connections (websockets) included
// while their handlers run.
func (g *Gateway) InFlight() int64 { return g.rules.Active.Load() }

// Accepted returns how many connections were accepted, ever. While the number grows, the accept
// loop lives.
func (g *Gateway) Accepted() int64 { return g.rules.Accepted.Load() }

// Draining reports whether the drain has begun.
func (g *Gateway) Draining() bool { return g.rules.Draining.Load() }

// Ready returns the answer to GET /readyz: whether this server wants requests, and serves them as
// it should. It asks the backend at most once a second.
func (g *Gateway) Ready(ctx context.Context) (status int, text string) { return g.rules.Readyz(ctx) }

// Malformed returns how many times the fast engine received what is not a request, by the status of
// its answer. No limiter was charged for these, and they are in no access log. net/http does not
// report those that it refuses.
func (g *Gateway) Malformed() map[int]int64 { return g.rules.AllMalformed() }

// An UpstreamState is how an address of a site's upstream is doing.
type UpstreamState struct {
	Site string // Site.Host
	upstream.State
	// Unanswered are the requests of the whole site that no address answered, by the status of our
	// answer.
	Unanswered map[int]int64
}

// Upstreams returns how the addresses of the upstreams are doing, in the order of Options; nil
// before Backend.
func (g *Gateway) Upstreams() (all []UpstreamState) {
	for _, site := range g.rules.Sites {
		unanswered := site.AllUnanswered()
		for _, state := range site.Pool.States() {
			all = append(all, UpstreamState{site.Host, state, unanswered})
		}
	}
	return all
}
