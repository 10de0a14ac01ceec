package std

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
	"github.com/weirlimit/weir/internal/wire"
)

// newProxy returns the reverse proxy before upstream, and the transport it owns.
func (g *Gateway) newProxy(upstream *url.URL) (*httputil.ReverseProxy, *http.Transport, error) {
	base, decoded, err := target.Decode(upstream.EscapedPath())
	if err != nil {
		return nil, nil, fmt.Errorf("upstream %q: %w", upstream.Redacted(), err)
	}
	base, decoded = strings.TrimSuffix(base, "/"), strings.TrimSuffix(decoded, "/")
	target := url.URL{Scheme: upstream.Scheme, Host: addressOf(upstream).Host, Path: decoded, RawPath: base}
	transport := g.newTransport()
	var through http.RoundTripper = transport
	if g.options.WrapTransport != nil {
		through = g.options.WrapTransport(transport)
	}
	through = g.pool.Transport(through) // outside, so that a trace shows each address that was tried
	return &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, &target, g.hostFor(p.In.Host)) },
		Transport:      through,
		BufferPool:     new(bufferPool),
		ModifyResponse: g.receive,
		ErrorHandler:   g.upstreamFailed,
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}, transport, nil
}

// newTransport returns a transport for one upstream: HTTP/1.1, many kept connections, bodies untouched, no proxy from the
// environment. The connections are paced, so that an upstream that stops reading cannot hold a request for ever.
func (g *Gateway) newTransport() *http.Transport {
	dialer := g.newDialer()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return upstream.Count(&pacedConn{Conn: c, patience: g.limits.Stall, began: g.began}, c), nil
		},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           0, // no bound but the next
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        keptFor,
		TLSHandshakeTimeout:    g.limits.Connect,
		ResponseHeaderTimeout:  g.limits.Upstream,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// rewrite makes the request that the upstream at base receives. What arrives here is canonical already.
func rewrite(p *httputil.ProxyRequest, base *url.URL, host string) {
	in, out := p.In, p.Out
	path, raw := base.Path+in.URL.Path, ""
	if in.URL.RawPath != "" || base.RawPath != base.Path {
		raw = base.RawPath + in.URL.EscapedPath()
	}
	*out.URL = url.URL{
		Scheme: base.Scheme, Host: base.Host, Path: path, RawPath: raw,
		RawQuery: target.Query(in.URL.RawQuery), ForceQuery: in.URL.ForceQuery, // httputil drops parts of a query that it cannot parse
	}
	out.Host = host
	stripWithheld(out.Header)
	out.Close = travelsAlone(in.Method, in.ContentLength)
	passTrailers(p)
	// Put there by serveUpstream, from what was decided; the client's own are gone by then.
	for _, name := range [...]string{forwardedFor, forwardedProto, forwardedHost} {
		if v := in.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
}

// passTrailers lets the announced trailers of a request through, which httputil does not: they arrive with the end of the
// body, after it has copied the request.
func passTrailers(p *httputil.ProxyRequest) {
	p.Out.Trailer = nil
	if len(p.In.Trailer) == 0 || p.Out.Body == nil {
		return
	}
	p.Out.Trailer = make(http.Header, len(p.In.Trailer))
	for name := range p.In.Trailer {
		if !isWithheld(name) && wire.MayTrail(name) {
			p.Out.Trailer[name] = nil
		}
	}
	p.Out.Body = &trailed{p.Out.Body, p.In.Trailer, p.Out.Trailer}
}

// trailed is a body that copies its trailers once they are there, before its reader looks for them.
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

// serveUpstream passes a request on. chain is the client and every trusted hop behind it.
func (g *Gateway) serveUpstream(w http.ResponseWriter, r *http.Request, chain string) {
	stripUpgrade(r)
	h := r.Header
	proto := g.forwardedProto(h[forwardedProto], r.RemoteAddr, r.TLS != nil)
	values := [3]string{chain, proto, r.Host}
	h[forwardedFor] = values[0:1:1]
	h[forwardedProto] = values[1:2:2]
	if delete(h, forwardedHost); r.Host != "" {
		h[forwardedHost] = values[2:3:3]
	}
	if len(h["Upgrade"]) > 0 {
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		exchangeOf(w).leave = leave
		r = r.WithContext(ctx)
	}
	g.proxy.ServeHTTP(w, r)
}

// upstreamFailed answers for an upstream that did not.
func (g *Gateway) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(w)
	if x.hijacked {
		return // the connection is the upgrade's, and over
	}
	var large *http.MaxBytesError
	sent := x.body.failure()
	switch {
	case errors.As(err, &large):
		bodyFailed(w, large)
		return
	case isTimeout(sent): // which cancels the context too
		bodyFailed(w, sent)
		return
	case r.Context().Err() != nil:
		x.gone = x.status == 0 // end closes the connection
		return
	case sent != nil:
		bodyFailed(w, sent)
		return
	}
	g.noUpstream(r.Method, g.options.Upstream.Host, err).write(w)
}

// receive is what happens to every answer of the upstream before it is passed on.
func (g *Gateway) receive(r *http.Response) error {
	if err := checkAnswer(r.StatusCode, len(r.Request.Header["Upgrade"]) > 0, r.Header["Upgrade"]); err != nil {
		return err // httputil closes it then, as it does not where it finds that itself
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		g.forgetLimits(r.Header) // httputil copies this header last
		return nil
	}
	if len(r.Trailer) > 0 {
		g.forgetLimits(r.Trailer) // what will not be sent is not announced
	}
	if r.ContentLength > 0 {
		r.Body = &pacedBody{ReadCloser: r.Body, patience: g.limits.Stall}
	}
	return nil
}

// A pacedBody is an upstream's body of a known length, which has no reason to pause for longer than patience. (A body
// without a length may be a stream of events, and be quiet.)
type pacedBody struct {
	io.ReadCloser
	patience time.Duration
	timer    *time.Timer
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.patience, func() { _ = b.ReadCloser.Close() }) // which ends the read
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
