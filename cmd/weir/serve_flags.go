package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/telemetry"
)

// serveFlags are the flags of weir serve, as given.
type serveFlags struct {
	configFile  string // empty: none
	settings    int    // in that file
	checkOnly   cli.OnOff
	printConfig cli.OnOff

	listen          cli.ListenOrSocket
	tlsCert, tlsKey cli.Paths
	clientCA        string // empty: clients are not asked for certificates
	clientCert      cli.Choice
	acme            serveACME
	forwardAuth     serveForwardAuth
	rls             serveRLS
	admin           cli.AdminAddr
	adminHosts      names
	metrics         cli.OffOrListenAddr
	metricsOpen     cli.OnOff

	policy    string // empty: the contract
	candidate string // empty: none
	upstream  upstreams
	engine    cli.Choice
	paths     cli.Choice
	methods   methods
	forwarded forwarded

	upstreamCA                string
	upstreamName              oneName
	upstreamCert, upstreamKey string

	store         edge.Store
	data          string
	maxData       cli.Size
	memory        cli.Size
	storeDeadline cli.Span
	leases        cli.Choice
	keySecret     string

	trustedProxies cli.Prefixes
	clientIPHeader string
	proxyProtocol  cli.OnOff
	ipv6Prefix     cli.Number

	jwtKeys     cli.Paths
	jwks        cli.Endpoint
	jwtIssuer   string
	jwtAudience string
	jwtLeeway   cli.Span
	tokenFile   string
	tokens      cli.OnOff

	tokenFrom    tokenPlaces
	tokenForward cli.Choice

	minRate       cli.MinRate
	minRateGrace  cli.Span
	maxUploadTime cli.SpanOrOff
	times         serveTimes

	corsOrigins  cli.Origins
	ietfHeaders  cli.OnOff
	logFormat    cli.Choice
	eventsURL    cli.Endpoint
	eventsSecret string
	accessLog    cli.OnOff
	logFields    logFields

	demo cli.OnOff

	traces     cli.Endpoint
	traceRatio fraction
	// tracing is what the flags or OpenTelemetry's variables describe; nil: no traces.
	tracing *telemetry.TraceOptions
}

// defaultServeFlags returns the flags of the contract, the embedded store, the sample backend and
// ./weir-data.
func defaultServeFlags() *serveFlags {
	return &serveFlags{
		listen:         ":8080",
		acme:           defaultServeACME(),
		forwardAuth:    defaultServeForwardAuth(),
		rls:            defaultServeRLS(),
		admin:          cli.AdminAddr{At: cli.DefaultAdmin},
		clientCert:     cli.Choice{Value: certRequired, Of: []string{certRequired, certOptional}},
		engine:         cli.Choice{Value: engineAuto, Of: []string{engineAuto, engineStd}},
		paths:          cli.Choice{Value: pathsStrict, Of: []string{pathsStrict, pathsAsSent}},
		forwarded:      gateway.DefaultForwarding(),
		data:           "weir-data",
		maxData:        1 << 30,
		memory:         256 << 20,
		leases:         cli.Choice{Value: leasesOff, Of: []string{leasesOff, leasesAuto}},
		storeDeadline:  cli.Span{Duration: 100 * time.Millisecond, Min: time.Millisecond, Max: time.Minute},
		clientIPHeader: "X-Forwarded-For",
		ipv6Prefix:     cli.Number{Value: 64, Min: 1, Max: 128},
		jwtLeeway:      cli.Span{Max: time.Hour},
		tokenForward:   cli.Choice{Value: string(edge.ForwardBearer), Of: edge.TokenForwards()},
		minRate:        500,
		minRateGrace:   cli.Span{Duration: 20 * time.Second, Min: time.Second, Max: 10 * time.Minute},
		maxUploadTime:  cli.SpanOrOff{Min: time.Second, Max: 30 * 24 * time.Hour},
		times:          defaultServeTimes(),
		logFormat:      cli.Choice{Value: "text", Of: []string{"text", "json"}},
		accessLog:      true,
		logFields:      logFields(gateway.AllLogFields),
		traceRatio:     1,
	}
}

func (f *serveFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.configFile, "config", "", "`FILE` with settings: the names of flags and their values, in YAML; a flag or its variable overrides one; read at start only (see above)")
	cli.SwitchFlag(cmd, &f.checkOnly, "check", "start nothing: report every problem of --config, of the flags and of the policy")
	cli.SwitchFlag(cmd, &f.printConfig, "print-config", "start nothing: print the settings in force, as a file for --config without passwords")
	cli.NoVariables(cmd, "check", "print-config")
	flags.Var(&f.listen, "listen", "the address to listen on, [HOST]:PORT or unix:/PATH, for HTTP/1.1 and HTTP/2 (by prior knowledge, or with --tls-cert or --acme by ALPN); without HOST every address")
	flags.Var(&f.tlsCert, "tls-cert", "a certificate chain in PEM; switches on TLS and HTTP/2; repeatable, each with its --tls-key: a client gets the one for the name that it asks for (SNI), else the first")
	flags.Var(&f.tlsKey, "tls-key", "its private key in PEM; repeatable, in the order of --tls-cert")
	flags.StringVar(&f.clientCA, "client-ca", "", "`FILE` with the certificates of authorities, in PEM: callers are asked for a certificate from one of them, for key source cert; a changed file is read again; not at --admin and --metrics; only with --tls-cert or --acme")
	flags.Var(&f.clientCert, "client-cert", "whether callers must have such a certificate: without one a connection is refused, or with optional a limiter that requires one answers 401; one that does not verify is always refused; only with --client-ca")
	f.acme.register(cmd)
	f.forwardAuth.register(cmd)
	f.rls.register(cmd)
	flags.Var(&f.admin, "admin", "the address of the admin listener, for operators with a token; empty or off: none")
	flags.Var(&f.adminHosts, "admin-hosts", "further host names that the admin listener accepts in Host")
	flags.Var(&f.metrics, "metrics", "the address of a listener for /metrics, /livez and /readyz alone, such as :9090 for a container; metrics need a token, see --metrics-open; empty or off: none, --admin serves them too")
	cli.SwitchFlag(cmd, &f.metricsOpen, "metrics-open", "--metrics needs no token: all who reach that address can read the names and figures of limiters and upstreams")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy, or contract for the built-in one, see 'weir policy show' (default contract before the sample backend; --upstream needs one)")
	flags.StringVar(&f.candidate, "candidate", "", "`FILE` with a policy that is evaluated on the same requests and never enforced")
	flags.Var(&f.upstream, "upstream", "the backend to protect, by its URL or as unix:/PATH; several addresses share its requests; HOST= before a URL begins the backend of that host, of all under a name (*.example.com=), or of all others (*=); repeatable (default the built-in sample backend)")
	flags.StringVar(&f.upstreamCA, "upstream-ca", "", "`FILE` with the certificates of the authorities that https upstreams are verified by, in PEM (default those of the system)")
	flags.Var(&f.upstreamName, "upstream-name", "the name that the certificates of all https upstreams must be for, and that they are asked for by SNI (default the host of each URL)")
	flags.StringVar(&f.upstreamCert, "upstream-cert", "", "`FILE` with the certificate chain, in PEM, that https upstreams are shown if they ask for one; a changed one is used for new connections")
	flags.StringVar(&f.upstreamKey, "upstream-key", "", "`FILE` with its private key in PEM")
	flags.Var(&f.engine, "engine", "what speaks HTTP before --upstream: auto is Weir's own engine, or net/http if traces are on; std is net/http, which the sample backend always uses")
	flags.Var(&f.paths, "paths", "the form of a path that the upstream gets: strict is the canonical one, and a path without one is answered 400; as-sent is byte for byte, for backends whose paths hold %2F, // or %25, and all spellings still share one budget; as-sent is only with --upstream")
	flags.Var(&f.methods, "methods", "methods that are accepted beside GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS, such as PROPFIND,PURGE; any other is answered 405")
	flags.Var(&f.forwarded, "forwarded", "the fields by which the upstream learns who is calling, of x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-real-ip, forwarded (RFC 7239), client-cert and client-cert-chain (RFC 9440), or none; Weir writes these, and removes what a caller sends under any of these names; only with --upstream")
	flags.Var(&f.store, "store", "where counts are kept: memory (on Linux a mapped file in --data, which survives a restart), or a store that all nodes share: redis://, rediss:// or redis-sentinel:// (see above)")
	flags.StringVar(&f.data, "data", f.data, "`DIR` for everything that must survive a restart: counts, rows, generated keys; only one server can use it, and 'weir token' at the same time")
	flags.Var(&f.maxData, "max-data", "maximum storage of the sample backend in --data, half of it for visitors, in B, KiB, MiB or GiB; when it is full, writes are answered 507, while reads and deletes continue; not with --upstream")
	flags.Var(&f.memory, "memory", "memory for the counts in this process, in B, KiB, MiB or GiB, at least 1MiB; a window takes about 25 bytes. When it is full, new callers share budgets: some may be refused early, but none gets more than its limit")
	flags.Var(&f.storeDeadline, "store-deadline", "how long the store may take to answer before limiters follow their on_store_failure")
	flags.Var(&f.leases, "leases", "whether this node charges units of busy windows before it gives them out, so that most of their requests need no round trip: auto or off; no limit is exceeded, but a request can be refused while other nodes hold units, for about a second; only with a shared --store")
	flags.StringVar(&f.keySecret, "key-secret", "", "`FILE` with a secret of 32 bytes or more that hashes callers in the store, the same on all nodes (default: the first node makes one and keeps it in the store); only with a shared --store")
	flags.Var(&f.trustedProxies, "trusted-proxies", "networks of the proxies that are trusted to report the client's address (default none)")
	flags.StringVar(&f.clientIPHeader, "client-ip-header", f.clientIPHeader, "the `HEADER` in which they report it: X-Forwarded-For, Forwarded or X-Real-IP")
	cli.SwitchFlag(cmd, &f.proxyProtocol, "proxy-protocol", "trusted proxies begin each connection with a PROXY protocol header")
	flags.Var(&f.ipv6Prefix, "ipv6-prefix", "how many bits of an IPv6 address identify a caller")
	flags.Var(&f.jwtKeys, "jwt-key", "a key that verifies the sessions of another service: a secret of 32 bytes or more, or a public key in PEM; repeatable; only with --upstream or --forward-auth")
	flags.Var(&f.jwks, "jwks", "the URL of a key set (JWKS) with such keys; only with --upstream or --forward-auth")
	flags.StringVar(&f.jwtIssuer, "jwt-issuer", "", "the `ISS` that sessions must have; only with --upstream or --forward-auth")
	flags.StringVar(&f.jwtAudience, "jwt-audience", "", "the `AUD` that sessions must have; only with --upstream or --forward-auth")
	flags.Var(&f.jwtLeeway, "jwt-leeway", "how far the clock of the issuing service may be off; only with --upstream or --forward-auth")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with a line for each API token or key of another service: ID SHA256 [workspace=NAME] [plan=NAME] [expires=TIME]; 'weir token hash' prints one; only with --upstream or --forward-auth")
	cli.SwitchFlag(cmd, &f.tokens, "tokens", "verify API tokens: those of 'weir token create' in --data; only with --upstream or --forward-auth")
	flags.Var(&f.tokenFrom, "token-from", "where requests have their API token: bearer (default), basic (the user name), header:NAME or query:NAME; repeatable; two different tokens are none; only with --upstream or --forward-auth")
	flags.Var(&f.tokenForward, "token-forward", "which of these places the upstream gets: only bearer, all, or none (of a bearer place no session either); only with --upstream")
	flags.Var(&f.minRate, "min-rate", "minimum number of bytes a second that a client sends of a body, or reads of an answer; off: none; a slower upload is answered 408")
	flags.Var(&f.minRateGrace, "min-rate-grace", "how long a client may be slower than --min-rate in total; it earns time back while it is faster")
	flags.Var(&f.maxUploadTime, "max-upload-time", "maximum time for the body of one request, or off; a large upload can exceed it at any speed")
	f.times.register(cmd)
	flags.Var(&f.corsOrigins, "cors-origins", "web origins whose scripts may call the API, or *: their preflights are answered, and they may read every answer that the backend does not restrict itself; without it, the contract's widget surface is for any origin, and no other API is Weir's to open")
	cli.SwitchFlag(cmd, &f.ietfHeaders, "ietf-headers", "also send RateLimit and RateLimit-Policy (IETF draft 10)")
	flags.Var(&f.eventsURL, "events-url", "the webhook that gets the events of limiters with notify, signed with --events-secret; in WEIR_EVENTS_URL it is kept out of ps")
	flags.StringVar(&f.eventsSecret, "events-secret", "", "`FILE` with the secret that signs events: whsec_ and the base64 of 24 to 64 bytes; only with --events-url")
	flags.Var(&f.logFormat, "log-format", "the format of log lines on standard error")
	cli.SwitchFlag(cmd, &f.accessLog, "access-log", "write a log line for each request, with the path but never the query; a caller, and an agent that a limiter counts by, appear as keyed hashes")
	flags.Var(&f.logFields, "access-log-fields", "which of the fields that can be switched off these lines have, with commas, or none")
	cli.SwitchFlag(cmd, &f.demo, "demo", "for a first look, send about 45 requests a second to the sample backend through the public listener; every limiter counts, and some refuse")
	flags.Var(&f.traces, "traces", "the collector of traces, by OTLP over HTTP, such as http://127.0.0.1:4318 (default OTEL_EXPORTER_OTLP_ENDPOINT, if it is set)")
	flags.Var(&f.traceRatio, "trace-ratio", "the part of new traces that is recorded, from 0 to 1; a trace of a trusted caller is recorded if that caller records it")

	file := func(names ...string) {
		for _, name := range names {
			cli.Must(cmd.MarkFlagFilename(name))
		}
	}
	file("config", "tls-cert", "tls-key", "client-ca", "upstream-ca", "upstream-cert", "upstream-key", "policy", "candidate", "jwt-key", "token-file", "key-secret", "events-secret")
	cli.Must(cmd.MarkFlagDirname("data"))
	words := func(name string, of ...string) {
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)))
	}
	cli.Must(cmd.RegisterFlagCompletionFunc("store", cobra.FixedCompletions(
		edge.StoreForms(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)))
	words("client-ip-header", clientIPHeaders...)
	words("client-cert", f.clientCert.Of...)
	words("engine", f.engine.Of...)
	words("leases", f.leases.Of...)
	words("paths", f.paths.Of...)
	words("forwarded", append(gateway.ForwardingNames(), gateway.NoForwarding)...)
	words("token-from", identity.PlaceForms()...)
	words("token-forward", f.tokenForward.Of...)
	words("log-format", f.logFormat.Of...)
	words("access-log-fields", append(gateway.LogFieldNames(), "none")...)
	words("min-rate", "off")
	words("max-upload-time", "off")
	words("cors-origins", "*")
	for _, name := range []string{"proxy-protocol", "tokens", "ietf-headers", "access-log", "demo", "metrics-open", "check", "print-config"} {
		words(name, "on", "off")
	}
}

var clientIPHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"}
