package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// Options are what a Gateway is made of. Decider, Identity and one of Backend and Upstream are required.
type Options struct {
	Decider  *weir.Decider
	Identity *identity.Resolver

	// Backend receives what is admitted, in canonical form; it finds the caller by httplimit.CallerOf.
	Backend http.Handler
	// Upstream receives it instead: scheme, host, and a base path that is put before every path.
	Upstream *url.URL
	// MoreUpstreams are further addresses of the same backend: they differ from Upstream in host and port alone. Each request goes
	// to the least busy one; one that fails is left alone for a while.
	MoreUpstreams []*url.URL

	// Avoid, if set, says why no connection may be made to an address that the upstream's names lead to, such as one at which this
	// gateway listens itself; nil: it may. It is asked of each before it is connected to, by several goroutines, and must not block.
	Avoid func(netip.AddrPort) error

	// CORSOrigins are the web origins that may call the widget surface; none, or "*", allow any (D22).
	CORSOrigins []string
	// IETF adds the RateLimit and RateLimit-Policy fields (D23).
	IETF bool

	// CertFile and KeyFile, PEM, switch TLS and HTTP/2 by ALPN on. They are read again when they change.
	CertFile, KeyFile string

	// ProxyProtocol requires a PROXY protocol header from TrustedProxies and refuses it from others (D12).
	ProxyProtocol  bool
	TrustedProxies []netip.Prefix

	// Ready says why the backend cannot serve yet; nil means that it always can. It is asked at most once a second.
	Ready func(context.Context) error

	// Degraded says why requests are served, but not as they should be; nil means that they always are. /readyz tells it, and is
	// still 200: another node would do no better. It must not block.
	Degraded func() error

	// OnDrain, if set, is called once when a drain begins: a backend ends then what it holds open, such as event streams. It
	// must not wait for that.
	OnDrain func()

	// AccessLog gets a line a request; nil means none. Whoever made it closes it, after Serve.
	AccessLog *AccessLog
	// Log gets what is not about one request; nil means slog.Default().
	Log *slog.Logger

	// Credentials says how to get a credential, as the end of a 401's message, by key source; what is missing here gets the
	// contract's words.
	Credentials map[string]string

	// Denial, if set, returns the id that a 429 carries as X-Weir-Denial (answer.Options.Denial).
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string

	// AgentHash, if set, returns the keyed hash by which the access log names an agent; ok is false
	// while its key is not known. The log has it for the requests whose agent the limiters have
	// asked for, and no others. It must not block or allocate.
	AgentHash func(agent string) (hash uint64, ok bool)

	// Observe, if set, is told of every decision.
	Observe func(answer.Observation)

	// Wrap, if set, is put around the handler of every request, outermost, such as one that traces; it sees paths as they were
	// received. Its ResponseWriter must unwrap to the one it was given, or be it.
	Wrap func(http.Handler) http.Handler
	// WrapTransport, if set, is put around the transport of requests to Upstream.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	// Engine says what speaks HTTP/1.1; the zero value is the fast engine where that can serve.
	Engine Engine

	Limits Limits
}

// ownFields returns the fields of limited answers that are switched on, beside the contract's.
func (o *Options) ownFields() []string {
	var own []string
	if o.IETF {
		own = append(own, headers.RateLimit, headers.Policy)
	}
	if o.Denial != nil {
		own = append(own, headers.Denial)
	}
	return own
}

// Limits bound what one peer can hold. A zero field means its default.
type Limits struct {
	Header      time.Duration // for a request's header and the TLS handshake to arrive; 10 s
	ProxyHeader time.Duration // for the PROXY protocol header to arrive; 5 s
	Stall       time.Duration // for a peer, either side, that makes no progress; 30 s
	Take        time.Duration // for a client that takes nothing more of an answer; twice Stall, which is 60 s
	Idle        time.Duration // between two requests of a connection, and before its first; 75 s
	Drain       time.Duration // for requests under way when Serve's context ends; 30 s
	Linger      time.Duration // before idle connections are closed then, for their clients to be told so with an answer; 0: they are not told
	Connect     time.Duration // to the upstream; 5 s
	Upstream    time.Duration // for the header of an upstream's answer, once the request is sent; 60 s

	// Rate is the least rate, in bytes a second, at which a client sends a body, or takes an answer; 500, negative: no least
	// rate. Only time in which we wait for the client counts. Grace is for how long a client may be slower in all; 20 s. Bytes
	// earn it back. For answers it is Take at least. All streams of an HTTP/2 connection count as one client. Upload is the most
	// time in which the body of one request is waited for; 0: no bound.
	Rate   int64
	Grace  time.Duration
	Upload time.Duration

	HeaderBytes int   // of a request's header; 64 KiB
	Body        int64 // of a request's body: 16 MiB before Backend, no bound before Upstream; negative: no bound
	Streams     int   // at a time on one HTTP/2 connection; 128
}

func (l Limits) withDefaults(upstream bool) Limits {
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&l.Header, 10 * time.Second}, {&l.ProxyHeader, 5 * time.Second}, {&l.Stall, 30 * time.Second},
		{&l.Grace, 20 * time.Second}, {&l.Idle, 75 * time.Second}, {&l.Drain, 30 * time.Second}, {&l.Connect, 5 * time.Second}, {&l.Upstream, time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.fallback
		}
	}
	if l.Take == 0 {
		l.Take = 2 * l.Stall
	}
	if l.Rate == 0 {
		l.Rate = 500
	}
	if l.HeaderBytes == 0 {
		l.HeaderBytes = 64 << 10
	}
	if l.Streams == 0 {
		l.Streams = 128
	}
	if l.Body == 0 && !upstream {
		l.Body = 16 << 20
	}
	return l
}
