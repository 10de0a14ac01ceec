package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/demo"
)

// checkDemo finds what goes not with --demo. Its access log is off unless somebody wants it: nobody reads 40 lines a second.
func (f *serveFlags) checkDemo(cmd *cobra.Command) error {
	if !bool(f.demo) {
		return nil
	}
	if len(f.upstream) > 0 {
		return cli.UsageError("leave --upstream out, for the sample backend", "--demo sends traffic to the sample backend, never to one of yours")
	}
	if f.tlsCert != "" || bool(f.proxyProtocol) {
		return cli.UsageError("leave out --tls-cert, --tls-key and --proxy-protocol", "--demo visits a listener in clear text that wants no PROXY protocol")
	}
	if !cmd.Flags().Changed("access-log") {
		f.accessLog = false
	}
	return nil
}

// demoLine is what start-up says of the traffic.
func demoLine() string {
	return fmt.Sprintf("of its own, about 45 requests a second by %d visitors (--demo); the access log is off unless --access-log=on", demo.Visitors())
}

// visit sends the traffic of --demo to the public listener until ctx ends or leave is called, which waits for it.
func (e *edge) visit(ctx context.Context, at net.Addr, log *slog.Logger) (leave func(), err error) {
	server, err := url.Parse(reachable(at, false))
	if err != nil {
		return nil, fmt.Errorf("visit %s for --demo: %w", at, err)
	}
	o := demo.Options{URL: server, Seed: rand.Uint64(), Log: log}
	var ids []string
	revoke := func() {
		for _, id := range ids { // nobody else knows them, so one that stays does no harm
			if err := e.tokens.Revoke(context.WithoutCancel(ctx), id); err != nil {
				log.Warn("an API token of --demo stays", "token", id, "error", err)
			}
		}
	}
	for i := range o.Tokens {
		made, err := e.tokens.Create(ctx, demo.Workspace)
		if err != nil {
			revoke()
			return nil, fmt.Errorf("make an API token for --demo: %w", err)
		}
		o.Tokens[i], ids = made.Token, append(ids, made.ID)
	}
	ctx, cancel := context.WithCancel(ctx)
	var visiting sync.WaitGroup
	visiting.Go(func() { demo.Run(ctx, o) })
	return func() {
		cancel()
		visiting.Wait()
		revoke()
	}, nil
}
