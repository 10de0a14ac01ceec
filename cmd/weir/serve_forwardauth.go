package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/check"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/edge"
)

// serveForwardAuth are the flags of the door for proxies that ask about each request.
type serveForwardAuth struct {
	listen cli.ListenOrSocket // empty: none
	proxy  cli.Choice
	peers  cli.Prefixes
}

func defaultServeForwardAuth() serveForwardAuth {
	return serveForwardAuth{proxy: cli.Choice{Of: edge.ForwardAuthDialects()}}
}

func (f *serveForwardAuth) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.listen, "forward-auth", "the address, [HOST]:PORT or unix:/PATH, at which a proxy asks about each request before it forwards that itself; without --upstream nothing else is served, and --listen is not opened")
	flags.Var(&f.proxy, "forward-auth-proxy", "which proxy asks, of which only the fields that it sends are read; required with --forward-auth")
	flags.Var(&f.peers, "forward-auth-peers", "the networks of these proxies; questions from others are answered 403; required with --forward-auth, except at a unix: socket")
	cli.Must(cmd.RegisterFlagCompletionFunc("forward-auth-proxy", cobra.FixedCompletions(f.proxy.Of, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *serveForwardAuth) settings() edge.ForwardAuth {
	return edge.ForwardAuth{Listen: string(f.listen), Dialect: check.Dialect(f.proxy.Value), Peers: f.peers}
}

// forwardsNothing reports whether the server only answers proxies.
func (f *serveFlags) forwardsNothing() bool {
	return (f.forwardAuth.listen != "" || f.rls.listen != "") && len(f.upstream) == 0
}

// onlyWithBackend are the flags of the public listener, and of what is behind it.
var onlyWithBackend = []string{"listen", "paths", "forwarded", "engine", "max-data", "demo", "redirect", "acme", "proxy-protocol", "client-ca", "token-forward"}

// checkForwardAuth rejects flags about proxies that do not fit together.
func (f *serveFlags) checkForwardAuth(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if f.forwardAuth.listen == "" {
		for _, name := range []string{"forward-auth-proxy", "forward-auth-peers"} {
			if given(name) {
				return cli.UsageError("give --forward-auth ADDRESS too, or leave it out", "%s has no effect without --forward-auth", cli.GivenAs(cmd, name))
			}
		}
		return nil
	}
	isSocket := strings.HasPrefix(string(f.forwardAuth.listen), "unix:")
	switch {
	case f.forwardAuth.proxy.Value == "":
		return cli.UsageError("give --forward-auth-proxy, one of "+strings.Join(f.forwardAuth.proxy.Of, ", "), "%s needs to know which proxy asks", cli.GivenAs(cmd, "forward-auth"))
	case len(f.forwardAuth.peers) == 0 && !isSocket:
		return cli.UsageError("give --forward-auth-peers, such as 127.0.0.1 for a proxy on this machine", "%s needs to know whom to believe", cli.GivenAs(cmd, "forward-auth"))
	case len(f.forwardAuth.peers) > 0 && isSocket:
		return cli.UsageError("leave it out: the permissions of the socket decide who may ask", "%s has no effect at a Unix socket", cli.GivenAs(cmd, "forward-auth-peers"))
	}
	for _, name := range onlyWithBackend {
		if f.forwardsNothing() && given(name) {
			return cli.UsageError("give --upstream URL to serve requests too, or leave it out", "%s has no effect with --forward-auth alone, which forwards nothing", cli.GivenAs(cmd, name))
		}
	}
	return nil
}
