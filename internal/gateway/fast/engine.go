// Package fast is the gateway's engine for HTTP/1.1 before an upstream: a loop of our own over
// internal/wire and internal/poller. It holds what is HTTP/1.1's; every decision about a request is
// asked of gateway/rules. One request goes down these files:
//
//	engine.go    accepts connections; drains them
//	conn.go      one client's connection: one request after another
//	task.go      what of that the poller runs itself
//	tls.go       its TLS handshake
//	head.go      waits for the head of a request, or finds that the client speaks HTTP/2
//	park.go      a long wait, without a goroutine and a buffer
//	deadline.go  the deadlines of its reads
//	context.go   its context
//	watch.go     whether the client is still there while an answer is awaited
//	exchange.go  one request: its target, its limiter, who answers it
//	asked.go     a request that another door answers
//	body.go      its body
//	answer.go    answers of our own, and the fields of all answers
//	upstream.go  the exchange with the upstream
//	onward.go    the head that the upstream receives
//	upload.go    the request's body, sent while the answer is awaited
//	relay.go     the upstream's answer, passed on
//	cost.go      what the limiter learns of the answer
//	tunnel.go    websockets
package fast

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/poller"
)

// Options are what an Engine needs beside the rules. Clock is required.
type Options struct {
	Clock *pace.Clock // which the engine ticks
	TLS   *tls.Config // nil: cleartext
	// HTTP2 serves a connection that speaks HTTP/2 to its end, closes it, and counts it as closed.
	// It may return before that. It is required.
	HTTP2 func(net.Conn)
	// AskClients, if set, makes a configuration ask clients for certificates.
	AskClients func(*tls.Config)
	// Answer, if set, answers every request that HTTP allows, in place of the rules' limiter and of
	// an upstream. The engine logs no such request.
	Answer func(Asked)
}

// An Engine serves HTTP/1.1 before an upstream. Connections that turn out to speak HTTP/2 go to
// Options.HTTP2.
type Engine struct {
	*rules.Rules
	base      context.Context
	clock     *pace.Clock
	secure    *tls.Config
	exchanges sync.Pool // of *exchange
	copies    relay.Buffers
	http2     func(net.Conn)
	answer    func(Asked) // nil: the rules and an upstream answer

	serving sync.WaitGroup // connections, and what belongs to them
	tick    atomic.Int64   // of the look at waiting connections
	cutting atomic.Bool    // everything is closed
	ending  atomic.Bool    // idle connections are closed, those under way after their answer

	mu    sync.Mutex
	alive map[*conn]struct{}
}

// lookAfter is for about how long an exchange waits before the engine looks whether its client is
// still there.
const lookAfter = 100 * time.Millisecond

// New returns an engine for one run of Serve, before the upstreams of the rules. ctx is the base of
// every connection's context: if it ends, exchanges break off.
func New(ctx context.Context, r *rules.Rules, o Options) *Engine {
	e := &Engine{
		Rules: r, base: ctx, clock: o.Clock, http2: o.HTTP2, answer: o.Answer,
		alive: make(map[*conn]struct{}),
	}
	e.clock.Tick()
	e.exchanges.New = func() any { return new(exchange) }
	if o.TLS != nil {
		e.secure = o.TLS.Clone()
		e.secure.NextProtos = []string{"h2", "http/1.1", "http/1.0"}
		if o.AskClients != nil {
			o.AskClients(e.secure)
		}
	}
	return e
}

// Serve serves connections from l until that is closed. Connections live on when Serve returns.
func (e *Engine) Serve(l net.Listener) error {
	// exchanges continue, and are watched, after l is closed
	e.serving.Go(func() { e.watchClients(e.base) })
	return e.accept(l)
}

// accept takes connections from l until that is closed.
func (e *Engine) accept(l net.Listener) error {
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = 0
		case errors.As(err, &passing) && passing.Temporary(): // usually too many open files
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			e.Log.Warn("cannot accept a connection; trying again", "error", err, "in", pause)
			select {
			case <-time.After(pause):
				continue
			case <-e.base.Done():
				return http.ErrServerClosed
			}
		default:
			return err
		}
		e.Accepted.Add(1)
		e.Open.Add(1)
		e.serving.Add(1) // until the connection's end
		go e.serveConn(c)
	}
}

// watchClients looks regularly for exchanges that have waited for their upstream for a while, until
// ctx ends, and has each of their clients watched. One look for all costs a request nothing.
func (e *Engine) watchClients(ctx context.Context) {
	ticker := time.NewTicker(lookAfter)
	defer ticker.Stop()
	var waiting []*conn
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		tick := e.tick.Add(1)
		e.clock.Tick()
		poller.Relieve()
		e.mu.Lock()
		for c := range e.alive {
			c.rest(tick)
			if c.isWaitingSince(tick) {
				waiting = append(waiting, c)
			}
		}
		e.mu.Unlock()
		for i, c := range waiting {
			c.watchClient()
			waiting[i] = nil
		}
		waiting = waiting[:0]
	}
}

// Drain closes idle connections, and has the others close after their answer. It does not wait for
// them.
func (e *Engine) Drain() {
	e.ending.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.alive {
		c.endWait()
	}
}

// endWait ends a wait for the next request. A deadline that is moved after it has lost the phase
// comes after this one.
func (c *conn) endWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase.CompareAndSwap(phaseIdle, phaseClosing) {
		_ = c.raw.SetReadDeadline(longAgo)
	}
}

// Cut closes everything that is left.
func (e *Engine) Cut() {
	e.ending.Store(true)
	e.cutting.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.alive {
		_ = c.raw.Close()
		if u := c.up.Load(); u != nil {
			_ = u.Close()
		}
	}
}

// Wait waits for the end of what was drained or cut.
func (e *Engine) Wait() { e.serving.Wait() }

func (e *Engine) add(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alive[c] = struct{}{}
	if e.cutting.Load() { // it was accepted a moment too late
		_ = c.raw.Close()
	}
}

func (e *Engine) remove(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.alive, c)
}
