// Package admin is the admin API of a running server. It shows the limits of a caller and the
// reason of a refusal, resets and grants limits, replaces the policy, and serves metrics. It has
// its own listener, and every request for data needs a token whose role permits it.
//
//	admin.go      Server: the API and its listener
//	role.go       the table of endpoints, and the role that each needs
//	guard.go      the checks of every request: Host, origin, token
//	tokens.go     tokens of named people, as hashes in a file
//	challenge.go  GET /challenge: a client's check of the server before it sends a token
//	answer.go     answers and errors as JSON, bodies of bounded size
//	policy.go     GET and POST /policy, GET /candidate
//	status.go     GET /status, GET /audit
//	caller.go     finds the caller that a request names
//	keys.go       GET /keys, POST /keys/reset
//	grant.go      POST /keys/grant
//	denials.go    GET /denials/{id}
//	profile.go    GET /profile/{kind}
//	metrics.go    GET /metrics, GET /livez, GET /readyz, and a listener of their own
//	audit.go      the log of changes: what, by whom, and why
//
// The API sets no cookies, so other pages cannot forge an operator's requests (CSRF). The static
// page at / holds no data.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/denial"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/watch"
	"github.com/weirlimit/weir/memstore"
)

// Options are a Server's settings.
type Options struct {
	Decider *weir.Decider // required
	Policy  *live.Policy  // required
	Tokens  *Tokens       // required: the valid tokens
	Audit   *Audit        // required: the log of changes

	// Recorder has the recent traffic. nil means that none is recorded.
	Recorder *watch.Recorder
	// Denials decodes a denial id. nil means that refusals have no ids.
	Denials func(id string) (denial.Facts, error)
	// Sessions are those of the public listener. nil means that sessions are not verified.
	Sessions *identity.Sessions
	// APITokens are those of the public listener, which know the plans of tokens. nil means that
	// API tokens are not verified.
	APITokens identity.Tokens
	// IPv6Prefix is the number of bits of an IPv6 address that count as one caller; 0 means 64.
	IPv6Prefix int

	Version   string                // the version of this program
	Demo      bool                  // whether the traffic is simulated
	StoreKind string                // a description of the store, without secrets
	Table     func() memstore.Stats // how full the table of counts is; nil: left out
	InFlight  func() int64          // public requests in flight; nil: left out
	Upstreams func() []Upstream     // the backend's addresses; nil: there is no upstream

	// Health reports whether the store answers; nil means that it is in this process and always
	// does.
	Health func() failover.Health
	// Leases returns what was leased of the store; nil: it leases nothing.
	Leases func() Leases

	// Hosts are further names that are allowed in Host, without a port. The listener's own address
	// and this machine's local names are always allowed.
	Hosts []string

	// Metrics answers GET /metrics. If it is nil, the answer is 404.
	Metrics http.Handler
	// OpenMetrics means that the listener for metrics needs no token (MetricsHandler).
	OpenMetrics bool
	// Ready returns the answer to GET /readyz; nil: always 200.
	Ready func(context.Context) (status int, text string)

	// Page answers GET / and every path below /page/ without a token, since it holds no data. If it
	// is nil, the answer is 404.
	Page http.Handler

	// TLS is the configuration of the listeners that use TLS (UsesTLS); nil means that none does.
	TLS *tls.Config

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // nil means slog.Default()
}

// UsesTLS reports whether a listener at an address uses Options.TLS. One at a loopback address does
// not: its bytes do not leave the machine, and no certificate is for its name.
func UsesTLS(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return !ok || !tcp.IP.IsLoopback()
}

// A Server is the admin listener. It is safe for concurrent use.
type Server struct {
	options Options
	log     *slog.Logger
	started time.Time
	guard   *guard
	handler http.Handler
}

// New returns a Server that does not listen yet. It must be closed.
func New(o Options) (*Server, error) {
	if o.Decider == nil || o.Policy == nil || o.Tokens == nil || o.Audit == nil {
		return nil, errors.New("new admin server: a Decider, a Policy, Tokens and an Audit are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.IPv6Prefix == 0 {
		o.IPv6Prefix = 64
	}
	s := &Server{options: o, log: o.Log, started: o.Now()}
	var err error
	if s.guard, err = newGuard(&s.options); err != nil {
		return nil, fmt.Errorf("new admin server: %w", err)
	}
	s.handler = s.guard.wrap(s.serve(func(endpoint) bool { return true }, allowRole))
	return s, nil
}

// Close releases the memory of the Server, which must not be used after that.
func (s *Server) Close() error { return s.guard.close() }

// Handler returns the handler of the listener, for tests and for other listeners.
func (s *Server) Handler() http.Handler { return s.handler }

// Limits of one connection. An operator's request is small, and so is nearly every answer.
const (
	headerTime  = 10 * time.Second
	readTime    = 30 * time.Second
	writeTime   = 60 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 16 << 10
	drainTime   = 5 * time.Second
	// firstTime is how long a server that ends waits for the first request on new connections.
	firstTime = 3 * time.Second
)

// Serve accepts connections from l until ctx ends, waits up to five seconds for requests in flight,
// and before that up to three for the first request on new connections, and returns nil. It returns
// an error if it cannot serve. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.guard.setAddr(l.Addr())
	return s.serveAt(ctx, l, s.handler)
}

func (s *Server) serveAt(ctx context.Context, l net.Listener, handler http.Handler) error {
	base, cancelBase := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelBase()
	var open sync.WaitGroup // connections
	server := &http.Server{
		Handler: handler,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Done()
			}
		},
		TLSConfig:         s.options.TLS,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          log.New(debugLog{s.log}, "", 0),

		DisableGeneralOptionsHandler: true,
	}
	ended := make(chan error, 1)
	go func() {
		if s.options.TLS != nil && UsesTLS(l.Addr()) {
			ended <- server.ServeTLS(l, "", "")
			return
		}
		ended <- server.Serve(l)
	}()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serve the listener %s: %w", l.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	// A server that shuts down drops the first request of a connection that it has accepted just
	// before. So nothing more is accepted, and each connection gets its answer first.
	_ = l.Close()
	<-ended
	server.SetKeepAlivesEnabled(false)
	answered := make(chan struct{})
	go func() { // ends with the connections
		defer close(answered)
		open.Wait()
	}()
	select {
	case <-answered:
	case <-time.After(firstTime):
	}
	grace, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.Warn("requests of operators did not finish in time; their connections were closed", "address", l.Addr().String(), "time", drainTime)
	}
	_ = server.Close() // cuts off the requests that are left
	return nil
}

// A debugLog writes net/http's messages about connections at level debug, since any client can
// cause them.
type debugLog struct{ log *slog.Logger }

func (l debugLog) Write(line []byte) (int, error) {
	l.log.Debug("admin listener", "message", string(line))
	return len(line), nil
}

// loginLimit is how many wrong tokens a minute one address may send before the answer is 429.
const loginLimit = 20

// loginMemory bounds the memory for counting wrong tokens.
const loginMemory = memstore.MinMemory
