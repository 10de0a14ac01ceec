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
	tracing    *telemetry.TraceOptions // what they and OpenTelemetry's variables come to; nil: no traces
}

// defaultServeFlags is the contract, the embedded store, the sample backend and ./weir-data.
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
	flags.Var(&f.listen, "listen", "where to listen")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`FILE` with the certificate chain, PEM: serve TLS and HTTP/2")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`FILE` with its private key, PEM")
	flags.Var(&f.admin, "admin", "where operators are answered, with a token; empty or off: nowhere")
	flags.Var(&f.adminHosts, "admin-hosts", "further names of this machine that may stand in Host there")
	flags.StringVar(&f.policy, "policy", "", "`FILE` with the policy (default the contract, see 'weir policy show')")
	flags.StringVar(&f.candidate, "candidate", "", "`FILE` with a policy to evaluate on the same requests, and never enforce")
	flags.Var(&f.upstream, "upstream", "the backend to protect, at one address or several, which share what comes; repeatable (default the built-in sample backend)")
	flags.Var(&f.engine, "engine", "what speaks HTTP/1.1 before --upstream: auto is Weir's own engine, but net/http where traces are on; std is net/http. HTTP/2 and the sample backend are net/http's in any case")
	flags.Var(&f.store, "store", "where counts are kept: memory, which on Linux is mapped from a file in --data and so outlives the process; or, shared by all nodes, redis://, rediss:// or redis-sentinel:// (see above)")
	flags.StringVar(&f.data, "data", f.data, "`DIR` of what must last, one server's; 'weir token' may use it beside that")
	flags.Var(&f.maxData, "max-data", "how much the sample backend may store in it, half of it for visitors, in B, KiB, MiB or GiB; not with --upstream")
	flags.Var(&f.memory, "memory", "bound of the counters in this process, in B, KiB, MiB or GiB, 1MiB at least")
	flags.Var(&f.storeDeadline, "store-deadline", "how long a store may take before its limiters' on_store_failure holds")
	flags.StringVar(&f.keySecret, "key-secret", "", "`FILE` with 32 bytes or more that key what callers are counted by, the same on all nodes (default made by the first, on the store); only with a shared --store")
	flags.Var(&f.trustedProxies, "trusted-proxies", "networks whose peers may say who the client is (default none)")
	flags.StringVar(&f.clientIPHeader, "client-ip-header", f.clientIPHeader, "the one `HEADER` they say it in: X-Forwarded-For, Forwarded or X-Real-IP")
	cli.SwitchFlag(cmd, &f.proxyProtocol, "proxy-protocol", "trusted proxies begin each connection with a PROXY protocol header")
	flags.Var(&f.ipv6Prefix, "ipv6-prefix", "how many bits of an IPv6 address are one caller")
	flags.Var(&f.jwtKeys, "jwt-key", "a key of visitor sessions minted elsewhere: a secret of 32 bytes or more, or a PEM public key; repeatable; only with --upstream")
	flags.Var(&f.jwks, "jwks", "where such keys are published; only with --upstream")
	flags.StringVar(&f.jwtIssuer, "jwt-issuer", "", "the `ISS` that sessions must name; only with --upstream")
	flags.StringVar(&f.jwtAudience, "jwt-audience", "", "the `AUD` that sessions must name; only with --upstream")
	flags.Var(&f.jwtLeeway, "jwt-leeway", "how far the clock that minted a session may be off; only with --upstream")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` of ids and hashes of API tokens minted elsewhere (default the tokens in --data); only with --upstream")
	flags.Var(&f.minRate, "min-rate", "how much a second a client must send of a body, or take of an answer, while Weir waits for it, or off; a slower upload is answered 408")
	flags.Var(&f.minRateGrace, "min-rate-grace", "for how long in all a client may be slower; time that rate above the least earns back")
	flags.Var(&f.maxUploadTime, "max-upload-time", "for how long in all the body of one request is waited for, or off; it also ends an upload that is fast, if it is large")
	flags.Var(&f.corsOrigins, "cors-origins", "web origins that may call the widget surface, or *")
	cli.SwitchFlag(cmd, &f.ietfHeaders, "ietf-headers", "also send RateLimit and RateLimit-Policy (IETF draft 10)")
	flags.Var(&f.logFormat, "log-format", "how log lines on standard error look")
	cli.SwitchFlag(cmd, &f.accessLog, "access-log", "a log line for each request: the path, never the query")
	cli.SwitchFlag(cmd, &f.demo, "demo", "visit itself, for a first look: some 45 requests a second to the sample backend, through the public listener like anybody")
	flags.Var(&f.traces, "traces", "the collector that traces are posted to, by OTLP over HTTP: http://127.0.0.1:4318 (default what OTEL_EXPORTER_OTLP_ENDPOINT says, else none)")
	flags.Var(&f.traceRatio, "trace-ratio", "the part of traces that begin here which is recorded; those of a caller are where it records them")

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
