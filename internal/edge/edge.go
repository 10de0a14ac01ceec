// Package edge puts a server together: what `weir serve` runs. A server is made of parts. Each has
// its own file, is opened by one function, and is closed in the reverse order of opening:
//
//	listeners.go  the sockets: opened here, or passed by a service manager; socket.go  a Unix socket
//	self.go       the addresses of this server, which must not be its own upstream
//	store.go      the table of stores, and the Decider that counts in one
//	store_*.go    one file per store
//	hooks.go      the list of observers, and the points at which they are called
//	metrics.go recorder.go denials.go events.go accesslog.go tracer.go    one file per observer
//	backend.go credentials.go    the sample backend, or an upstream and what verifies its callers
//	tokenfile.go  the file of API tokens: what is logged of its changes, and its plans
//	sids.go       warnings of session tokens that have no sid
//	policy.go     the policy in force, which follows its file, and the candidate
//	doors.go      what is served: the set of doors that a server waits for
//	acme.go       the certificates that are obtained by ACME
//	public.go redirect.go admin.go forwardauth.go rls.go    one file per door
//	manager.go    the service manager: its notifications and its watchdog
//	handover.go   another process that serves in place of this one
//	demo.go       the traffic of --demo
//
// What is wrong with a Config is reported as a failure of package cli, with a hint that names flags
// of `weir serve`.
package edge

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/internal/acme"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
)

// A Server is one run of `weir serve`. Open makes one; Run may be called once.
type Server struct {
	config    *Config
	listeners *listeners
	counter   *counter
	backend   *backend
	acme      *acme.Manager // nil: no certificates by ACME
	public    *publicDoor
	check     *checkDoor    // nil: none
	rls       *rlsPart      // nil: none
	redirect  *redirectDoor // nil: none
	policy    *policy
	doors     doors
	manager   *manager
	rows      []Row
	parts     parts
	deciding  chan struct{} // closed when this process decides
}

// ErrStopped is the error of Open if its context ended while it waited for the process before this
// one.
var ErrStopped = errors.New("ended while the previous process was still running")

// Open opens all parts of a server. Connections wait at its listeners until Run. ctx ends the
// server; what must outlive it, such as the backend, ends with Close. If Open fails, it has closed
// everything.
func Open(ctx context.Context, c Config) (*Server, error) {
	s := newServer(&c)
	if err := s.open(ctx, new(hooks)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newServer(c *Config) *Server { return &Server{config: c, deciding: make(chan struct{})} }

// open opens all parts, each after those that it uses.
func (s *Server) open(ctx context.Context, h *hooks) (err error) {
	c, own := s.config, &s.parts
	s.manager = openManager(ctx, c.Log, own)
	from, err := handover.From()
	if err != nil {
		return cli.Fail(err, "")
	}
	if from != nil {
		own.own(from.Close)
	}
	if s.listeners, err = openListeners(c.publicAddress(), from, own); err != nil {
		return err
	}
	self := &ownListeners{sites: c.Sites}
	if err := self.claimListener(ctx, s.listeners.public, s.listeners.by()); err != nil {
		return err
	}
	operators, err := openAdminSide(ctx, c, s.listeners, self, own)
	if err != nil && ctx.Err() != nil {
		return ErrStopped
	}
	if err != nil {
		return err
	}
	if s.redirect, err = openRedirect(ctx, c, s.listeners, self, own); err != nil {
		return err
	}
	proxies, err := openForwardAuth(ctx, c, s.listeners, self, own)
	if err != nil {
		return err
	}
	envoy, err := openRLSListeners(ctx, c, s.listeners, self, own)
	if err != nil {
		return err
	}
	if s.acme, err = openACME(c, s.listeners, s.redirect, own); err != nil {
		return err
	}
	if err := s.openCounting(ctx, operators, h); err != nil {
		return err
	}
	if s.backend, err = openBackend(context.WithoutCancel(ctx), c, self, h, own); err != nil {
		return err
	}
	if s.public, err = openPublic(c, s.listeners, s.counter, s.backend, s.acme, h); err != nil {
		return err
	}
	if err = s.openCheck(proxies, h); err != nil {
		return err
	}
	if s.rls, err = openRLS(ctx, s, envoy, h); err != nil {
		return err
	}
	if s.policy, err = openPolicy(ctx, c, s.counter, s.manager, operators.audit, h, own); err != nil {
		return err
	}
	s.doors.callers, s.doors.log = s.callerDoors(), c.Log
	if s.redirect != nil {
		if err := s.redirect.attach(s.public.gateway, h); err != nil {
			return err
		}
		s.doors.callers = append(s.doors.callers, s.redirect)
	}
	if s.doors.operators, err = openAdminDoors(operators, s, h); err != nil {
		return err
	}
	for _, call := range h.opened {
		call(s)
	}
	s.rows = s.describe(operators, h)
	return nil
}

// openCounting opens the store, the observers, and the Decider that calls them.
func (s *Server) openCounting(ctx context.Context, operators *adminSide, h *hooks) error {
	o := &opening{Config: s.config, own: &s.parts, listen: s.Addr().String(), from: s.listeners.from}
	if s.listeners.held {
		o.giveUp = ctx.Done()
	}
	store, err := s.config.Store.open(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	s.manager.line = store.line
	for _, observe := range observers {
		if err := observe(&observing{s.config, store, operators.listener != nil, h, &s.parts}); err != nil {
			return err
		}
	}
	s.counter, err = openCounter(s.config, store, h, &s.parts)
	return err
}

// Run serves until ctx ends, and returns when all doors have drained. It returns an error if a door
// for callers could not serve. If another process has started this one by HandOver, Run first takes
// its counts over; if ctx has ended already, it leaves them there.
func (s *Server) Run(ctx context.Context) error {
	if from := s.listeners.from; from != nil {
		if ctx.Err() != nil {
			return nil
		}
		if err := from.Continue(s.counter.store.here); err != nil {
			return noCounts(s.config.Data, err)
		}
		s.listeners.takenOver()
	}
	close(s.deciding)
	var while parts
	defer func() { _ = while.close() }() // none of them fails
	if s.config.Demo {
		if err := startDemo(ctx, s.config, s.backend, s.Addr(), &while); err != nil {
			return err
		}
	}
	if s.acme != nil {
		while.own(runACME(ctx, s.acme))
	}
	s.manager.notifyReady(s.policy.State())
	while.own(s.manager.feedWatchdog((&pulse{counter: s.counter, front: s.front(), at: s.Addr()}).alive))
	return s.doors.serve(ctx)
}

// Close closes all parts, the last opened first. It must be called after Run has returned.
func (s *Server) Close() error { return s.parts.close() }

// Reload reads the policy's file again. by is who asked, such as "SIGHUP"; the result is logged.
func (s *Server) Reload(ctx context.Context, by string) { s.policy.reload(ctx, by) }
