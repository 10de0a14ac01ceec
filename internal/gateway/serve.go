package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Serve accepts connections from l until ctx ends, and then drains: /readyz says no, nothing more is accepted, requests
// under way may finish within Limits.Drain, then what is left is cut off, taken-over connections (websockets) last. With
// Limits.Linger the clients of kept connections are asked to go elsewhere before those are closed. It returns nil once that is
// done, and an error only where serving itself was not possible. It closes l.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s, err := g.servers(base)
	if err != nil {
		return errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), l.Close())
	}
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.serve(g.listener(l))
	}()
	select {
	case err := <-ended:
		err = errors.Join(fmt.Errorf("serve %s: %w", l.Addr(), err), s.std.Close())
		if s.fast != nil {
			s.fast.cut()
			cut()
			s.fast.wait()
		}
		g.leaveUpstream()
		return err
	case <-ctx.Done():
	}
	g.begin()
	if g.limits.Linger > 0 {
		_ = l.Close() // it may be closed already
		<-ended
		g.linger()
	}
	if s.fast != nil {
		_ = l.Close()
		<-ended // all that was accepted is known
		s.fast.drain()
	}
	g.drain(s, cut)
	<-ended
	return nil
}

// servers are the engines of one run of Serve.
type servers struct {
	std    *http.Server
	secure bool
	fast   *fastEngine // nil: net/http serves everything
}

func (g *Gateway) servers(base context.Context) (s *servers, err error) {
	s = &servers{std: g.server(base), secure: g.cert != nil}
	if g.Fast() {
		if s.fast, err = g.newFastEngine(base); err != nil {
			return nil, err
		}
		s.std.ConnState = g.handedState
		if g.cert != nil {
			s.std.TLSConfig.NextProtos = []string{"h2"}
		}
	}
	return s, nil
}

// serve accepts connections until l is closed.
func (s *servers) serve(l net.Listener) error {
	switch {
	case s.fast != nil:
		return s.fast.run(l, s.std)
	case s.secure:
		return s.std.ServeTLS(l, "", "")
	}
	return s.std.Serve(l)
}

func (g *Gateway) server(base context.Context) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)            // by ALPN
	protocols.SetUnencryptedHTTP2(true) // by prior knowledge; there is no Upgrade to it
	s := &http.Server{
		Handler:                      g.Handler(),
		Protocols:                    protocols,
		ReadHeaderTimeout:            g.limits.Header,
		IdleTimeout:                  g.limits.Idle,
		MaxHeaderBytes:               g.limits.HeaderBytes,
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: g.limits.Streams,
			SendPingTimeout:      g.limits.Stall,
		},
		ConnState:   g.connState,
		ConnContext: withConn,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    log.New(serverLog{g.log}, "", 0),
	}
	if g.cert != nil {
		s.TLSConfig = g.cert.config()
	}
	return s
}

// connState counts connections as they come and go.
func (g *Gateway) connState(c net.Conn, state http.ConnState) {
	if spare := spareUnder(c); spare != nil {
		spare.note(state)
	}
	switch state {
	case http.StateNew:
		g.accepted.Add(1)
		g.open.add(1)
	case http.StateHijacked, http.StateClosed:
		g.open.add(-1)
	}
}

// handedState is connState for connections that the fast engine accepted.
func (g *Gateway) handedState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateHijacked, http.StateClosed:
		g.open.add(-1)
	}
}

// Accepted returns how many connections were accepted, ever. While the number grows the accept loop lives.
func (g *Gateway) Accepted() int64 { return g.accepted.Load() }

// Draining says whether the drain has begun.
func (g *Gateway) Draining() bool { return g.draining.Load() }

// begin says that this is the end, to load balancers and to the backend.
func (g *Gateway) begin() {
	g.draining.Store(true)
	if g.options.OnDrain != nil {
		g.options.OnDrain()
	}
}

// linger serves what comes on kept connections, and tells each client with the answer not to come again this way: closed without
// that, a connection may be just what the next request is sent on, and the request is lost. Whoever connects anew meanwhile waits
// for the next process, if there is one that holds the socket.
func (g *Gateway) linger() {
	g.lingering.Store(true)
	g.open.wait(g.limits.Linger)
}

// farewell has the server close the connection after this answer; on HTTP/2 it sends GOAWAY, and ends the connection once the
// streams that it has are done.
func (x *exchange) farewell() {
	if x.gateway.lingering.Load() {
		x.Header()["Connection"] = []string{"close"}
	}
}

// drain ends every connection, with grace first.
func (g *Gateway) drain(s *servers, cut context.CancelFunc) {
	grace, cancel := context.WithTimeout(context.Background(), g.limits.Drain)
	defer cancel()
	until, _ := grace.Deadline()
	late := s.std.Shutdown(grace) != nil
	if s.fast != nil {
		late = !g.open.wait(max(time.Until(until), time.Nanosecond)) || late
	}
	if late {
		g.log.Warn("requests are cut off, they did not end in time", "time", g.limits.Drain, "requests", g.active.n.Load())
	}
	_ = s.std.Close()
	if s.fast != nil && late {
		s.fast.cut()
	}
	_ = g.conns.closeAll() // they are being abandoned
	cut()
	if !g.active.wait(lastWait) {
		g.log.Error("handlers do not end though their connections are closed", "requests", g.active.n.Load())
	} else if s.fast != nil {
		s.fast.wait()
	}
	g.leaveUpstream()
}

// leaveUpstream closes the connections that are kept to it.
func (g *Gateway) leaveUpstream() {
	if g.transport != nil {
		g.transport.CloseIdleConnections()
		_ = g.pool.Close()
	}
}

// lastWait is for handlers to notice that their connections are closed, and for the access log's last lines.
const lastWait = 5 * time.Second

// A serverLog receives what net/http has to say: what any stranger can cause is for debugging alone.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	for _, prefix := range []string{"http: TLS handshake error", "http2: "} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}

// A tally counts what is under way: requests, connections.
type tally struct {
	n    atomic.Int64
	mu   sync.Mutex
	zero chan struct{} // not nil: somebody waits
}

func (t *tally) add(delta int64) {
	if t.n.Add(delta) > 0 || delta > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

// wait reports whether the count reached zero in time.
func (t *tally) wait(most time.Duration) bool {
	t.mu.Lock()
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	if t.n.Load() == 0 {
		return true
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-zero:
		return true
	case <-timer.C:
		return false
	}
}

// serveHealth answers for load balancers, outside all limits: /healthz says that the process runs, /readyz that it wants
// requests, and whether it serves them as it should.
func (g *Gateway) serveHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, "method_not_allowed", "Only GET and HEAD are allowed here.")
		return
	}
	status, text := http.StatusOK, "ok\n"
	if r.URL.Path == "/readyz" {
		status, text = g.readyz(r.Context())
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (g *Gateway) readyz(ctx context.Context) (status int, text string) {
	if g.draining.Load() {
		return http.StatusServiceUnavailable, "not ready: draining\n"
	}
	if err := g.ready.ask(ctx, g.options.Ready); err != nil {
		return http.StatusServiceUnavailable, "not ready: " + err.Error() + "\n"
	}
	if g.options.Degraded != nil {
		if err := g.options.Degraded(); err != nil {
			return http.StatusOK, "degraded: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "\n"
		}
	}
	return http.StatusOK, "ok\n"
}

// readiness remembers an answer for a second, so that strangers cannot keep the backend busy with the question.
type readiness struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

const readyTimeout = 2 * time.Second

func (a *readiness) ask(ctx context.Context, ready func(context.Context) error) error {
	if ready == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.asked) >= time.Second {
		// The answer is for everybody: it does not depend on whether this asker stays.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		a.err = ready(ctx)
		a.asked = time.Now()
	}
	return a.err
}
