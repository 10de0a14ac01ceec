package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/target"
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
		Rewrite:        func(p *httputil.ProxyRequest) { rewrite(p, &target) },
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
	dialer := &net.Dialer{Timeout: g.limits.Connect, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &pacedConn{Conn: c, patience: g.limits.Stall}, nil
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

// rewrite makes the request that the upstream receives. What arrives here is canonical already.
func rewrite(p *httputil.ProxyRequest, target *url.URL) {
	in, out := p.In, p.Out
	u := out.URL
	path, raw := target.Path+in.URL.Path, ""
	if in.URL.RawPath != "" || target.RawPath != target.Path {
		raw = target.RawPath + in.URL.EscapedPath()
	}
	*u = url.URL{Scheme: target.Scheme, Host: target.Host, Path: path, RawPath: raw, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery}
	out.Host = in.Host
	stripForged(out.Header)
	passTrailers(p)
	// Put there by serveUpstream, from what was decided; the client's own are gone by then.
	for _, name := range [...]string{forwardedFor, forwardedProto, forwardedHost} {
		if v := in.Header[name]; len(v) > 0 {
			out.Header[name] = v
		}
	}
}

const (
	forwardedFor   = "X-Forwarded-For"
	forwardedProto = "X-Forwarded-Proto"
	forwardedHost  = "X-Forwarded-Host"
)

// stripForged removes the fields by which a client could tell a backend another path, method, address or scheme than the
// ones that were counted (D10, D12). A backend may read an underscore for a dash (CGI does), so that spelling goes too.
func stripForged(h http.Header) {
	for name := range h {
		switch name[0] {
		case 'X', 'x', 'F', 'f', 'T', 't', 'C', 'c', 'H', 'h':
			if isForged(name) {
				delete(h, name)
			}
		}
	}
}

func isForged(name string) bool {
	if strings.IndexByte(name, '_') >= 0 {
		name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	if strings.HasPrefix(name, "X-Forwarded") {
		return true
	}
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Client-Ip", "X-Remote-Ip",
		"X-Remote-Addr", "X-Originating-Ip", "X-Original-Forwarded-For", "X-Original-Host", "X-Host", "X-Proxyuser-Ip",
		"Cf-Connecting-Ip", "X-Envoy-External-Address",
		"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method",
		"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Rewrite-Uri", "X-Override-Url", "X-Original-Path",
		"X-Envoy-Original-Path", "X-Waf-Rewrite-Url", "Http2-Settings":
		return true
	}
	return false
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
		if !isForged(name) {
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

// stripUpgrade removes every Upgrade but a websocket's: h2c above all would open a tunnel through which requests pass
// uncounted. What Connection says of it goes with it (httputil drops that field).
func stripUpgrade(r *http.Request) {
	delete(r.Header, "Http2-Settings")
	u, ok := r.Header["Upgrade"]
	if !ok {
		return
	}
	if len(u) != 1 || !strings.EqualFold(strings.TrimSpace(u[0]), "websocket") || r.Method != http.MethodGet || !r.ProtoAtLeast(1, 1) {
		delete(r.Header, "Upgrade")
	}
}

// serveUpstream passes a request on. chain is the client and every trusted hop behind it.
func (g *Gateway) serveUpstream(w http.ResponseWriter, r *http.Request, chain string) {
	stripUpgrade(r)
	h := r.Header
	proto := g.forwardedProto(r)
	values := [3]string{chain, proto, r.Host}
	h[forwardedFor] = values[0:1:1]
	h[forwardedProto] = values[1:2:2]
	h[forwardedHost] = values[2:3:3]
	g.proxy.ServeHTTP(w, r)
}

// forwardedProto returns the scheme of the client's connection: this one's, unless a trusted proxy stands between and
// says otherwise.
func (g *Gateway) forwardedProto(r *http.Request) string {
	if said := r.Header[forwardedProto]; len(said) == 1 && (said[0] == "http" || said[0] == "https") && len(g.options.TrustedProxies) > 0 {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && g.trusts(peer.Addr()) {
			return said[0]
		}
	}
	if r.TLS != nil {
		return "https"
	}
	return "http"
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
	case isTimeout(err):
		g.log.Warn("the upstream did not answer in time", "method", r.Method, "upstream", g.options.Upstream.Host, "error", err)
		writeError(w, http.StatusGatewayTimeout, "upstream_timeout", "The service behind this address did not answer in time. Please try again.")
		return
	}
	g.log.Warn("the upstream is not available", "method", r.Method, "upstream", g.options.Upstream.Host, "error", err)
	writeError(w, http.StatusBadGateway, "upstream_unavailable", "The service behind this address is not available. Please try again later.")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// bodyFailed answers a request whose body did not arrive whole.
func bodyFailed(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		writeError(w, http.StatusRequestEntityTooLarge, "payload_too_large",
			fmt.Sprintf("The request body is larger than the %d bytes that are allowed here.", large.Limit))
		return
	}
	w.Header().Set("Connection", "close")
	writeError(w, http.StatusBadRequest, "invalid_request", "The request body stopped arriving or is malformed.")
}

// receive is what happens to every answer of the upstream before it is passed on.
func (g *Gateway) receive(r *http.Response) error {
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

// forgetLimits removes an upstream's own values of our fields.
func (g *Gateway) forgetLimits(h http.Header) {
	for _, name := range [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After", "Date"} {
		delete(h, name)
	}
	if g.options.IETF {
		delete(h, "Ratelimit")
		delete(h, "Ratelimit-Policy")
	}
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
