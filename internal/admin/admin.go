// Package admin is what an operator talks to while a server runs: who is limited and why, other limits for one caller, another policy,
// metrics. It listens apart from the public listener, and answers nobody without a token.
//
//	admin.go    Server: what people call, and its listener
//	guard.go    what every request passes: Host, origin, token
//	tokens.go   tokens of named people, as hashes in a file
//	challenge.go   GET /challenge: what a client asks before it sends a token
//	answer.go   answers and errors as JSON, bodies within bounds
//	policy.go   GET and POST /policy, GET /candidate
//	status.go   GET /status, GET /audit
//	caller.go   whom an operator means
//	keys.go     GET /keys, POST /keys/reset    grant.go  POST /keys/grant
//	denials.go  GET /denials/{id}
//	audit.go    what was changed, by whom, and why
//
// There are no cookies, so no page that an operator visits can ride on anything; the static page at / holds no data.
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
	"time"

	"github.com/weirlimit/weir"
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
	Tokens  *Tokens       // required: who may ask
	Audit   *Audit        // required: what was changed

	Recorder *watch.Recorder                       // what is going on; nil: nothing is watched
	Denials  func(id string) (denial.Facts, error) // opens the id of a refusal; nil: refusals have none
	Sessions *identity.Sessions                    // as the public listener has them; nil: none are verified
	// IPv6Prefix is how many bits of an IPv6 address are counted as one caller; 0 means 64.
	IPv6Prefix int

	Version   string       // of this program
	Demo      bool         // whether what is going on is made up
	StoreKind string       // where counts are kept, in words and without secrets
	Table     func() Table // nil: nothing is told of it
	InFlight  func() int64 // public requests under way; nil: nothing is told of them

	// Hosts are names that may stand in Host beside the listener's own address and this machine's; without a port.
	Hosts []string

	// Metrics answers GET /metrics; nil: there are none.
	Metrics http.Handler

	// Page answers GET / and whatever is below /page/, without a token: it holds no data. nil: there is none.
	Page http.Handler

	// TLS, if set, is what the listener speaks; nil: clear text.
	TLS *tls.Config

	Now func() time.Time // nil means time.Now
	Log *slog.Logger     // nil means slog.Default()
}

// A Server is the admin listener. It is safe for concurrent use.
type Server struct {
	options Options
	log     *slog.Logger
	started time.Time
	guard   *guard
	handler http.Handler
}

// New returns a Server that listens nowhere yet. It must be closed.
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
	s.handler = s.guard.around(s.routes())
	return s, nil
}

// Close lets go of what the Server holds. Nothing of it may be used after that.
func (s *Server) Close() error { return s.guard.close() }

// Handler answers requests as the listener does; for tests, and for other listeners.
func (s *Server) Handler() http.Handler { return s.handler }

// routes is the table of everything there is.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	on := func(path string, m methods) { mux.Handle(path, m) }
	on("/policy", methods{http.MethodGet: s.showPolicy, http.MethodPost: s.postPolicy})
	on("/candidate", methods{http.MethodGet: s.showCandidate})
	on("/status", methods{http.MethodGet: s.showStatus})
	on("/audit", methods{http.MethodGet: s.showAudit})
	on("/keys", methods{http.MethodGet: s.showKeys})
	on("/keys/reset", methods{http.MethodPost: s.resetKeys})
	on("/keys/grant", methods{http.MethodPost: s.grantKeys})
	on("/denials/{id}", methods{http.MethodGet: s.showDenial})
	if s.options.Metrics != nil {
		on("/metrics", methods{http.MethodGet: s.options.Metrics.ServeHTTP})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "There is nothing here.")
	})
	return mux
}

// Bounds of one connection. An operator's request is small, and so is nearly every answer.
const (
	headerTime  = 10 * time.Second
	readTime    = 30 * time.Second
	writeTime   = 60 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 16 << 10
	drainTime   = 5 * time.Second
)

// Serve accepts connections from l until ctx ends, lets requests under way finish within five seconds, and returns nil. An error says
// that serving was not possible. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.guard.at(l.Addr())
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.options.TLS,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          log.New(quietLog{s.log}, "", 0),

		DisableGeneralOptionsHandler: true,
	}
	ended := make(chan error, 1)
	go func() {
		if s.options.TLS != nil {
			ended <- server.ServeTLS(l, "", "")
			return
		}
		ended <- server.Serve(l)
	}()
	select {
	case err := <-ended:
		return errors.Join(fmt.Errorf("serve the admin listener %s: %w", l.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.Warn("requests to the admin listener are cut off, they did not end in time", "time", drainTime)
	}
	_ = server.Close() // whoever is left is being abandoned
	<-ended
	return nil
}

// A quietLog receives what net/http has to say of connections, which any stranger can cause.
type quietLog struct{ log *slog.Logger }

func (l quietLog) Write(line []byte) (int, error) {
	l.log.Debug("admin listener", "message", string(line))
	return len(line), nil
}

// loginLimit is how many wrong tokens one address may send a minute before it is answered 429.
const loginLimit = 20

// loginMemory bounds what is known of those who send wrong tokens.
const loginMemory = memstore.MinMemory
