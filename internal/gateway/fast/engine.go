package fast

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/target"
)

// An Engine says what speaks HTTP/1.1 with callers. HTTP/2 is net/http's in any case.
type Engine uint8

const (
	// EngineAuto is the fast engine before Upstream, and net/http before Backend, or where Wrap or WrapTransport is set:
	// these want net/http's requests.
	EngineAuto Engine = iota
	// EngineStd is net/http.
	EngineStd
)

// isFast reports whether HTTP/1.1 is served by the fast engine.
func (o *Options) isFast() bool {
	return o.Engine == EngineAuto && o.Upstream != nil && o.Wrap == nil && o.WrapTransport == nil
}

// Fast reports whether HTTP/1.1 is served by the fast engine rather than by net/http.
func (g *Gateway) Fast() bool { return g.options.isFast() }

// A fastEngine serves HTTP/1.1 before an upstream. It is glue: what is syntax is internal/wire's, what is a connection to a
// backend internal/upstream's, who is admitted httplimit's, and every rule of the edge the Gateway's. Connections that turn out
// to speak HTTP/2 go to net/http's server.
type fastEngine struct {
	*Gateway
	base      context.Context
	basePath  string // of the upstream, escaped; put before every path
	secure    *tls.Config
	exchanges sync.Pool // of *fastExchange
	copies    copyBuffers
	handed    *handedListener

	serving sync.WaitGroup // connections, and what belongs to them
	tick    atomic.Int64   // of the look at waiting connections
	cutting atomic.Bool    // everything is closed
	ending  atomic.Bool    // idle connections are closed, those under way after their answer

	mu    sync.Mutex
	alive map[*fastConn]struct{}
}

// lookAfter is how long an exchange waits, about, before somebody looks whether its client is still there.
const lookAfter = 100 * time.Millisecond

func (g *Gateway) newFastEngine(ctx context.Context) (*fastEngine, error) {
	base, _, err := target.Decode(g.options.Upstream.EscapedPath())
	if err != nil {
		return nil, err
	}
	e := &fastEngine{Gateway: g, base: ctx, basePath: strings.TrimSuffix(base, "/"), alive: make(map[*fastConn]struct{})}
	e.now.Store(int64(time.Since(e.began)))
	e.exchanges.New = func() any { return new(fastExchange) }
	e.handed = &handedListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	if g.cert != nil {
		e.secure = g.cert.config()
		e.secure.NextProtos = []string{"h2", "http/1.1", "http/1.0"}
	}
	return e, nil
}

// recent returns a clock for those who ask often; nil where nobody keeps it.
func (g *Gateway) recent() *atomic.Int64 {
	if !g.Fast() {
		return nil
	}
	return &g.now
}

// run serves connections from l until that is closed, and those that speak HTTP/2 by std. Connections live on when it returns.
func (e *fastEngine) run(l net.Listener, std *http.Server) error {
	e.handed.addr = l.Addr()
	e.serving.Go(func() { e.watchClients(e.base) })  // exchanges go on, and are watched, after l is closed
	e.serving.Go(func() { _ = std.Serve(e.handed) }) // ends with Shutdown or Close
	return e.accept(l)
}

// accept takes connections from l until that is closed.
func (e *fastEngine) accept(l net.Listener) error {
	for failed := time.Duration(0); ; {
		c, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			failed = 0
		case errors.As(err, &passing) && passing.Temporary(): // too many open files, most often
			failed = min(max(2*failed, 5*time.Millisecond), time.Second)
			e.log.Warn("a connection could not be accepted, trying again", "error", err, "in", failed)
			select {
			case <-time.After(failed):
				continue
			case <-e.base.Done():
				return http.ErrServerClosed
			}
		default:
			return err
		}
		e.accepted.Add(1)
		e.open.add(1)
		e.serving.Go(func() { e.serveConn(c) })
	}
}

// watchClients looks regularly for exchanges that have waited for their upstream for a while, until ctx ends, and has each of
// their clients watched. One look for all costs a request nothing.
func (e *fastEngine) watchClients(ctx context.Context) {
	ticker := time.NewTicker(lookAfter)
	defer ticker.Stop()
	var waiting []*fastConn
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		tick := e.tick.Add(1)
		e.now.Store(int64(time.Since(e.began)))
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

// drain closes idle connections, and has the others close after their answer. It does not wait for them.
func (e *fastEngine) drain() {
	e.ending.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.alive {
		if c.phase.CompareAndSwap(phaseIdle, phaseClosing) {
			_ = c.raw.SetReadDeadline(longAgo) // ends its wait
		}
	}
}

// cut closes everything that is left.
func (e *fastEngine) cut() {
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

// wait waits for the end of what was cut.
func (e *fastEngine) wait() { e.serving.Wait() }

func (e *fastEngine) add(c *fastConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alive[c] = struct{}{}
	if e.cutting.Load() { // it was accepted a moment too late
		_ = c.raw.Close()
	}
}

func (e *fastEngine) remove(c *fastConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.alive, c)
}

// A handedListener gives net/http's server the connections that speak HTTP/2.
type handedListener struct {
	conns  chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

// hand reports false where the server does not take connections any more.
func (l *handedListener) hand(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
		return false
	}
}

func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *handedListener) Addr() net.Addr { return l.addr }

// A begunConn is a connection of which some bytes were read.
type begunConn struct {
	net.Conn
	begin []byte
}

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begin) > 0 {
		n := copy(p, c.begin)
		c.begin = c.begin[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite closes the sending half, where there are halves.
func (c *begunConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// String returns the engine as --engine spells it.
func (e Engine) String() string {
	if e == EngineStd {
		return "std"
	}
	return "auto"
}
