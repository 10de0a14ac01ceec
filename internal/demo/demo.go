// Package demo is traffic for a first look at a dashboard: a few dozen visitors of the sample backend, who come through the public
// listener like anybody. Most are polite; some want more than a limiter gives, so that every limiter moves, some come near their
// limit, and some are refused.
//
//	demo.go    Run: who comes, from which addresses
//	visitor.go one of them
//	cast.go    what they do, and how often: about 45 requests a second in all
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

// Workspace is whose widget the visitors use and whose documents are synced: one of their own, so that nobody's rows are mixed with
// theirs.
const Workspace = "demo-traffic"

// Tokens is how many API tokens the traffic uses.
const Tokens = 2

// Options are what Run needs.
type Options struct {
	URL    *url.URL       // where the server listens, in clear text; required
	Tokens [Tokens]string // API tokens of Workspace; required
	Seed   uint64         // of who does what when
	Log    *slog.Logger   // nil means slog.Default()
}

// Visitors is how many there are.
func Visitors() int {
	n := 0
	for _, r := range cast {
		n += r.visitors
	}
	return n
}

// addresses is how many clients' addresses there are, where this machine has them.
const addresses = 12

// Run sends traffic until ctx ends, and returns when all of it has ended.
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

// clientsOf returns a client for each address: those of 127.0.0.0/8, where the server is on this machine's loopback and the system
// lets anybody be any of them, as Linux does; else one.
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
		log.Info("demo: all visitors come from one address, since this system has no other for them")
		return []*http.Client{client(&net.Dialer{Timeout: patience})}
	}
	clients := make([]*http.Client, addresses)
	for i := range clients {
		clients[i] = client(dialer(i))
	}
	return clients
}

func dialer(i int) *net.Dialer {
	return &net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+i))}}
}

// patience is how long a visitor waits for an answer.
const patience = 10 * time.Second

func client(d *net.Dialer) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: d.DialContext, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
}
