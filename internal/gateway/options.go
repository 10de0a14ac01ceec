package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/acme"
	"github.com/weirlimit/weir/internal/target"
	"github.com/weirlimit/weir/internal/upstream"
)

// Options are what a Gateway is made from. Decider, Identity and one of Backend and Sites are
// required.
type Options struct {
	Decider  *weir.Decider
	Identity *identity.Resolver

	// Backend receives what is admitted, in canonical form; it finds the caller by
	// httplimit.CallerOf.
	Backend http.Handler
	// Sites receive it instead, each the requests for its hosts. A request for a host that no site
	// names is answered 421.
	Sites []Site

	// UpstreamTLS is of the sites' https addresses.
	UpstreamTLS UpstreamTLS

	// Avoid, if set, returns why no connection may be made to an address that the upstream's names
	// resolve to, such as one at which this gateway listens itself; nil: it may. It is called
	// before each connection, by several goroutines, and must not block.
	Avoid func(netip.AddrPort) error

	// HideTokens are the places of tokens that upstreams do not get: the gateway removes the
	// field, the Authorization of that scheme, or the parameter, also from trailers and whether or
	// not the token is valid. None means that all are forwarded.
	HideTokens []identity.Place

	// Forwarded are the names of the fields by which Sites learn who is calling, of
	// rules.Forwardings and in any case; empty: those that are on by default. NoForwarding alone is
	// none.
	Forwarded []string
	// Paths is which form of a path Sites receive. AsSent is for Sites alone.
	Paths target.Paths
	// Methods are accepted beside the known ones (target.IsMethod). They are tokens in capital
	// letters, without CONNECT and TRACE.
	Methods []string

	// CORSOrigins are the web origins whose scripts may call the API, or "*" for any. If there are
	// none, any may call the widget surface of the contract (D22), and under another policy what
	// browsers may do is left to the backend.
	CORSOrigins []string
	// IETF adds the RateLimit and RateLimit-Policy fields (D23).
	IETF bool

	// Certificates switch TLS and HTTP/2 by ALPN on. A client gets the one for the name that it
	// asks for, else the first. With several certificates or sites, a request for a host that the
	// certificate of its connection does not cover is answered 421, unless a trusted proxy sends
	// it.
	Certificates []KeyPair
	// Clients is whether clients are asked for certificates. It needs Certificates. Identity must
	// know it too (identity.Options.Certificates).
	Clients ClientTLS
	// ACME has more of them, each for one name. Nil: none. The caller runs and closes it.
	ACME *acme.Manager

	// ProxyProtocol requires a PROXY protocol header from TrustedProxies and refuses it from others
	// (D12). Identity must know these too (identity.Options.TrustedProxies).
	ProxyProtocol  bool
	TrustedProxies []netip.Prefix

	// Ready returns why the backend cannot serve yet. A nil Ready means that it always can. It is
	// called once a second at most.
	Ready func(context.Context) error

	// Degraded returns why requests are served, but not as they should be. A nil Degraded means
	// that they always are. /readyz reports the reason, and is still 200: another node would do no
	// better. It must not block.
	Degraded func() error

	// OnDrain, if set, is called once when a drain begins, so that a backend ends what it holds
	// open, such as event streams. It must not wait for that.
	OnDrain func()

	// AccessLog has a line for each request; nil means none. The caller closes it, after Serve.
	AccessLog *AccessLog
	// Log has what is not about one request; nil means slog.Default().
	Log *slog.Logger

	// Credentials maps a key source to how a client gets a credential for it, which ends the
	// message of a 401. A source that is missing has the contract's words.
	Credentials map[string]string

	// Denial, if set, returns the id that a 429 carries as X-Weir-Denial
	// (answer.Options.Denial).
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string

	// ValueHash, if set, returns the keyed hash by which the access log names an agent, or the
	// value of a parameter of the route; ok is false while its key is not known. The log has the
	// agent only of requests that a limiter has asked for it. It must not block or allocate.
	ValueHash func(value string) (hash uint64, ok bool)

	// CallerHash, if set, returns the keyed hash by which the access log names the caller that the
	// binding window counts (answer.Answer.Who). It must not block, allocate, or keep who.
	CallerHash func(who []byte) (hash uint64, ok bool)
	// LogFields are the fields that the access log has beside those of every line.
	LogFields LogFields
	// Traceparent, if set, returns the traceparent of a request that Wrap traces, for the access
	// log: its context is the one that Wrap's handler passes on. Empty: there is none.
	Traceparent func(context.Context) string

	// TracePath, if set, is called with the path of a request that Wrap traces, as the access log
	// has it, if that hides a segment.
	TracePath func(ctx context.Context, path string)
	// Served, if set, is called when a request has ended. It must not block.
	Served func(Served)

	// Observe, if set, is called with every decision.
	Observe func(answer.Observation)

	// Spent, if set, is called with what each admitted request has cost, once that is known
	// (answer.Options.Spent).
	Spent func(answer.Spending)

	// Wrap, if set, is put around the handler of every request, outermost, such as one that traces;
	// it sees paths as they were received. Its ResponseWriter must unwrap to the one it was given,
	// or be it.
	Wrap func(http.Handler) http.Handler
	// TraceUpstream, if set, is called for each request to Sites before that is sent. It may change
	// the fields that are forwarded, such as traceparent. end is called when the answer has ended:
	// with the address that was asked last (zero: none was), the status of the answer (0: there was
	// none), and why the answer is not whole.
	TraceUpstream func(ctx context.Context, method string, h http.Header) (end func(at upstream.Address, status int, err error))

	// WrapListener, if set, is put around the listener that Serve is given, below the PROXY
	// protocol and TLS, such as one that counts connections. Its connections must have CloseWrite
	// and SyscallConn, as those that it accepts.
	WrapListener func(net.Listener) net.Listener

	// Engine selects what speaks HTTP; the zero value is the fast engine if that can serve.
	Engine Engine

	Limits Limits

	// HealthCheck, with a path, asks the addresses of Sites regularly; the zero value does not.
	HealthCheck HealthCheck

	// dial, if set, is put around what connects to upstreams, for tests.
	dial func(dial) dial
}

// A dial connects, as net.Dialer.DialContext does.
type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// A Site is the backend of some hosts.
type Site struct {
	// Host is compared as that of a route is (weir.Route): a name, or *.example.com. Empty: all
	// hosts that no other site names.
	Host string
	// Upstreams are the addresses of the backend, at least one: scheme, host, and a base path that
	// is put before every path. They differ in host and port alone. Each request goes to the least
	// busy one; one that fails is avoided for a while.
	Upstreams []*url.URL
}

// To returns the sites of a gateway before a single backend, which gets the requests for all hosts.
func To(upstreams ...*url.URL) []Site { return []Site{{Upstreams: upstreams}} }
