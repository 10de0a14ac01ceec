// Package std is the gateway's engine on net/http, before a handler, or before an upstream on
// request, for both versions of HTTP. It holds what is net/http's; every decision about a request
// is asked of gateway/rules. One request goes down these files:
//
//	engine.go    the server, and what it reports of connections
//	clientcert.go certificates of clients
//	spare.go     a connection before its first request
//	handler.go   one request: its path, its limiter, who answers it
//	exchange.go  its record and its ResponseWriter, which handlers write to
//	stream.go    answers over HTTP/2, written at a minimum rate
//	body.go      its body, with a deadline for every read
//	forward.go   the upstream, by gateway/relay
//	answer.go    its answer, passed on
//	upgrade.go   websockets
//	header.go    net/http's headers under the rules
//	hijack.go    connections that a handler takes over
package std

import (
	"bytes"
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"net/http"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/relay"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
)

// Options are what an Engine needs beside the rules. Backend is required if the rules have no
// sites.
type Options struct {
	Backend http.Handler // receives what is admitted
	TLS     *tls.Config  // nil: cleartext
	// AskClients, if set, makes a configuration ask clients for certificates.
	AskClients func(*tls.Config)

	// Wrap, TraceUpstream, Traceparent and TracePath mean what they mean in the gateway's options.
	Wrap          func(http.Handler) http.Handler
	TraceUpstream func(ctx context.Context, method string, h http.Header) (end func(at upstream.Address, status int, err error))
	Traceparent   func(context.Context) string
	TracePath     func(ctx context.Context, path string)
}

// An Engine serves requests by net/http. It is safe for concurrent use.
type Engine struct {
	*rules.Rules
	options Options
	backend http.Handler // serveBackend
	buffers relay.Buffers
}

// New returns an engine. It serves nothing before Server or Handler is called.
func New(r *rules.Rules, o Options) *Engine {
	e := &Engine{Rules: r, options: o}
	e.backend = http.HandlerFunc(e.serveBackend)
	return e
}

// isBeforeSites reports whether upstreams answer, rather than Options.Backend.
func (e *Engine) isBeforeSites() bool { return len(e.Sites) > 0 }

// Handler serves one request after another, without what Server does for connections.
func (e *Engine) Handler() http.Handler {
	if e.options.Wrap != nil {
		return e.options.Wrap(http.HandlerFunc(e.serve))
	}
	return http.HandlerFunc(e.serve)
}

// Server returns a server for connections that it accepts itself, from a Listener. ctx is the base
// of every request's context.
func (e *Engine) Server(ctx context.Context) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)            // by ALPN
	protocols.SetUnencryptedHTTP2(true) // by prior knowledge; there is no Upgrade to it
	s := &http.Server{
		Handler:                      e.Handler(),
		Protocols:                    protocols,
		ReadHeaderTimeout:            e.Limits.Header,
		IdleTimeout:                  e.Limits.Idle,
		MaxHeaderBytes:               e.Limits.HeaderBytes,
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: e.Limits.Streams,
			SendPingTimeout:      e.Limits.Stall,
		},
		ConnState:   e.countAccepted,
		ConnContext: pace.WithConn,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(serverLog{e}, "", 0),
	}
	if e.options.TLS != nil {
		s.TLSConfig = e.options.TLS.Clone()
		if e.options.AskClients != nil {
			s.TLSConfig.NextProtos = []string{"h2", "http/1.1"} // net/http adds them too late
			e.options.AskClients(s.TLSConfig)
		}
	}
	return s
}

// countAccepted counts connections as they come and go.
func (e *Engine) countAccepted(c net.Conn, state http.ConnState) {
	if spare := spareUnder(c); spare != nil {
		spare.note(state)
	}
	if state == http.StateNew {
		e.Accepted.Add(1)
		e.Open.Add(1)
	}
	if state == http.StateHijacked || state == http.StateClosed {
		e.Open.Add(-1)
	}
}

// A serverLog receives net/http's log lines. Those that any stranger can cause are for debugging
// alone, or have a line of our own.
type serverLog struct{ engine *Engine }

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	for _, prefix := range []string{handshakeFailed, "http2: "} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			level = slog.LevelDebug
		}
	}
	l.engine.noteRefused(string(line))
	l.engine.Log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
