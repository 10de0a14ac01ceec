// Package demo generates traffic for a first look at the dashboard. A few dozen visitors of the
// sample backend send requests through the public listener. Most stay within their limits. Some
// come near a limit and some exceed one, so that every limiter has traffic and some requests are
// refused.
//
//	demo.go    Run: starts the visitors and assigns their addresses
//	visitor.go one visitor
//	cast.go    what the visitors do, and how often: about 45 requests a second in all
package demo

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"
)

// Workspace is the workspace of all visitors and tokens. It is separate, so that its rows do not
// mix with those of users.
const Workspace = "demo-traffic"

// Tokens is the number of API tokens that the traffic uses.
const Tokens = 2

// Options configure Run.
type Options struct {
	URL    *url.URL       // address of the server's cleartext listener; required
	Tokens [Tokens]string // API tokens of Workspace; required
	Seed   uint64         // of the random choices
	Log    *slog.Logger   // nil means slog.Default
}

// Visitors returns the number of visitors.
func Visitors() int {
	n := 0
	for _, r := range cast {
		n += r.visitors
	}
	return n
}

// addresses is the number of client addresses, if this machine has them.
const addresses = 12

// Run sends traffic until ctx ends, and returns when all visitors have stopped.
func Run(ctx context.Context, o Options) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	clients := clientsOf(ctx, o.URL, o.Log)
	var all sync.WaitGroup
	number := uint64(0)
	for i := range cast {
		r := &cast[i]
		for n := range r.visitors {
			number++
			v := &visitor{
				role: r, server: o.URL, client: clients[(r.address+n*r.spread)%len(clients)],
				random: rand.New(rand.NewPCG(o.Seed, number)),
			}
			if r.token > 0 {
				v.token = o.Tokens[r.token-1]
			}
			all.Go(func() { v.visit(ctx) })
		}
	}
	all.Wait()
	for _, c := range clients {
		c.CloseIdleConnections()
	}
}

// clientsOf returns a client for each address. If the server is on the loopback of this machine and
// the system can bind any address of 127.0.0.0/8, as Linux can, each client has its own of these;
// otherwise there is one client.
func clientsOf(ctx context.Context, server *url.URL, log *slog.Logger) []*http.Client {
	at, err := netip.ParseAddrPort(server.Host)
	several := err == nil && at.Addr().Is4() && at.Addr().IsLoopback()
	if several {
		trial, err := dialer(0).DialContext(ctx, "tcp", server.Host)
		if several = err == nil; several {
			_ = trial.Close() // nothing was sent
		}
	}
	if !several {
		log.Info("demo: all visitors have the same address, because this system cannot bind others")
		return []*http.Client{client(&net.Dialer{Timeout: timeout})}
	}
	clients := make([]*http.Client, addresses)
	for i := range clients {
		clients[i] = client(dialer(i))
	}
	return clients
}

func dialer(i int) *net.Dialer {
	return &net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+i))}}
}

// timeout is the time-out of a connection and of a request.
const timeout = 10 * time.Second

func client(d *net.Dialer) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext: d.DialContext, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}
