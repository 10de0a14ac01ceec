// Package http2 is the gateway's engine for HTTP/2 before an upstream: a loop of our own over the
// Framer of golang.org/x/net/http2, which parses frames, and its hpack. It holds what is HTTP/2's;
// every decision about a request is asked of gateway/rules. A connection and its requests go down
// these files:
//
//	engine.go    the connections; drains them
//	conn.go      one connection: the loop that reads it
//	end.go       how a connection ends
//	look.go      connections that are idle, slow or gone
//	frames.go    what each frame does
//	head.go      heads of requests, and trailers
//	bounds.go    what bounds a client that misbehaves
//	stream.go    one stream, as its frames see it
//	window.go    flow control of what a client sends
//	body.go      the body of a request
//	buffer.go    what is buffered of it
//	workers.go   the goroutines that serve streams
//	context.go   the contexts of a connection and of a stream
//	exchange.go  one request: its target, its limiter, who answers it
//	answer.go    answers of our own, and the fields of all answers
//	forward.go   the exchange with the upstream
//	passing.go   the upstream's answer, passed on
//	cost.go      what the limiter learns of the answer
//	tunnel.go    websockets
//	write.go     what goes to the client, in few writes
//	send.go      bodies of answers, at the pace of the client
package http2

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// An Engine serves connections that speak HTTP/2. Make one with New. It is safe for concurrent use.
type Engine struct {
	*rules.Rules
	base      context.Context
	exchanges sync.Pool // of *exchange
	copies    relay.Buffers
	workers   workers

	serving sync.WaitGroup // connections, and what belongs to them
	tick    atomic.Int64   // of the look at all connections
	ending  atomic.Bool    // a drain has begun
	cutting atomic.Bool    // everything is closed

	mu    sync.Mutex
	alive map[*conn]struct{}
}

// lookEvery is how often the engine looks at all connections. No connection has a timer of its own.
const lookEvery = 100 * time.Millisecond

// New returns an engine for one run of the gateway, before the upstreams of the rules. ctx is the
// base of every request's context: if it ends, exchanges break off, and so does the engine's look
// at its connections.
func New(ctx context.Context, r *rules.Rules) *Engine {
	e := &Engine{Rules: r, base: ctx, alive: make(map[*conn]struct{})}
	e.exchanges.New = func() any { return new(exchange) }
	e.serving.Go(e.lookAtAll)
	return e
}

// Serve serves a connection, over which HTTP/2 is spoken, to its end, and closes it. It is the
// connection below TLS if it is no *tls.Conn. It was accepted and counted by another engine. Serve
// may return before the end: a connection that waits long goes on without a goroutine.
func (e *Engine) Serve(c net.Conn) {
	e.serving.Add(1) // until the connection's end
	newConn(e, c).serve()
}

// lookAtAll looks at all connections regularly, until the base ends.
func (e *Engine) lookAtAll() {
	defer e.workers.end()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var all []*conn
	for {
		select {
		case <-e.base.Done():
			return
		case <-ticker.C:
		}
		tick := e.tick.Add(1)
		e.mu.Lock()
		for c := range e.alive {
			all = append(all, c)
		}
		e.mu.Unlock()
		for i, c := range all {
			c.look(tick)
			all[i] = nil
		}
		all = all[:0]
		e.workers.trim()
	}
}

// Drain has every connection announce its end, and close when its streams have ended. It does not
// wait for that.
func (e *Engine) Drain() {
	e.ending.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.alive {
		e.serving.Go(c.leave)
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
	}
}

// Wait waits for the end of what was drained or cut. The base must have ended.
func (e *Engine) Wait() { e.serving.Wait() }

func (e *Engine) add(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alive[c] = struct{}{}
	if e.cutting.Load() { // it was handed over a moment too late
		_ = c.raw.Close()
	}
}

func (e *Engine) remove(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.alive, c)
}
