package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/rls"
	"github.com/weirlimit/weir/policyfile"
)

// RLS are the settings of the door for Envoy's rate limit service.
type RLS struct {
	// Listen is its address, HOST:PORT, or unix: and the path of a socket; empty: none.
	Listen string
	// HTTPListen is the address of /json and /healthcheck, in clear text; empty: none.
	HTTPListen string
	// Config is a file or a directory with the configuration of envoyproxy/ratelimit.
	Config string
	// XDS is the control plane that has the configuration in place of Config.
	XDS XDS
	// MergeDomains allows several files with one domain.
	MergeDomains bool
	// ClientCA is the file of the authorities that certificates of clients must come from; empty:
	// clients are not asked.
	ClientCA string
	// MaxAge is when a connection is asked to be replaced.
	MaxAge time.Duration
	// Service are the settings of the answers. The store, the log and what observes are set here.
	Service rls.Options
}

// rlsAlone reports whether a server only answers Envoy.
func (c *Config) rlsAlone() bool { return c.asksAlone() && c.ForwardAuth.Listen == "" }

// RLSDocument returns the policy of a server that only answers Envoy: a limiter for each unit.
func RLSDocument(r RLS) *live.Document {
	p := rls.Policy(&r.Service)
	return &live.Document{
		Source: live.Stream, Path: "the limits of " + r.origin(), Text: policyfile.Marshal(p), File: &policyfile.File{Policy: p, Lines: make([]int, len(p.Limiters))},
	}
}

// rlsExtra returns the key sources of RLSDocument, which no HTTP request has.
func rlsExtra() (all []identity.Source) {
	for _, s := range rls.Sources() {
		all = append(all, identity.Source{Source: s, Find: func(identity.Request, string) (string, bool) { return "", false }})
	}
	return all
}

// The names of the door's listeners, for the next process.
const (
	rlsSocket     = "rls"
	rlsHTTPSocket = "rls-http"
)

// rlsListeners are those of the door; nil: the public listener, or none.
type rlsListeners struct{ grpc, http net.Listener }

// openRLSListeners listens for Envoy beside the public listener.
func openRLSListeners(ctx context.Context, c *Config, l *listeners, self *ownListeners, own *parts) (at rlsListeners, err error) {
	if c.RLS.Listen != "" && !c.rlsAlone() {
		o := operatorListener{"--rls", rlsSocket, c.RLS.Listen, "--rls 127.0.0.1:0 takes any free port"}
		if at.grpc, err = openPeerListener(ctx, o, l, self, own); err != nil {
			return at, err
		}
	}
	if c.RLS.HTTPListen != "" {
		o := operatorListener{"--rls-http", rlsHTTPSocket, c.RLS.HTTPListen, "--rls-http 127.0.0.1:0 takes any free port"}
		at.http, err = o.open(ctx, nil, l, self, own)
	}
	return at, err
}

// openPeerListener is operatorListener.open for an address that may be a Unix socket's.
func openPeerListener(ctx context.Context, o operatorListener, l *listeners, self *ownListeners, own *parts) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(o.address, "unix:")
	if !isSocket {
		return o.open(ctx, nil, l, self, own)
	}
	passed, held, err := l.from.Take(o.socket, o.address)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	listener := socketListener{passed}
	if passed == nil {
		if listener, err = listenSocket(path); err != nil {
			return nil, err
		}
	}
	own.own(func() error {
		_ = listener.Close() // it may be closed already
		return nil
	})
	l.add(handover.Socket{Name: o.socket, Address: o.address, Held: held, Listener: listener.Listener})
	return listener, self.claimListener(ctx, listener, o.flag)
}

// An rlsPart is the rate limit service and its doors.
type rlsPart struct {
	settings *RLS
	service  *rls.Service
	door     *rls.Door
	doors    []Door // for gRPC, and for HTTP if there is one
	domains  string // what was loaded, for Server.Rows
	secure   bool
}

// openRLS makes the service, which follows its configuration until ctx ends, and its doors. It
// returns nil if there is none.
func openRLS(ctx context.Context, s *Server, at rlsListeners, h *hooks) (*rlsPart, error) {
	c := s.config
	if c.RLS.Listen == "" {
		return nil, nil
	}
	if c.rlsAlone() {
		at.grpc = s.listeners.public
	}
	o := c.RLS.Service
	o.Store, o.Log, o.Denial = s.counter.counts, c.Log, h.denial
	o.Observe = each(append(h.decisions[:len(h.decisions):len(h.decisions)], h.logRLS(c)...))
	service, err := rls.New(o)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	s.parts.own(func() error {
		patience, cancel := context.WithTimeout(context.Background(), maxGiveBack)
		defer cancel()
		service.Close(patience)
		return nil
	})
	if s.counter.store.check != nil {
		if err := s.counter.store.check(rls.Policy(&o)); err != nil {
			return nil, cli.Fail(fmt.Errorf("count the descriptors of --rls: %w", err), "")
		}
	}
	follow, err := rlsLimits(c, service)
	if err != nil {
		return nil, err
	}
	s.parts.own(inBackground(ctx, follow))
	if err := h.register(service.Metrics()); err != nil {
		return nil, cli.Fail(err, "")
	}
	p := &rlsPart{settings: &c.RLS, service: service, domains: service.Loaded() + " in " + c.RLS.origin()}
	secure, err := rlsTLS(c, s.public.gateway, at.grpc, &s.parts)
	if err != nil {
		return nil, err
	}
	p.secure = secure != nil
	p.door = rls.NewDoor(service, rls.DoorOptions{TLS: secure, Drain: c.Limits.Drain, MaxAge: c.RLS.MaxAge, Degraded: s.counter.degraded})
	p.doors = []Door{&rlsDoor{p.door.Serve, h.listener("rls", at.grpc)}}
	if at.http != nil {
		p.doors = append(p.doors, &rlsDoor{p.door.ServeHTTP, h.listener("rls-http", at.http)})
	}
	return p, nil
}

// rlsTLS returns what Envoy's connections are secured by: the certificates of the server, and
// perhaps those of clients. It is nil without certificates, and at a Unix socket.
func rlsTLS(c *Config, g *gateway.Gateway, at net.Listener, own *parts) (*tls.Config, error) {
	if !c.secure() || at.Addr().Network() == "unix" {
		return nil, nil
	}
	secure, err := g.OperatorTLS()
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	secure.NextProtos = []string{"h2"}
	if c.RLS.ClientCA == "" {
		return secure, nil
	}
	follow, err := gateway.RequireClients(secure, c.RLS.ClientCA, c.Log)
	if err != nil {
		return nil, cli.Fail(err, "--rls-client-ca must be a PEM file with certificates alone")
	}
	own.own(inBackground(context.Background(), follow))
	return secure, nil
}

// inBackground runs a function until ctx ends, or until stop is called, which waits for it.
func inBackground(ctx context.Context, run func(context.Context)) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { run(ctx) })
	return func() error {
		cancel()
		done.Wait()
		return nil
	}
}

// rlsMethod is what the access log has as the path of requests over gRPC.
const rlsMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// logRLS returns what writes the lines of the access log; nothing if there is none.
func (h *hooks) logRLS(c *Config) []func(answer.Observation) {
	if h.accessLog == nil {
		return nil
	}
	return []func(answer.Observation){func(o answer.Observation) {
		over := time.Now()
		line := gateway.LogRecord{Start: over.Add(-o.Latency), Method: http.MethodPost, Path: rlsMethod, Proto: "HTTP/2.0", Status: http.StatusOK, Limiter: o.Limiter}
		line.NoteOutcome(o.Outcome)
		switch o.Outcome {
		case answer.Refused:
			line.Status = http.StatusTooManyRequests
		case answer.Unavailable:
			line.Status = http.StatusServiceUnavailable
		}
		if r := rls.RequestOf(o.Context); r != nil {
			line.Path, line.Host, line.Proto = r.URL.Path, r.Host, r.Proto
			if o.Outcome == answer.Unavailable {
				line.Status = http.StatusInternalServerError
			}
		}
		if from, ok := peer.FromContext(o.Context); ok {
			line.Client = identity.ParsePeer(from.Addr.String())
		}
		h.accessLog.Add(&line, over, c.AccessLogFields)
	}}
}

// policy returns the policy of p and the limiters of the service, for metrics.
func (p *rlsPart) policy(of weir.Policy) weir.Policy {
	all := rls.Policy(&p.settings.Service)
	of.Limiters = append(of.Limiters[:len(of.Limiters):len(of.Limiters)], all.Limiters...)
	return of
}

// rows returns the rows of the service.
func (p *rlsPart) rows() []Row {
	scheme := "grpc"
	if p.secure {
		scheme = "grpcs"
	}
	at := p.doors[0].Addr()
	where := scheme + "://" + at.String()
	if at.Network() == "unix" {
		where = "unix:" + at.String()
	}
	text := fmt.Sprintf("Envoy asks at %s; %s", where, p.domains)
	if len(p.doors) > 1 {
		text += fmt.Sprintf("; /json and /healthcheck at %s", reachable(p.doors[1].Addr(), false))
	}
	return []Row{{"rls", text}}
}

// An rlsDoor serves Envoy at one listener.
type rlsDoor struct {
	serve    func(context.Context, net.Listener) error
	listener net.Listener
}

// Serve implements Door.
func (d *rlsDoor) Serve(ctx context.Context) error { return d.serve(ctx, d.listener) }

// Addr implements Door.
func (d *rlsDoor) Addr() net.Addr { return d.listener.Addr() }
