package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
	"github.com/weirlimit/weir/internal/gateway"
	reports "github.com/weirlimit/weir/internal/replay/report"
	"github.com/weirlimit/weir/internal/rls/config"
	"github.com/weirlimit/weir/memstore"
)

// onlyWithUpstream are the flags of credentials that another service issues: the sample backend
// issues its own.
var onlyWithUpstream = []string{"jwt-key", "jwks", "jwt-issuer", "jwt-audience", "jwt-leeway", "token-file", "tokens", "token-from", "token-forward"}

// check returns an error if the flags do not fit together.
func (f *serveFlags) check(cmd *cobra.Command) error {
	if all := f.misfits(cmd); len(all) > 0 {
		return all[0]
	}
	return nil
}

// misfits returns everything that does not fit together.
func (f *serveFlags) misfits(cmd *cobra.Command) (all []error) {
	for _, check := range []func(*cobra.Command) error{
		f.checkListeners, f.checkSocket, f.checkTLS, f.checkClients, f.checkACME, f.checkRedirect, f.checkMemory, f.checkEvents, f.checkCandidate, f.checkDemo, f.checkStore,
		f.checkBackend, f.checkSites, f.checkTimes, f.checkProxies, f.checkSessions, f.checkTokens, f.checkUpstreamTLS, f.checkPolicy, f.checkForwardAuth, f.checkRLS,
	} {
		if err := check(cmd); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// checkAll reports everything that would keep a server from its start without being opened: flags
// that do not fit together, and the problems of the policy and the candidate. The file of --config
// has been read.
func (f *serveFlags) checkAll(cmd *cobra.Command, env cli.Environment) error {
	if f.printConfig {
		return cli.UsageError("give one of the two: --print-config checks the settings, too", "--check and --print-config both start nothing")
	}
	problems := append(f.misfits(cmd), f.unopenable()...)
	if err := f.findTracing(cmd, env); err != nil {
		problems = append(problems, err)
	}
	done, err := f.checkFiles(cmd, problems)
	if err != nil {
		return err
	}
	if f.configFile != "" {
		done = append([]string{fmt.Sprintf("%s: valid, %s", f.configFile, cli.Count(f.settings, "setting"))}, done...)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(append(done, "the settings are valid and fit together; keys, tokens and certificates were not read"), "\n"))
	return err
}

// checkFiles reads the policy, the candidate and the configuration of --rls. It reports their
// problems and those that were found before, and returns what it read.
func (f *serveFlags) checkFiles(cmd *cobra.Command, problems []error) (done []string, err error) {
	stderr, fit := cmd.ErrOrStderr(), len(problems) == 0
	for i, name := range []string{f.policy, f.candidate} {
		if name == "" {
			continue
		}
		file, err := readPolicy(cmd.InOrStdin(), name)
		if err != nil {
			problems = append(problems, printProblems(stderr, err))
			continue
		}
		for _, w := range file.Warnings {
			printProblem(stderr, "warning", w)
		}
		if fit { // otherwise there is no server to compare the policy with
			f.printUnfit(stderr, file.Policy, i == 0)
		}
		if name != builtInPolicy {
			done = append(done, fmt.Sprintf("%s: valid, %s", name, sizeOf(file.Policy)))
		}
	}
	if f.rls.listen != "" && f.rls.config != "" {
		read, err := config.Read(f.rls.config, config.Options{Merge: bool(f.rls.merge)})
		if err != nil {
			problems = append(problems, cli.Fail(err, "--rls-config needs the format of envoyproxy/ratelimit: see docs/envoy.md"))
		} else {
			done = append(done, fmt.Sprintf("%s: valid, %s with %s", f.rls.config, cli.Count(read.Domains(), "domain"), cli.Count(read.Limits, "limit")))
		}
	}
	for _, err := range problems {
		cli.Report(stderr, cmd, err)
	}
	if len(problems) > 0 {
		return nil, cli.Fail(cli.ErrReported, "")
	}
	return done, nil
}

// printUnfit prints the warnings that a start logs about a policy in force, or a candidate, and the
// other settings.
func (f *serveFlags) printUnfit(w io.Writer, p weir.Policy, inForce bool) {
	c := f.config(nil, slog.New(slog.DiscardHandler), io.Discard)
	warnings := edge.CandidateWarnings(p, &c)
	if inForce {
		warnings = edge.PolicyWarnings(p, &c)
		if f.eventsURL.URL != nil {
			warnings = append(warnings, edge.EventWarnings(p)...)
		}
	}
	for _, warning := range warnings {
		var about strings.Builder
		for i := 0; i+1 < len(warning.Args); i += 2 {
			fmt.Fprintf(&about, ", %v %v", warning.Args[i], warning.Args[i+1])
		}
		fmt.Fprintf(w, "warning: %s (%s)\n", warning.Message, reports.Shown(strings.TrimPrefix(about.String(), ", "), 1000))
	}
}

// unopenable returns what a start reports when it opens its listeners, as far as that is known
// without opening them. A service manager that passes sockets is not known here.
func (f *serveFlags) unopenable() (all []error) {
	if err := edge.CheckSelfProxy(f.upstream, edge.Listener{Flag: "--listen", At: string(f.listen)},
		edge.Listener{Flag: "--admin", At: f.admin.At}, edge.Listener{Flag: "--metrics", At: string(f.metrics)},
		edge.Listener{Flag: "--redirect", At: string(f.acme.redirect)}); err != nil {
		all = append(all, err)
	}
	if bool(f.metricsOpen) && f.metrics == "" {
		all = append(all, edge.ErrMetricsOpen)
	}
	return all
}

// seeServeHelp is the hint where there is no better one.
const seeServeHelp = "see 'weir serve --help'"

func (f *serveFlags) checkTLS(cmd *cobra.Command) error {
	if len(f.tlsCert) != len(f.tlsKey) {
		return cli.UsageError("give both, in the same order for several certificates, or neither",
			"--tls-cert and --tls-key go together: %s and %s are given%s",
			cli.Count(len(f.tlsCert), "certificate"), cli.Count(len(f.tlsKey), "key"), cli.GivenIn(cmd, "tls-cert", "tls-key"))
	}
	return nil
}

// checkClients rejects flags about certificates of clients that have no effect.
func (f *serveFlags) checkClients(cmd *cobra.Command) error {
	switch {
	case f.clientCA == "" && cmd.Flags().Changed("client-cert"):
		return cli.UsageError("give --client-ca FILE too, with the authorities that the certificates must come from", "%s has no effect without --client-ca", cli.GivenAs(cmd, "client-cert"))
	case f.clientCA != "" && !f.secure():
		return cli.UsageError("give --tls-cert and --tls-key, or --acme, too: clients show certificates over TLS alone", "%s has no effect without TLS", cli.GivenAs(cmd, "client-ca"))
	case f.clientCA == "" && slices.ContainsFunc(f.forwarded, func(name string) bool { return strings.HasPrefix(name, "client-cert") }):
		return cli.UsageError("give --client-ca FILE too, or leave client-cert and client-cert-chain out", "%s names a certificate that callers are not asked for", cli.GivenAs(cmd, "forwarded"))
	}
	return nil
}

func (f *serveFlags) checkMemory(cmd *cobra.Command) error {
	if f.memory < memstore.MinMemory {
		minimum := cli.Size(memstore.MinMemory)
		return cli.UsageError("such as --memory 256MiB, the default: room for ten million callers at a time",
			"%s %v is too little to count in: expected %v or more", cli.GivenAs(cmd, "memory"), &f.memory, &minimum)
	}
	return nil
}

func (f *serveFlags) checkEvents(cmd *cobra.Command) error {
	if (f.eventsURL.URL == nil) != (f.eventsSecret == "") {
		return cli.UsageError("make a secret with: echo whsec_$(openssl rand -base64 32); give both or neither",
			"--events-url and --events-secret go together%s", cli.GivenIn(cmd, "events-url", "events-secret"))
	}
	return nil
}

// checkStore rejects a store and a directory that do not fit.
func (f *serveFlags) checkStore(cmd *cobra.Command) error {
	if f.keySecret != "" && !f.store.Shared() {
		return cli.UsageError("give --store redis://HOST:PORT too, or leave it out", "%s has no effect without a shared store", cli.GivenAs(cmd, "key-secret"))
	}
	if f.leases.Value != leasesOff && !f.store.Shared() {
		return cli.UsageError("give --store redis://HOST:PORT too, or leave it out", "%s has no effect without a shared store", cli.GivenAs(cmd, "leases"))
	}
	if f.data == "" {
		return cli.UsageError(seeServeHelp, "%s must name a directory", cli.GivenAs(cmd, "data"))
	}
	return nil
}

// checkBackend rejects flags that are for another backend.
func (f *serveFlags) checkBackend(cmd *cobra.Command) error {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	if len(f.upstream) > 0 && given("max-data") {
		return cli.UsageError("leave it out: Weir does not bound what your own backend stores",
			"%s is only for the sample backend, and --upstream replaces it", cli.GivenAs(cmd, "max-data"))
	}
	if len(f.upstream) == 0 && f.forwardAuth.listen == "" {
		for _, name := range []string{"paths", "forwarded"} {
			if given(name) && (name != "paths" || f.paths.Value != pathsStrict) {
				return cli.UsageError("it is about what a backend of your own gets; give --upstream URL, or leave it out",
					"%s is only for --upstream", cli.GivenAs(cmd, name))
			}
		}
		for _, name := range onlyWithUpstream {
			if given(name) {
				return cli.UsageError("the sample backend issues its own sessions and tokens; give --upstream URL, or leave it out",
					"%s is only for --upstream", cli.GivenAs(cmd, name))
			}
		}
	}
	return nil
}

// checkSites rejects upstreams that no server can have.
func (f *serveFlags) checkSites(*cobra.Command) error {
	for _, site := range f.upstream {
		if err := gateway.CheckSite(site); err != nil {
			return cli.UsageError(seeServeHelp, "%w", err)
		}
	}
	return nil
}

// checkProxies rejects flags about proxies that have no effect.
func (f *serveFlags) checkProxies(cmd *cobra.Command) error {
	if !slices.ContainsFunc(clientIPHeaders, func(h string) bool { return h == f.clientIPHeader }) {
		return cli.UsageError(seeServeHelp, "%s %q: expected X-Forwarded-For, Forwarded or X-Real-IP", cli.GivenAs(cmd, "client-ip-header"), f.clientIPHeader)
	}
	if len(f.trustedProxies) > 0 {
		return nil
	}
	for _, name := range []string{"client-ip-header", "proxy-protocol"} {
		if cmd.Flags().Changed(name) && (name != "proxy-protocol" || bool(f.proxyProtocol)) {
			return cli.UsageError("give --trusted-proxies too: by default no peer is trusted", "%s has no effect without --trusted-proxies", cli.GivenAs(cmd, name))
		}
	}
	return nil
}

// checkSessions rejects flags about sessions that have no effect.
func (f *serveFlags) checkSessions(cmd *cobra.Command) error {
	if f.jwks.URL != nil {
		return edge.CheckKeySet(f.jwks.URL)
	}
	if len(f.jwtKeys) > 0 {
		return nil
	}
	for _, name := range []string{"jwt-issuer", "jwt-audience", "jwt-leeway"} {
		if cmd.Flags().Changed(name) {
			return cli.UsageError("give --jwt-key FILE or --jwks URL too", "%s has no effect without a key to verify sessions with", cli.GivenAs(cmd, name))
		}
	}
	return nil
}

func (f *serveFlags) checkPolicy(cmd *cobra.Command) error {
	if len(f.upstream) > 0 && f.policy == "" {
		return cli.UsageError("write one for your API, see 'weir policy --help'; --policy contract is the built-in one, for the Widget and Bulk-Sync API",
			"%s needs --policy", cli.GivenAs(cmd, "upstream"))
	}
	if f.forwardsNothing() && f.forwardAuth.listen != "" && f.policy == "" {
		return cli.UsageError("write one for your API, see 'weir policy --help'; --policy contract is the built-in one, for the Widget and Bulk-Sync API",
			"%s needs --policy", cli.GivenAs(cmd, "forward-auth"))
	}
	return nil
}

// checkSocket rejects a Unix socket as the listener if nothing reports the addresses of callers.
func (f *serveFlags) checkSocket(*cobra.Command) error {
	if !strings.HasPrefix(string(f.listen), "unix:") || f.trustsPeer(edge.SocketPeer) {
		return nil
	}
	return cli.UsageError(fmt.Sprintf("give --trusted-proxies %v too: the proxy in front then reports them in --client-ip-header, or with --proxy-protocol", edge.SocketPeer),
		"--listen %s needs a trusted proxy: the peers of a Unix socket have no addresses to count by, and stand for %v", f.listen, edge.SocketPeer)
}

// checkUpstreamTLS rejects flags about TLS with upstreams that have no effect.
func (f *serveFlags) checkUpstreamTLS(cmd *cobra.Command) error {
	if (f.upstreamCert == "") != (f.upstreamKey == "") {
		return cli.UsageError("give both or neither", "--upstream-cert and --upstream-key go together%s", cli.GivenIn(cmd, "upstream-cert", "upstream-key"))
	}
	for _, site := range f.upstream {
		if site.Upstreams[0].Scheme == "https" {
			return nil
		}
	}
	for _, name := range []string{"upstream-ca", "upstream-name", "upstream-cert"} {
		if cmd.Flags().Changed(name) {
			return cli.UsageError("give --upstream https://…, or leave it out", "%s has no effect without an https upstream", cli.GivenAs(cmd, name))
		}
	}
	return nil
}

// checkTokens rejects flags about API tokens that do not fit together.
func (f *serveFlags) checkTokens(cmd *cobra.Command) error {
	if f.tokenFile != "" && bool(f.tokens) {
		return cli.UsageError("--token-file is for tokens that another service issues, --tokens for those of 'weir token create'",
			"give either %s or %s", cli.GivenAs(cmd, "token-file"), cli.GivenAs(cmd, "tokens"))
	}
	if f.tokenFile != "" || bool(f.tokens) {
		return nil
	}
	for _, name := range []string{"token-from", "token-forward"} {
		if cmd.Flags().Changed(name) {
			return cli.UsageError("give --token-file FILE or --tokens too", "%s has no effect without tokens to verify", cli.GivenAs(cmd, name))
		}
	}
	return nil
}

// checkListeners rejects two listeners at one address.
func (f *serveFlags) checkListeners(cmd *cobra.Command) error {
	type listener struct{ flag, at, what, hint string }
	all := []listener{
		{"listen", string(f.listen), "serves the public", ""},
		{"admin", f.admin.At, "serves operators", "give the admin listener a port of its own, such as --admin 127.0.0.1:8081; --admin '' does without"},
		{"metrics", string(f.metrics), "serves metrics", "give it a port of its own, such as --metrics :9090, or leave it out: --admin serves metrics too"},
		{"forward-auth", string(f.forwardAuth.listen), "answers proxies", "give it a port of its own, such as --forward-auth 127.0.0.1:9000"},
		{"rls", string(f.rls.listen), "answers Envoy", "give it a port of its own, such as --rls :8083"},
		{"rls-http", string(f.rls.http), "answers Envoy over HTTP", "give it a port of its own, such as --rls-http :8082"},
		{"redirect", string(f.acme.redirect), "redirects to https", "give it a port of its own, such as --redirect :80"},
	}
	if f.forwardsNothing() {
		all = all[1:] // --listen is not opened
	}
	for i, one := range all {
		for _, other := range all[:i] {
			if sameAddress(one.at, other.at) {
				return cli.UsageError(one.hint, "--%s %s is where --%s %s %s%s", one.flag, one.at, other.flag, other.at, other.what, cli.GivenIn(cmd, one.flag, other.flag))
			}
		}
	}
	return nil
}

// sameAddress reports whether two addresses, HOST:PORT or empty, cannot both be listened on.
func sameAddress(one, other string) bool {
	host, port, _ := net.SplitHostPort(one)
	otherHost, otherPort, _ := net.SplitHostPort(other)
	number := func(port string) uint64 { n, _ := strconv.ParseUint(port, 10, 16); return n }
	if number(port) == 0 || number(port) != number(otherPort) {
		return false
	}
	return everywhere(host) || everywhere(otherHost) || host == otherHost
}

// everywhere reports whether a host means all addresses of this machine.
func everywhere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// checkCandidate rejects a candidate that could not be counted, or not be read again.
func (f *serveFlags) checkCandidate(cmd *cobra.Command) error {
	if f.candidate == "" {
		return nil
	}
	if minimum := cli.Size(edge.CandidateShare * memstore.MinMemory); f.memory < minimum {
		return cli.UsageError(fmt.Sprintf("such as --memory %v, or leave the candidate out", &minimum),
			"%s counts in a tenth of %s, and %v leaves it too little: expected %v or more", cli.GivenAs(cmd, "candidate"), cli.GivenAs(cmd, "memory"), &f.memory, &minimum)
	}
	if f.candidate == "-" {
		return cli.UsageError("put it in a file; it is read again when that changes", "%s must be a file, not standard input", cli.GivenAs(cmd, "candidate"))
	}
	return nil
}

// checkDemo rejects what does not fit with --demo. It switches the access log off unless a flag has
// set it: 45 lines a second hide all others.
func (f *serveFlags) checkDemo(cmd *cobra.Command) error {
	if !bool(f.demo) {
		return nil
	}
	if len(f.upstream) > 0 {
		return cli.UsageError("leave --upstream out, for the sample backend", "--demo sends traffic to the sample backend, never to one of yours")
	}
	if strings.HasPrefix(string(f.listen), "unix:") {
		return cli.UsageError("leave out --demo, or give --listen a port", "--demo cannot use a Unix socket")
	}
	if f.secure() || bool(f.proxyProtocol) {
		return cli.UsageError("leave out --tls-cert, --tls-key, --acme and --proxy-protocol", "--demo needs a listener without TLS and without the PROXY protocol")
	}
	if !cmd.Flags().Changed("access-log") {
		f.accessLog = false
	}
	return nil
}
