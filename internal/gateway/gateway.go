// Package gateway is the edge itself: it listens, brings each request to one safe form, asks httplimit, and passes what
// is admitted to the sample backend or to an upstream. One request, in order:
//
//	conn.go       PROXY protocol, a deadline for every write, the least rate of a reader
//	spare.go      a connection before its first request, with net/http
//	exchange.go   what is known of one request while it is under way
//	body.go       a deadline for every read of its body
//	rate.go       how slow a client may be
//	tunnel.go     how long a websocket lasts when one side is gone
//	gateway.go    path, preflight, method, limiter, backend
//	cors.go       browsers on other origins
//	forward.go    what an upstream is told
//	withheld.go   the fields that it is not told
//	proxy.go      the upstream, by net/http
//	record.go     what is known of a request when it is over
//	accesslog.go  one line of it
//	serve.go      start, readiness, drain
//	door.go       several doors, served and drained together
//	figures.go    what operators are told
//
// Before an upstream HTTP/1.1 is served by the fast engine instead, which asks the same rules:
//
//	fast.go          who serves what; accepting, watching, draining connections
//	fastconn.go      one connection of a caller
//	conncontext.go   its context
//	fastexchange.go  one request: its target, its limiter, who answers
//	fastbody.go      its body
//	fastanswer.go    answers of our own, and the fields of all
//	fastupstream.go  the request to the upstream
//	fastupload.go    its body, while the answer is awaited
//	fastrelay.go     the upstream's answer, and upgrades
//	copy.go          what bodies are copied through
//	upstreams.go     the addresses of the upstream, for both engines
package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
)

// A Gateway serves one policy before one backend. Make one with New.
type Gateway struct {
	options Options
	limits  Limits
	answers Limits // limits, as they are for a client that takes an answer
	log     *slog.Logger

	limit   *httplimit.Middleware
	backend http.Handler // serveBackend
	refuse  http.Handler // 400
	method  http.Handler // 405
	ask     http.Handler // preflights

	cors      *crossOrigin
	proxy     *httputil.ReverseProxy // nil: Backend
	transport *http.Transport
	pool      *upstream.Pool // the addresses of the upstream; nil: Backend
	host      string         // what the upstream is told as Host where a client says none
	cert      *certificate   // nil: cleartext

	dates headers.DateCache // of answers that no limiter covers
	began time.Time         // when the gateway was made
	now   atomic.Int64      // when the fast engine last looked around, in nanoseconds after that

	draining      atomic.Bool
	lingering     atomic.Bool
	toldForwarded atomic.Bool // that somebody forwards, and nobody is trusted to
	ready         readiness
	conns         connSet
	active        tally // requests
	open          tally // connections, but for those that were taken over
	accepted      atomic.Int64
	malformed     statusTally // what was no request
	unanswered    statusTally // what the upstream did not answer
}

// New checks the options and returns a Gateway that does not listen yet. An error about what operators set
// names that and not this function, since they read it.
func New(o Options) (*Gateway, error) {
	if o.Decider == nil || o.Identity == nil {
		return nil, errors.New("new gateway: Decider and Identity are required")
	}
	if (o.Backend == nil) == (o.Upstream == nil) {
		return nil, errors.New("new gateway: one of Backend and Upstream is required, not both")
	}
	if o.ProxyProtocol && len(o.TrustedProxies) == 0 {
		return nil, errors.New("new gateway: the PROXY protocol needs trusted proxies to take it from: name their networks")
	}
	g := &Gateway{options: o, limits: o.Limits.withDefaults(o.Upstream != nil), log: o.Log, began: time.Now()}
	g.answers = g.limits.ofAnswers()
	if g.log == nil {
		g.log = slog.Default()
	}
	var err error
	if g.cors, err = newCrossOrigin(o.CORSOrigins, o.ownFields()...); err != nil {
		return nil, err
	}
	if o.CertFile != "" || o.KeyFile != "" {
		if g.cert, err = loadCertificate(o.CertFile, o.KeyFile, g.log, time.Now); err != nil {
			return nil, err
		}
	}
	if o.Upstream == nil && len(o.MoreUpstreams) > 0 {
		return nil, errors.New("new gateway: MoreUpstreams are further addresses of Upstream, which is not set")
	}
	if o.Upstream != nil {
		if g.pool, err = g.newPool(); err != nil {
			return nil, err
		}
		g.host = hostOf(o.Upstream)
		if g.proxy, g.transport, err = g.newProxy(o.Upstream); err != nil {
			return nil, err
		}
	}
	if g.limit, err = httplimit.New(o.Decider, httplimit.Options{
		Identity:    o.Identity,
		IETF:        o.IETF,
		Credentials: o.Credentials,
		Denial:      o.Denial,
		Observe:     o.Observe,
		Judged:      g.judged,
	}); err != nil {
		return nil, fmt.Errorf("new gateway: %w", err)
	}
	g.backend = http.HandlerFunc(g.serveBackend)
	g.refuse = http.HandlerFunc(refusePath)
	g.method = http.HandlerFunc(refuseMethod)
	g.ask = http.HandlerFunc(g.answerPreflight)
	return g, nil
}

// Handler serves one request after another, without the listeners' part (time-outs of headers, PROXY protocol, TLS).
func (g *Gateway) Handler() http.Handler {
	if g.options.Wrap != nil {
		return g.options.Wrap(http.HandlerFunc(g.serve))
	}
	return http.HandlerFunc(g.serve)
}

// InFlight returns how many requests are under way, taken-over connections (websockets) included while their handlers run.
func (g *Gateway) InFlight() int64 { return g.active.n.Load() }

// serve is one request from end to end.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, gateway: g, request: r, record: record{start: time.Now()}, http2: r.ProtoMajor == 2}
	g.active.add(1)
	defer x.end()
	g.mindForwarded(r)
	g.route(x, x.paceBody(r))
}

// mindForwarded says once that requests come through a proxy that is not trusted: then everybody behind it is one address.
func (g *Gateway) mindForwarded(r *http.Request) {
	if r.Header[forwardedFor] != nil {
		g.tellForwarded(r.RemoteAddr)
	}
}

func (g *Gateway) tellForwarded(peer string) {
	if len(g.options.TrustedProxies) > 0 || !g.toldForwarded.CompareAndSwap(false, true) {
		return
	}
	g.log.Warn("a request came with X-Forwarded-For, and no proxy is trusted to say so: where one stands before this server, "+
		"all its clients are counted as one address until it is named as a trusted proxy", "peer", peer)
}

// end says what became of the request, and lets nothing else out of the handlers.
func (x *exchange) end() {
	g := x.gateway
	defer g.active.add(-1)
	failure := recover()
	switch {
	case failure == http.ErrAbortHandler || x.gone:
		x.aborted = true
		x.gone = x.gone || x.status == 0 && x.hasLeft()
	case failure != nil:
		g.log.Error("a handler panicked", "method", x.request.Method, "path", x.path, "panic", failure, "stack", string(debug.Stack()))
		if x.status != 0 {
			x.aborted = true
			break
		}
		writeError(x, http.StatusInternalServerError, "internal", internalMessage)
	}
	x.finish()
	if g.options.AccessLog != nil {
		x.log()
	}
	x.settle()
	if x.aborted && !x.hijacked {
		panic(http.ErrAbortHandler) // net/http's way to end the connection, or the stream, with nothing more said
	}
}

const internalMessage = "Something went wrong on our side. Please try again later."

func (x *exchange) log() {
	if !x.identified {
		x.identify(x)
	}
	x.method, x.host, x.proto = x.request.Method, x.request.Host, x.request.Proto
	x.addTo(x.gateway.options.AccessLog, time.Now())
}

// route finds out what is asked for, and who answers.
func (g *Gateway) route(x *exchange, r *http.Request) {
	stripNominated(r.Header)
	asked := target.Request{Method: r.Method}
	if isPreflight(r.Method, r.Header.Get) {
		asked.Purpose = target.CORSPreflight
	}
	asked.Read(r.URL)
	if query := r.URL.RawQuery; query != "" && identity.AgentIsAmbiguous(query) {
		asked.Ambiguous = !identity.NamesAgent(&identity.HTTPRequest{Request: r})
	}
	x.path = pathOf(&asked, r.URL)
	var choice target.Choice
	target.Choose(g.options.Decider, &asked, &choice)
	if choice.Surface == target.Widget {
		x.cors, x.origin = g.cors, g.cors.allow(r.Header.Get("Origin"))
	}
	switch choice.Kind {
	case target.Asterisk:
		allowAll(x, r)
	case target.Unreadable:
		g.charge(x, r, choice.Match, g.refuse)
	case target.AmbiguousAgent:
		g.charge(x, r, choice.Match, http.HandlerFunc(refuseAgent))
	case target.Health:
		g.serveHealth(x, r)
	case target.Preflight:
		x.preflight = true
		g.charge(x, r, choice.Match, g.ask)
	case target.UnknownMethod:
		g.charge(x, r, choice.Match, g.method)
	default:
		x.coverBy(choice.Match)
		g.limit.Serve(x, r, choice.Match, g.backend)
	}
}

// judged notes the agent that a request was counted by, for the access log. w is the exchange that
// the limiter was given.
func (g *Gateway) judged(w http.ResponseWriter, c *identity.Caller) {
	if x, ok := w.(*exchange); ok {
		x.noteAgent(&g.options, c)
	}
}

// pathOf is what the access log says of a request's path.
func pathOf(asked *target.Request, u *url.URL) string {
	switch {
	case asked.Raw != "":
		return asked.Raw
	case u.RawPath != "":
		return u.RawPath
	}
	return u.Path
}

// charge lets next answer under a limiter that the gateway chose. It is an answer of the gateway's own, which needs no
// credential.
func (g *Gateway) charge(x *exchange, r *http.Request, m weir.Match, next http.Handler) {
	x.coverBy(m)
	g.limit.Charge(x, r, m, next)
}

func refusePath(w http.ResponseWriter, _ *http.Request) {
	writeError(w, http.StatusBadRequest, "invalid_request",
		"The request's path can be read in more than one way. Send it without escaped slashes, backslashes, control characters or doubly escaped characters.")
}

func refuseAgent(w http.ResponseWriter, _ *http.Request) {
	writeError(w, http.StatusBadRequest, "invalid_request",
		"The request's query can be read as naming more than one agent. Send agent_id once, spelled so, percent-encoded, and with no semicolon beside it.")
}

const allMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// allowAll answers OPTIONS for the server as a whole.
func allowAll(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", allMethods)
	w.WriteHeader(http.StatusNoContent)
}

func refuseMethod(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", allMethods)
	writeError(w, http.StatusMethodNotAllowed, "method_not_allowed",
		"This method is not known here. Methods are written in capital letters: "+allMethods+".")
}

func (g *Gateway) answerPreflight(w http.ResponseWriter, r *http.Request) {
	exchangeOf(w).cors.answer(w, r)
}

// serveBackend passes on what is admitted.
func (g *Gateway) serveBackend(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(w)
	defer g.contain(w, x)
	x.reached = true
	chain := x.identify(w)
	if limit := g.limits.Body; limit > 0 && r.ContentLength != 0 {
		if r.ContentLength > limit {
			bodyFailed(w, &http.MaxBytesError{Limit: limit})
			return
		}
		r.Body = http.MaxBytesReader(x.ResponseWriter, r.Body, limit)
	}
	if g.proxy == nil {
		g.options.Backend.ServeHTTP(w, r)
		return
	}
	g.serveUpstream(w, r, chain)
}

// contain turns a panic of a handler into a 500 with the fields of its limiter, while that can still be said.
func (g *Gateway) contain(w http.ResponseWriter, x *exchange) {
	if x.status != 0 || x.hijacked {
		return // too late: end says so
	}
	switch failure := recover(); failure {
	case nil:
	case http.ErrAbortHandler:
		panic(failure)
	default:
		g.log.Error("a handler panicked", "method", x.request.Method, "path", x.path, "panic", failure, "stack", string(debug.Stack()))
		clear(w.Header())
		writeError(w, http.StatusInternalServerError, "internal", internalMessage)
	}
}
