package std

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// newProxies makes the reverse proxies before the upstreams, and the transport that they share.
func (e *Engine) newProxies() {
	e.transport = e.newTransport()
	var through http.RoundTripper = e.transport
	if e.options.WrapTransport != nil {
		through = e.options.WrapTransport(e.transport)
	}
	e.proxies = make(map[*rules.Site]*httputil.ReverseProxy, len(e.Sites))
	for _, site := range e.Sites {
		e.proxies[site] = &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) { e.rewrite(p, site) },
			// outermost, so that a trace shows each address that was tried
			Transport:      site.Pool.Transport(through),
			BufferPool:     new(bufferPool),
			ModifyResponse: e.receive,
			ErrorHandler:   e.upstreamFailed,
			ErrorLog:       slog.NewLogLogger(e.Log.Handler(), slog.LevelWarn),
		}
	}
}

// newTransport returns a transport for one upstream: HTTP/1.1, many kept connections, bodies
// unchanged, no proxy from the environment. Its writes have deadlines, so that an upstream that
// stops reading cannot hold a request for ever.
func (e *Engine) newTransport() *http.Transport {
	clock := pace.NewClock()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			c, err := upstream.Dial(ctx, addr, e.options.Dial)
			if err != nil {
				return nil, err
			}
			return upstream.Count(pace.NewConn(c, e.Limits.UpstreamIdle, clock), c), nil
		},
		TLSClientConfig:        e.options.UpstreamTLS.Clone(), // net/http changes it
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           0, // bounded by the next one alone
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        e.options.Kept,
		TLSHandshakeTimeout:    e.Limits.Connect,
		ResponseHeaderTimeout:  max(e.Limits.Upstream, 0), // 0 is no bound
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// rewrite makes the request that the upstream of a site receives. The path has its canonical form
// here.
func (e *Engine) rewrite(p *httputil.ProxyRequest, site *rules.Site) {
	in, out := p.In, p.Out
	*out.URL = site.URL(in.URL)
	path, query := e.Target(in.RequestURI, in.URL)
	// httputil drops parts that it cannot parse
	out.URL.RawQuery = query
	if path != in.URL.EscapedPath() {
		// which is sent byte for byte; it never begins with two slashes
		out.URL.Opaque = site.EscapedBase + path
	}
	e.stripWithheld(out.Header)
	e.passTrailers(p)
	head := headOf(in)
	onward := e.Onward(&head, site)
	out.Host, out.Close = onward.Host, onward.Alone
	chain := in.Header.Get(rules.ForwardedFor) // serveUpstream's
	delete(out.Header, rules.ForwardedFor)
	e.PutForwarding(out.Header, &onward, []byte(chain))
}

// headOf returns the values that rules.Onward needs of a request.
func headOf(r *http.Request) rules.Head {
	h := rules.Head{
		Method: r.Method, Minor: 1, Host: r.Host, Length: r.ContentLength, Peer: r.RemoteAddr, Secure: r.TLS != nil,
		Proto: r.Header[rules.ForwardedProto], Upgrade: r.Header["Upgrade"],
	}
	if !r.ProtoAtLeast(1, 1) {
		h.Minor = 0
	}
	if r.TLS != nil {
		h.Chains = r.TLS.VerifiedChains
	}
	return h
}

// passTrailers forwards the announced trailers of a request. httputil does not: they come with the
// end of the body, after it has copied the request.
func (e *Engine) passTrailers(p *httputil.ProxyRequest) {
	p.Out.Trailer = nil
	if len(p.In.Trailer) == 0 || p.Out.Body == nil {
		return
	}
	p.Out.Trailer = make(http.Header, len(p.In.Trailer))
	for name := range p.In.Trailer {
		if e.passesTrailer(name) {
			p.Out.Trailer[name] = nil
		}
	}
	p.Out.Body = &trailed{p.Out.Body, p.In.Trailer, p.Out.Trailer}
}

// passesTrailer reports whether a trailer of a request is forwarded.
func (e *Engine) passesTrailer(name string) bool {
	return !rules.IsWithheld(name) && !e.HidesName(name) && wire.MayTrail(name)
}

// trailed is a body that copies its trailers when it ends, before its reader looks for them.
type trailed struct {
	io.ReadCloser
	from, to http.Header
}

func (b *trailed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.to {
			b.to[name] = b.from[name]
		}
	}
	return n, err
}

// serveUpstream forwards a request.
func (e *Engine) serveUpstream(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(w)
	r.Header[rules.ForwardedFor] = []string{string(x.chain)}
	head := headOf(r)
	ctx := context.WithValue(r.Context(), asking{}, x)
	if head.IsWebsocket() {
		ctx, x.leave = context.WithCancel(ctx)
		defer x.leave()
	} else {
		delete(r.Header, "Upgrade") // httputil drops Connection
	}
	x.asked = time.Since(x.Start)
	e.proxies[x.Site].ServeHTTP(w, r.WithContext(ctx))
}

// asking is the key of the *exchange in the context of a request to the upstream.
type asking struct{}

// noteUpstream notes that the head of the upstream's answer has come, or that it has failed.
func (x *exchange) noteUpstream() { x.UpstreamTime = time.Since(x.Start) - x.asked }

// upstreamFailed answers for an upstream that did not.
func (e *Engine) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(w)
	if x.isHijacked {
		return // the connection is the upgrade's, and over
	}
	x.noteUpstream()
	var failed *upstream.AskError
	if errors.As(err, &failed) {
		x.Upstream = failed.Address
	}
	var large *http.MaxBytesError
	sent := x.body.failure()
	switch {
	case errors.As(err, &large):
		write(w, rules.BodyFailed(large))
	case pace.IsTimeout(sent): // which cancels the context too
		write(w, rules.BodyFailed(sent))
	case r.Context().Err() != nil:
		x.Gone = x.Status == 0 // the connection is closed then
	case sent != nil:
		write(w, rules.BodyFailed(sent))
	default:
		write(w, e.NoUpstream(x.Site, r.Method, x.Upstream, err))
	}
}

// receive checks every answer of the upstream, and prepares it to be passed on.
func (e *Engine) receive(r *http.Response) error {
	x, _ := r.Request.Context().Value(asking{}).(*exchange)
	if x != nil {
		x.noteUpstream()
		x.Upstream = upstream.AddressOf(r.Request.URL)
	}
	if err := rules.CheckAnswer(r.StatusCode, len(r.Request.Header["Upgrade"]) > 0, r.Header["Upgrade"]); err != nil {
		return err // httputil closes the answer then; if it finds that itself, it does not
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		e.stripReserved(r.Header) // httputil copies this header last
		if x != nil {
			x.switching = r.Header
		}
		return nil
	}
	if len(r.Trailer) > 0 {
		e.stripReserved(r.Trailer) // they will not be sent, so they are not announced
	}
	patience := e.Limits.UpstreamIdle
	if r.ContentLength < 0 {
		patience = e.Limits.Stream
	}
	if r.ContentLength != 0 && patience > 0 {
		r.Body = &pacedBody{ReadCloser: r.Body, patience: patience}
	}
	return nil
}

// A pacedBody is an upstream's body that ends with an error if the upstream pauses for longer than
// patience.
type pacedBody struct {
	io.ReadCloser
	patience time.Duration
	timer    *time.Timer
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		// which ends the read
		b.timer = time.AfterFunc(b.patience, func() { _ = b.ReadCloser.Close() })
	} else {
		b.timer.Reset(b.patience)
	}
	defer b.timer.Stop()
	return b.ReadCloser.Read(p)
}

// A bufferPool lends the buffers that bodies are copied through.
type bufferPool struct{ pool sync.Pool }

type buffer = [32 << 10]byte

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*buffer); ok {
		return b[:]
	}
	return new(buffer)[:]
}

func (p *bufferPool) Put(b []byte) { p.pool.Put((*buffer)(b)) }
