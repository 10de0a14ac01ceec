package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/rls"
)

// serveRLS are the flags of the door for Envoy's rate limit service.
type serveRLS struct {
	listen       cli.ListenOrSocket // empty: none
	http         cli.OffOrListenAddr
	config       string
	xds          controlPlane // empty: none
	xdsNode      string
	xdsCA        string
	xdsCert      string
	xdsKey       string
	merge        cli.OnOff
	clientCA     string
	maxAge       cli.Span
	windows      cli.Choice
	countRefused cli.OnOff
	onFailure    cli.Choice
	headers      rlsHeaders
	metadata     cli.OnOff
	shadow       cli.OnOff
	quota        cli.OnOff
	near         fraction
	env          cli.OnOff
}

// The values of --rls-windows and of --rls-on-store-failure.
const (
	windowsFirst = "first-hit"
	windowsClock = "clock"
	failureLocal = "local"
	failureAllow = "allow"
	failureError = "error"
)

var rlsFailures = map[string]weir.FailureMode{failureLocal: weir.FailLocal, failureAllow: weir.FailAllow, failureError: weir.FailDeny}

func defaultServeRLS() serveRLS {
	return serveRLS{
		maxAge:    cli.Span{Duration: 24 * time.Hour, Min: time.Second, Max: 30 * 24 * time.Hour},
		windows:   cli.Choice{Value: windowsFirst, Of: []string{windowsFirst, windowsClock}},
		onFailure: cli.Choice{Value: failureLocal, Of: []string{failureLocal, failureAllow, failureError}},
		near:      0.8,
		xdsNode:   "default",
	}
}

func (f *serveRLS) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.listen, "rls", "the address, [HOST]:PORT or unix:/PATH, at which Envoy asks for rate limits over gRPC (envoy.service.ratelimit.v3), by the limits of --rls-config; without --upstream and --forward-auth nothing else is served, and --listen is not opened")
	flags.StringVar(&f.config, "rls-config", "", "`FILE` or directory with these limits, in the format of envoyproxy/ratelimit; a change takes effect within seconds; required with --rls, unless --rls-xds has them")
	flags.Var(&f.xds, "rls-xds", "the address, HOST:PORT, of a control plane that has these limits in place of --rls-config, such as Envoy Gateway (xDS)")
	flags.StringVar(&f.xdsNode, "rls-xds-node", f.xdsNode, "the `ID` by which the control plane knows this server")
	flags.StringVar(&f.xdsCA, "rls-xds-ca", "", "`FILE` with the certificates of the authorities that the control plane is verified by, in PEM; switches on TLS; a changed file is used for new connections, as are the next two")
	flags.StringVar(&f.xdsCert, "rls-xds-cert", "", "`FILE` with the certificate that the control plane is shown, in PEM; only with --rls-xds-ca")
	flags.StringVar(&f.xdsKey, "rls-xds-key", "", "`FILE` with its private key in PEM")
	flags.Var(&f.http, "rls-http", "the address of an HTTP listener in clear text for POST /json, the same service without gRPC, and GET /healthcheck; empty or off: none; only with --rls")
	flags.StringVar(&f.clientCA, "rls-client-ca", "", "`FILE` with the certificates of authorities, in PEM: Envoy must show a certificate from one of them at --rls; a changed file is read again; only with --tls-cert")
	flags.Var(&f.windows, "rls-windows", "when a window begins: first-hit is at its first request, clock is at full seconds, minutes, hours, … as in envoyproxy/ratelimit")
	cli.SwitchFlag(cmd, &f.countRefused, "rls-count-refused", "count the hits of refused requests too, as envoyproxy/ratelimit does; by default a refused request spends nothing")
	flags.Var(&f.onFailure, "rls-on-store-failure", "what happens while the store does not answer: local counts in this process, allow admits, error answers with a gRPC error, so that Envoy's failure_mode_deny decides")
	flags.Var(&f.headers, "rls-headers", "the fields that Envoy adds to responses: off, on for RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, or three names with commas; refusals also get X-Weir-Denial")
	cli.SwitchFlag(cmd, &f.metadata, "rls-metadata", "answer with dynamic metadata: the domain, the descriptors, and the metadata of limits that admit")
	cli.SwitchFlag(cmd, &f.shadow, "rls-shadow", "answer OK to every request of --rls, and still count")
	cli.SwitchFlag(cmd, &f.quota, "rls-quota", "treat every limit as if it had quota_mode: a request is refused if all of its limits are exceeded")
	cli.SwitchFlag(cmd, &f.merge, "rls-merge-domains", "allow several files with one domain, whose descriptors are joined")
	flags.Var(&f.near, "rls-near-ratio", "the part of a limit from which metrics count hits as near it, from 0 to 1")
	flags.Var(&f.maxAge, "rls-max-connection-age", "when a connection of Envoy is asked to be replaced")
	cli.SwitchFlag(cmd, &f.env, "rls-env", "also read the variables of envoyproxy/ratelimit, such as RUNTIME_ROOT, GRPC_PORT and REDIS_URL, for flags that are not given (see docs/envoy.md)")
	for _, name := range []string{"rls-config", "rls-client-ca", "rls-xds-ca", "rls-xds-cert", "rls-xds-key"} {
		cli.Must(cmd.MarkFlagFilename(name))
	}
	for name, of := range map[string][]string{
		"rls-windows": f.windows.Of, "rls-on-store-failure": f.onFailure.Of, "rls-headers": {"on", "off"}, "rls-http": {"off"},
		"rls-count-refused": {"on", "off"}, "rls-metadata": {"on", "off"}, "rls-shadow": {"on", "off"}, "rls-quota": {"on", "off"},
		"rls-merge-domains": {"on", "off"}, "rls-env": {"on", "off"},
	} {
		cli.Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(of, cobra.ShellCompDirectiveNoFileComp)))
	}
}

// settings returns what the flags describe.
func (f *serveRLS) settings() edge.RLS {
	r := edge.RLS{
		Listen: string(f.listen), HTTPListen: string(f.http), Config: f.config, MergeDomains: bool(f.merge), ClientCA: f.clientCA, MaxAge: f.maxAge.Duration,
		XDS: edge.XDS{Address: string(f.xds), Node: f.xdsNode, CAFile: f.xdsCA, CertFile: f.xdsCert, KeyFile: f.xdsKey},
		Service: rls.Options{
			CountRefused: bool(f.countRefused), OnStoreFailure: rlsFailures[f.onFailure.Value], Shadow: bool(f.shadow), Quota: bool(f.quota),
			Headers: f.headers.Headers, Metadata: bool(f.metadata), NearRatio: float32(f.near),
		},
	}
	if f.windows.Value == windowsClock {
		r.Service.Align = weir.AlignClock
	}
	return r
}

// answersEnvoyAlone reports whether the server has no door but that for Envoy's rate limit service.
func (f *serveFlags) answersEnvoyAlone() bool {
	return f.rls.listen != "" && f.forwardAuth.listen == "" && len(f.upstream) == 0
}

// document reads the policy to start with.
func (f *serveFlags) document(stdin io.Reader) (*live.Document, error) {
	if f.answersEnvoyAlone() {
		return edge.RLSDocument(f.rls.settings()), nil
	}
	return readDocument(stdin, f.policy)
}

// checkRLS rejects flags about Envoy's rate limit service that do not fit together.
func (f *serveFlags) checkRLS(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if f.rls.listen == "" {
		for _, name := range onlyWithRLS {
			if given(name) {
				return cli.UsageError("give --rls ADDRESS too, such as --rls :8081, or leave it out", "%s has no effect without --rls", cli.GivenAs(cmd, name))
			}
		}
		return nil
	}
	switch {
	case f.rls.config != "" && f.rls.xds != "":
		return cli.UsageError("give one of the two", "%s and %s both have the limits", cli.GivenAs(cmd, "rls-config"), cli.GivenAs(cmd, "rls-xds"))
	case f.rls.xds == "" && slices.ContainsFunc(onlyWithXDS, given):
		return cli.UsageError("give --rls-xds HOST:PORT too, or leave it out", "%s has no effect without --rls-xds", cli.GivenAs(cmd, onlyWithXDS[slices.IndexFunc(onlyWithXDS, given)]))
	case (f.rls.xdsCert == "") != (f.rls.xdsKey == "") || f.rls.xdsCert != "" && f.rls.xdsCA == "":
		return cli.UsageError("give --rls-xds-ca, --rls-xds-cert and --rls-xds-key, or the first one alone", "--rls-xds-cert and --rls-xds-key go together, and with --rls-xds-ca%s", cli.GivenIn(cmd, "rls-xds-ca", "rls-xds-cert", "rls-xds-key"))
	case f.rls.config == "" && f.rls.xds == "":
		return cli.UsageError("give --rls-config DIR, with the files of envoyproxy/ratelimit, or --rls-xds HOST:PORT", "%s needs the limits to answer by", cli.GivenAs(cmd, "rls"))
	case f.rls.clientCA != "" && !f.secure():
		return cli.UsageError("give --tls-cert and --tls-key too: clients show certificates over TLS alone", "%s has no effect without TLS", cli.GivenAs(cmd, "rls-client-ca"))
	case f.rls.clientCA != "" && strings.HasPrefix(string(f.rls.listen), "unix:"):
		return cli.UsageError("leave it out: the permissions of the socket decide who may ask", "%s has no effect at a Unix socket", cli.GivenAs(cmd, "rls-client-ca"))
	case !f.answersEnvoyAlone():
		return nil
	}
	for _, name := range slices.Concat(onlyWithBackend, []string{"policy", "candidate", "cors-origins", "ietf-headers", "trusted-proxies"}) {
		if given(name) {
			return cli.UsageError("give --upstream URL or --forward-auth ADDRESS to serve requests too, or leave it out", "%s has no effect with --rls alone, which has its limits from --rls-config", cli.GivenAs(cmd, name))
		}
	}
	return nil
}

// onlyWithXDS are the flags that have no effect without --rls-xds.
var onlyWithXDS = []string{"rls-xds-node", "rls-xds-ca", "rls-xds-cert", "rls-xds-key"}

// onlyWithRLS are the flags that have no effect without --rls.
var onlyWithRLS = []string{
	"rls-config", "rls-xds", "rls-xds-node", "rls-xds-ca", "rls-xds-cert", "rls-xds-key", "rls-http", "rls-client-ca", "rls-windows", "rls-count-refused", "rls-on-store-failure", "rls-headers", "rls-metadata", "rls-shadow", "rls-quota",
	"rls-merge-domains", "rls-near-ratio", "rls-max-connection-age",
}

// A controlPlane is the value of --rls-xds.
type controlPlane string

func (a *controlPlane) Set(value string) error {
	host, _, err := net.SplitHostPort(value)
	if value != "" && (err != nil || host == "" || new(cli.ListenAddr).Set(value) != nil) {
		return errors.New("expected HOST:PORT, such as envoy-gateway:18001")
	}
	*a = controlPlane(value)
	return nil
}

func (a *controlPlane) String() string { return string(*a) }
func (a *controlPlane) Type() string   { return "HOST:PORT" }

// rlsHeaders is the value of --rls-headers.
type rlsHeaders struct {
	rls.Headers
	text string
}

// theirHeaders are the names that envoyproxy/ratelimit has by default.
var theirHeaders = [...]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}

func (h *rlsHeaders) Set(value string) error {
	names := theirHeaders[:]
	switch value {
	case "", "off":
		*h = rlsHeaders{}
		return nil
	case "on":
	default:
		names = strings.Split(value, ",")
		if len(names) != len(theirHeaders) || slices.ContainsFunc(names, func(name string) bool { return !isFieldName(name) }) {
			return errors.New("expected on, off, or the names of three fields with commas, such as " + strings.Join(theirHeaders[:], ","))
		}
		if i := slices.IndexFunc(names, isProxysField); i >= 0 {
			return fmt.Errorf("%s belongs to HTTP or to the proxy: expected names of fields of their own, such as %s", names[i], strings.Join(theirHeaders[:], ","))
		}
	}
	*h = rlsHeaders{rls.Headers{On: true, Limit: names[0], Remaining: names[1], Reset: names[2], Denial: "X-Weir-Denial"}, value}
	return nil
}

// isProxysField reports whether a field frames or routes a message, so that a number in it would
// break responses.
func isProxysField(name string) bool {
	switch strings.ToLower(name) {
	case "connection", "content-encoding", "content-length", "content-type", "date", "host", "keep-alive", "location", "proxy-authenticate",
		"proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "x-weir-denial":
		return true
	}
	return false
}

func isFieldName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	})
}

func (h *rlsHeaders) String() string {
	if h.text == "" {
		return "off"
	}
	return h.text
}

func (h *rlsHeaders) Type() string { return "NAME,NAME,NAME" }
