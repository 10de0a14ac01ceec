package edge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/demo"
)

// demoRow returns the row of the traffic of --demo.
func demoRow() Row {
	return Row{"traffic", fmt.Sprintf("of its own, about 45 requests a second by %d visitors (--demo); the access log is off unless --access-log=on", demo.Visitors())}
}

// startDemo sends traffic to the public listener until ctx ends or it is closed.
func startDemo(ctx context.Context, c *Config, b *backend, at net.Addr, own *parts) error {
	server, err := url.Parse(reachable(at, false))
	if err != nil {
		return cli.Fail(fmt.Errorf("visit %s for --demo: %w", at, err), "")
	}
	o := demo.Options{URL: server, Seed: rand.Uint64(), Log: c.Log}
	var ids []string
	own.own(func() error {
		for _, id := range ids { // they are known here only, so one that stays does no harm
			if err := b.issued.Revoke(context.WithoutCancel(ctx), id); err != nil {
				c.Log.Warn("an API token of --demo stays", "token", id, "error", err)
			}
		}
		return nil
	})
	for i := range o.Tokens {
		made, err := b.issued.Create(ctx, demo.Workspace)
		if err != nil {
			return cli.Fail(fmt.Errorf("make an API token for --demo: %w", err), "")
		}
		o.Tokens[i], ids = made.Token, append(ids, made.ID)
	}
	ctx, cancel := context.WithCancel(ctx)
	var visiting sync.WaitGroup
	visiting.Go(func() { demo.Run(ctx, o) })
	own.own(func() error {
		cancel()
		visiting.Wait()
		return nil
	})
	return nil
}
