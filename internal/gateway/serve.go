package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/fast"
	"github.com/weirlimit/weir/internal/gateway/http2"
)

// Serve accepts connections from l until ctx ends, and then drains: /readyz answers 503, nothing
// more is accepted, requests under way may finish within Limits.Drain, then what is left is cut
// off, taken-over connections (websockets) last. With Limits.Linger, or LingerFor, the clients of
// kept connections are first asked to go elsewhere. Serve returns nil once that is done, and an
// error only if serving itself was not possible. It closes l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s := g.start(base)
	checked := g.startChecks(base)
	defer func() { cut(); checked() }()
	defer g.watchCertificates()()
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.serve(g.listener(l))
	}()
	select {
	case err := <-ended:
		err = errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), s.close())
		cut()
		s.wait()
		g.closeUpstreams()
		return err
	case <-ctx.Done():
	}
	g.beginDrain()
	if g.lingers() > 0 {
		_ = l.Close() // it may be closed already
		<-ended
		g.linger()
	}
	if s.fast != nil {
		_ = l.Close()
		<-ended // all that was accepted is known
		s.fast.Drain()
		s.http2.Drain()
	}
	g.drain(s, cut)
	<-ended
	return nil
}

// watchCertificates reports certificates that expire soon, and follows the file of the authorities
// of clients, until end is called.
func (g *Gateway) watchCertificates() (end func()) {
	if g.certs == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { g.certs.watch(ctx) })
	if g.clients != nil {
		watching.Go(func() { g.clients.watch(ctx) })
	}
	return func() { cancel(); watching.Wait() }
}

// servers are the engines of one run of Serve: net/http's server, or those for HTTP/1.1 and HTTP/2.
type servers struct {
	std    *http.Server // nil: the others
	secure bool         // of std
	fast   *fast.Engine
	http2  *http2.Engine
}

// start makes the engines of one run.
func (g *Gateway) start(base context.Context) *servers {
	if !g.Fast() {
		return &servers{std: g.std.Server(base), secure: g.certs != nil}
	}
	over2 := http2.New(base, g.rules)
	return &servers{
		fast:  fast.New(base, g.rules, fast.Options{Clock: g.clock, TLS: g.TLSConfig(), AskClients: g.askClients(), HTTP2: over2.Serve}),
		http2: over2,
	}
}

// serve accepts connections until l is closed.
func (s *servers) serve(l net.Listener) error {
	switch {
	case s.fast != nil:
		return s.fast.Serve(l)
	case s.secure:
		return s.std.ServeTLS(l, "", "")
	}
	return s.std.Serve(l)
}

// close closes all connections.
func (s *servers) close() error {
	if s.std != nil {
		return s.std.Close()
	}
	s.fast.Cut()
	s.http2.Cut()
	return nil
}

// wait waits for the end of what was closed. The base of the run must have ended.
func (s *servers) wait() {
	if s.fast != nil {
		s.fast.Wait()
		s.http2.Wait()
	}
}

// beginDrain announces the end to load balancers and to the backend.
func (g *Gateway) beginDrain() {
	g.rules.Draining.Store(true)
	if g.options.OnDrain != nil {
		g.options.OnDrain()
	}
}

// linger serves what comes on kept connections, and closes each with its next answer. A connection
// that is closed without that may be just what the next request is sent on, and the request is
// lost. A client that connects anew meanwhile waits for the next process, if one holds the socket.
func (g *Gateway) linger() {
	g.rules.Lingering.Store(true)
	g.rules.Open.Wait(g.lingers())
}

// LingerFor has a drain that has not begun linger for d at least, if Limits.Linger is less.
func (g *Gateway) LingerFor(d time.Duration) { g.lingerFor.Store(int64(d)) }

func (g *Gateway) lingers() time.Duration {
	return max(time.Duration(g.lingerFor.Load()), g.rules.Limits.Linger)
}

// drain ends every connection. Requests have Limits.Drain to finish.
func (g *Gateway) drain(s *servers, cut context.CancelFunc) {
	patience := g.rules.Limits.Drain
	grace, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var late bool
	if s.std != nil {
		late = s.std.Shutdown(grace) != nil
	} else {
		until, _ := grace.Deadline()
		late = !g.rules.Open.Wait(max(time.Until(until), time.Nanosecond))
	}
	if late {
		g.rules.Log.Warn("requests did not finish in time; their connections were closed", "time", patience, "requests", g.rules.Active.Load())
	}
	if s.std != nil || late {
		_ = s.close()
	}
	_ = g.rules.TakenOver.CloseAll() // they are being abandoned
	cut()
	if !g.rules.Active.Wait(lastWait) {
		g.rules.Log.Error("handlers are still running after their connections were closed", "requests", g.rules.Active.Load())
	} else {
		s.wait()
	}
	g.closeUpstreams()
}

// closeUpstreams closes the connections that are kept to upstreams, and has the log complete about
// them.
func (g *Gateway) closeUpstreams() {
	g.rules.EndOutages()
	for _, site := range g.rules.Sites {
		_ = site.Pool.Close()
	}
}

// lastWait is for handlers to notice that their connections are closed.
const lastWait = 5 * time.Second
