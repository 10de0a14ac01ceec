package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/telemetry"
)

// serveFlags are the flags of weir serve, as given.
type serveFlags struct {
	listen          cli.ListenAddr
	tlsCert, tlsKey string
	admin           cli.AdminAddr
	adminHosts      names

	policy    string // empty: the contract
	candidate string // empty: none
	upstream  upstreams
	engine    cli.Choice

	store         edge.Store
	data          string
	maxData       cli.Size
	memory        cli.Size
	storeDeadline cli.Span
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

	minRate       cli.MinRate
	minRateGrace  cli.Span
	maxUploadTime cli.UploadTime

	corsOrigins cli.Origins
	ietfHeaders cli.OnOff
	logFormat   cli.Choice
	accessLog   cli.OnOff

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
		admin:          cli.AdminAddr{At: cli.DefaultAdmin},
		engine:         cli.Choice{Value: engineAuto, Of: []string{engineAuto, engineStd}},
		data:           "weir-data",
		maxData:        1 << 30,
		memory:         256 << 20,
		storeDeadline:  cli.Span{Duration: 100 * time.Millisecond, Min: time.Millisecond, Max: time.Minute},
		clientIPHeader: "X-Forwarded-For",
		ipv6Prefix:     cli.Number{Value: 64, Min: 1, Max: 128},
		jwtLeeway:      cli.Span{Max: time.Hour},
		minRate:        500,
		minRateGrace:   cli.Span{Duration: 20 * time.Second, Min: time.Second, Max: 10 * time.Minute},
		corsOrigins:    cli.Origins{"*"},
		logFormat:      cli.Choice{Value: "text", Of: []string{"text", "json"}},
		accessLog:      true,
		traceRatio:     1,
	}
}

func (f *serveFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(&f.listen, "listen", "the address to listen on, for HTTP/1.1 and HTTP/2 (by prior knowledge, or with --tls-cert by ALPN)")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`FILE` with the certificate chain in PEM; switches on TLS and HTTP/2")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`FILE` with its private key in PEM")
	flags.Var(&f.admin, "admin", "the address of the admin listener, for operators with a token; empty or off: none")
	flags.Var(&f.adminHosts, "admin-hosts", "further names of this machine that Host may have there")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy (default the contract, see 'weir policy show')")
	flags.StringVar(&f.candidate, "candidate", "", "`FILE` with a policy that is evaluated on the same requests and never enforced")
	flags.Var(&f.upstream, "upstream", "the backend to protect; several addresses share its requests; repeatable (default the built-in sample backend)")
	flags.Var(&f.engine, "engine", "the HTTP/1.1 engine before --upstream: auto is Weir's own, or net/http if traces are on; std is net/http. HTTP/2 and the sample backend always use net/http")
	flags.Var(&f.store, "store", "where counts are kept: memory, which on Linux is a mapped file in --data and survives a restart; or, shared by all nodes, redis://, rediss:// or redis-sentinel:// (see above)")
	flags.StringVar(&f.data, "data", f.data, "`DIR` of everything that must survive a restart: counts, rows, generated keys; it belongs to one server, and 'weir token' may use it at the same time")
	flags.Var(&f.maxData, "max-data", "how much the sample backend may store there, half of it for visitors, in B, KiB, MiB or GiB; beyond that writes are answered 507, and reads and deletes go on; not with --upstream")
	flags.Var(&f.memory, "memory", "memory for the counts in this process, in B, KiB, MiB or GiB, at least 1MiB; a window takes about 25 bytes. When it is full, new callers share budgets: some are refused early, and none gets more than its limit")
	flags.Var(&f.storeDeadline, "store-deadline", "how long the store may take to answer before limiters follow their on_store_failure")
	flags.StringVar(&f.keySecret, "key-secret", "", "`FILE` with a secret of 32 bytes or more that hashes callers in the store, the same on all nodes (default: the first node makes one and keeps it in the store); only with a shared --store")
	flags.Var(&f.trustedProxies, "trusted-proxies", "networks of proxies whose client address is trusted (default none)")
	flags.StringVar(&f.clientIPHeader, "client-ip-header", f.clientIPHeader, "the `HEADER` with that address: X-Forwarded-For, Forwarded or X-Real-IP")
	cli.SwitchFlag(cmd, &f.proxyProtocol, "proxy-protocol", "trusted proxies begin each connection with a PROXY protocol header")
	flags.Var(&f.ipv6Prefix, "ipv6-prefix", "how many bits of an IPv6 address identify a caller")
	flags.Var(&f.jwtKeys, "jwt-key", "a key of sessions that another service issues: a secret of 32 bytes or more, or a public key in PEM; repeatable; only with --upstream")
	flags.Var(&f.jwks, "jwks", "the URL of a key set (JWKS) with such keys; only with --upstream")
	flags.StringVar(&f.jwtIssuer, "jwt-issuer", "", "the `ISS` that sessions must have; only with --upstream")
	flags.StringVar(&f.jwtAudience, "jwt-audience", "", "the `AUD` that sessions must have; only with --upstream")
	flags.Var(&f.jwtLeeway, "jwt-leeway", "how far the clock of the issuing service may be off; only with --upstream")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with ids and hashes of API tokens that another service issues (default the tokens in --data); only with --upstream")
	flags.Var(&f.minRate, "min-rate", "how many bytes a second a client must send of a body, or read of an answer, or off; a slower upload is answered 408")
	flags.Var(&f.minRateGrace, "min-rate-grace", "how long a client may be slower in total; a client that is faster earns time back")
	flags.Var(&f.maxUploadTime, "max-upload-time", "how long the body of one request may take in total, or off; it also ends a fast upload if that is large")
	flags.Var(&f.corsOrigins, "cors-origins", "web origins that may call the widget surface, or *")
	cli.SwitchFlag(cmd, &f.ietfHeaders, "ietf-headers", "also send RateLimit and RateLimit-Policy (IETF draft 10)")
	flags.Var(&f.logFormat, "log-format", "the format of log lines on standard error")
	cli.SwitchFlag(cmd, &f.accessLog, "access-log", "a log line for each request: the path, never the query; an agent that a limiter counted by appears as a keyed hash")
	cli.SwitchFlag(cmd, &f.demo, "demo", "send traffic to itself, for a first look: about 45 requests a second to the sample backend through the public listener, so that every limiter counts and some refuse")
	flags.Var(&f.traces, "traces", "the collector of traces, by OTLP over HTTP, such as http://127.0.0.1:4318 (default OTEL_EXPORTER_OTLP_ENDPOINT, if it is set)")
	flags.Var(&f.traceRatio, "trace-ratio", "the part of the traces that begin here which is recorded; a trace of a trusted caller is recorded if that caller records it")

	file := func(names ...string) {
		for _, name := range names {
			cli.Must(cmd.MarkFlagFilename(name))
		}
	}
	file("tls-cert", "tls-key", "policy", "candidate", "jwt-key", "token-file", "key-secret")
	cli.Must(cmd.MarkFlagDirname("data"))
	words := func(name string, of ...string) {
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)))
	}
	cli.Must(cmd.RegisterFlagCompletionFunc("store", cobra.FixedCompletions(
		edge.StoreForms(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)))
	words("client-ip-header", clientIPHeaders...)
	words("engine", f.engine.Of...)
	words("log-format", f.logFormat.Of...)
	words("min-rate", "off")
	words("max-upload-time", "off")
	words("cors-origins", "*")
	for _, name := range []string{"proxy-protocol", "ietf-headers", "access-log", "demo"} {
		words(name, "on", "off")
	}
}

var clientIPHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"}
