package check

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/fast"
	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/poller"
)

// An httpServer serves questions over HTTP: HTTP/1 by the gateway's fast engine, whose drain loses
// no question, and HTTP/2 by net/http, whose drain does not either, since HTTP/2 announces it.
type httpServer struct {
	door    *Door
	clock   *pace.Clock
	engine  *fast.Engine
	over2   *http.Server
	handed  handed // connections for over2
	serving sync.WaitGroup
	cut     context.CancelFunc
}

// newHTTP returns a server for one run of Serve. Everything that it does ends with base, which cut
// ends.
func newHTTP(base context.Context, cut context.CancelFunc, d *Door) *httpServer {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // as Envoy may
	limits := &d.rules.Limits
	s := &httpServer{door: d, clock: pace.NewClock(), cut: cut, handed: handed{all: make(chan net.Conn), ended: make(chan struct{})}}
	s.over2 = &http.Server{
		Handler: d, Protocols: protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: limits.Header, ReadTimeout: 2 * limits.Header, IdleTimeout: limits.Idle, MaxHeaderBytes: limits.HeaderBytes,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(d.rules.Log.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				d.rules.Open.Add(-1)
			}
		},
	}
	s.engine = fast.New(base, d.rules, fast.Options{Clock: s.clock, TLS: d.options.TLS, HTTP2: s.hand, Answer: d.answer})
	return s
}

func (s *httpServer) serve(l net.Listener) error {
	s.serving.Go(func() { _ = s.over2.Serve(&s.handed) }) // until it is closed
	return s.engine.Serve(&pace.Listener{Listener: poller.Listen(l), Limits: s.door.rules.AnswerPace, Clock: s.clock})
}

// hand gives a connection to the server for HTTP/2.
func (s *httpServer) hand(c net.Conn) {
	select {
	case s.handed.all <- c:
	case <-s.handed.ended:
		_ = c.Close()
		s.door.rules.Open.Add(-1)
	}
}

func (s *httpServer) stop(patience, linger time.Duration) {
	d := s.door
	if linger > 0 { // a connection that is closed with an answer loses no question
		d.rules.Lingering.Store(true)
		d.rules.Open.Wait(linger)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.engine.Drain()
	_ = s.over2.Shutdown(ctx) // what does not finish is closed
	if until, _ := ctx.Deadline(); !d.rules.Open.Wait(max(time.Until(until), time.Nanosecond)) {
		s.engine.Cut()
	}
	_ = s.over2.Close()
	s.cut()
	s.serving.Wait()
	s.engine.Wait()
}

// handed is a listener of connections that another engine has accepted.
type handed struct {
	all   chan net.Conn
	ended chan struct{}
	end   sync.Once
}

// Accept implements net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.all:
		return c, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handed) Close() error {
	h.end.Do(func() { close(h.ended) })
	return nil
}

// Addr implements net.Listener.
func (h *handed) Addr() net.Addr { return &net.TCPAddr{} }
