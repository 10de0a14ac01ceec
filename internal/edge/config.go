package edge

import (
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/telemetry"
	"github.com/weirlimit/weir/policyfile"
	"github.com/weirlimit/weir/redisstore"
)

// A Config describes one server. Each field belongs to the flag of `weir serve` with its name, and
// errors name that flag.
type Config struct {
	// Listen is the address of the public listener, HOST:PORT, or unix: and the path of a socket.
	// If a service manager has passed sockets to the process (LISTEN_FDS), they are used instead.
	Listen string
	// Certificates switch on TLS at every listener, except at those for operators that have a
	// loopback address. The first is the default.
	Certificates []gateway.KeyPair
	// Clients is whether callers are asked for certificates, at the public listener alone.
	Clients gateway.ClientTLS
	// ACME has the names whose certificates are obtained by ACME, which switch on TLS too.
	ACME ACME
	// RedirectListen is the address of a listener in clear text that redirects to https; empty:
	// none, unless a service manager has passed a socket for it. RedirectPort is the port of the
	// https URLs; 0: that of the public listener.
	RedirectListen string
	RedirectPort   uint16
	// AdminListen is the address of the admin listener; empty: none, unless a service manager has
	// passed a socket for it.
	AdminListen string
	// ForwardAuth is the door for proxies that ask about each request. Without Sites, the server
	// has no other for callers.
	ForwardAuth ForwardAuth
	// RLS is the door for Envoy's rate limit service. Without Sites and ForwardAuth, the server has
	// no other for callers, and Policy is RLSDocument.
	RLS RLS
	// MetricsListen is the address of a listener for metrics and health alone; empty: none, unless
	// a service manager has passed a socket for it. MetricsOpen means that it needs no token.
	MetricsListen string
	MetricsOpen   bool
	// ShowToken is whether Rows may contain the operator's token. What keeps its output, such as a
	// journal, must not have it.
	ShowToken bool
	// AdminHosts are further names of this machine that are allowed in Host at the admin listener.
	AdminHosts []string

	Policy *live.Document    // required: the policy at the start
	Reader policyfile.Reader // of later policies
	// Candidate is the file of a policy that is evaluated and never enforced; empty: none.
	Candidate string

	// Upstream are the addresses of the backend, which differ in host and port only; none: the
	// sample backend.
	Sites  []gateway.Site
	Engine gateway.Engine
	// UpstreamTLS is of the https addresses of Sites.
	UpstreamTLS gateway.UpstreamTLS

	Store         Store // the zero value is the memory of this process
	StoreDeadline time.Duration
	// Leases is whether a shared store leases units of busy windows.
	Leases redisstore.Leasing
	// KeySecret is the file of the secret that all nodes of a shared store have in common; empty:
	// the store keeps one.
	KeySecret string
	Data      string // the data directory; required
	MaxData   int64  // bytes that the sample backend may store
	Memory    int64  // bytes for the counts in this process

	Callers  Callers
	Sessions Sessions
	// TokenFile has the ids and hashes of API tokens that another service issues; empty: none.
	TokenFile string
	// TokenFrom are the places where requests may have their API tokens; none: Authorization:
	// Bearer. TokenForward is which of them an Upstream gets.
	TokenFrom    []identity.Place
	TokenForward TokenForward
	// Tokens verifies the API tokens in Data, before an Upstream. The sample backend always does.
	Tokens bool

	// MinRate is how many bytes a second a client must send or read; negative: no minimum.
	MinRate       int64
	MinRateGrace  time.Duration // how long a client may be slower
	MaxUploadTime time.Duration // 0: no bound

	// Limits are those of the flags about time and size; zeros are the defaults. Rate, Grace and
	// Upload are the three above.
	Limits gateway.Limits
	// HealthCheck, with a path, asks the addresses of Sites regularly.
	HealthCheck gateway.HealthCheck

	// Forwarded are the fields by which an Upstream learns who is calling; empty: the default ones,
	// gateway.NoForwarding alone: none.
	Forwarded []string
	Paths     gateway.Paths // the form of a path that an Upstream gets
	Methods   []string      // accepted beside the known ones

	CORSOrigins []string
	IETFHeaders bool

	// EventsURL is the webhook of events (weir.Limiter.Notify); nil: they go to the log only.
	// EventsSecret is the file of the secret that signs them, which it needs.
	EventsURL    *url.URL
	EventsSecret string

	AccessLog       io.Writer // nil: none
	AccessLogFormat gateway.LogFormat
	AccessLogFields gateway.LogFields // the switchable ones; none by default
	Demo            bool              // send traffic to the sample backend

	// Traces are the settings of traces, without Version, Log and Trusts; nil: no traces.
	Traces *telemetry.TraceOptions

	Build telemetry.Build
	Log   *slog.Logger     // required
	Now   func() time.Time // nil means the machine's clock
}

// Callers are the settings of finding a request's client address.
type Callers struct {
	TrustedProxies []netip.Prefix
	ClientIPHeader string
	ProxyProtocol  bool
	IPv6Prefix     int
}

// Sessions are the settings of verifying sessions that another service issues. Without a key, none
// is verified.
type Sessions struct {
	KeyFiles         []string
	JWKS             *url.URL // nil: none
	Issuer, Audience string
	Leeway           time.Duration
}

// asksClients reports whether callers are asked for certificates.
func (c *Config) asksClients() bool { return c.Clients.CAFile != "" }

// secure reports whether the listeners have TLS.
func (c *Config) secure() bool { return len(c.Certificates) > 0 || len(c.ACME.Names) > 0 }
