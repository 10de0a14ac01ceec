package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/page"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/internal/sample"
)

// names is a list of host names.
type names []string

func (n *names) Set(value string) error {
	var all []string
	for _, name := range strings.Split(value, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, " /@?#:[]*") {
			return fmt.Errorf("%q is no host name; want a list such as weir.example.com,ops-1, without ports", name)
		}
		all = append(all, name)
	}
	*n = all
	return nil
}

func (n *names) String() string { return strings.Join(*n, ",") }
func (n *names) Type() string   { return "NAME,..." }

// checkAdmin refuses an admin listener where the public one is.
func (f *serveFlags) checkAdmin() error {
	host, port, _ := net.SplitHostPort(f.admin.At)
	publicHost, publicPort, _ := net.SplitHostPort(string(f.listen))
	number := func(port string) uint64 { n, _ := strconv.ParseUint(port, 10, 16); return n }
	if f.admin.At == "" || number(port) == 0 || number(port) != number(publicPort) {
		return nil
	}
	if everywhere(host) || everywhere(publicHost) || host == publicHost {
		return cli.UsageError("give the admin listener a port of its own, such as --admin 127.0.0.1:8081; --admin '' does without",
			"--admin %s is where --listen %s serves the public", f.admin.At, &f.listen)
	}
	return nil
}

// everywhere reports whether a host means all addresses of this machine.
func everywhere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// An adminSide is the admin listener of a server.
type adminSide struct {
	listener net.Listener // nil: there is none
	tokens   *admin.Tokens
	audit    *admin.Audit // also of a server without the listener
	line     string       // what start-up says of it
}

// openAdmin listens, unless the service manager has given a socket, and makes the operator's token where there is none.
func openAdmin(ctx context.Context, f *serveFlags, given net.Listener, log *slog.Logger) (*adminSide, error) {
	a := &adminSide{listener: given}
	if err := sample.MakeDir(f.data); err != nil {
		return nil, cli.Fail(fmt.Errorf("open the data directory %q: %w", f.data, err), dataHint)
	}
	var err error
	if a.audit, err = admin.OpenAudit(ctx, absolute(f.data), nil); err != nil {
		return nil, cli.Fail(err, dataHint)
	}
	if given == nil && f.admin.At == "" {
		return a, nil
	}
	by := heldSocket
	if given == nil {
		by = "--admin"
		if a.listener, err = listenAdmin(ctx, f); err != nil {
			return nil, cli.Fail(fmt.Errorf("listen on --admin %q: %w", f.admin.At, cause(err)),
				listenHint(err, "--admin 127.0.0.1:0 takes any free port, --admin '' does without"))
		}
	}
	if err := f.occupy(ctx, a.listener, by); err != nil {
		return nil, errors.Join(err, a.listener.Close())
	}
	addr := a.listener.Addr()
	url := reachable(addr, f.tlsCert != "")
	if at, err := netip.ParseAddrPort(addr.String()); f.tlsCert == "" && (err != nil || !at.Addr().IsLoopback()) {
		log.Warn("admin tokens go over the network in clear: give --tls-cert and --tls-key, or let the admin listener be on 127.0.0.1 only", "admin", addr.String())
	}
	a.tokens = admin.OpenTokens(absolute(f.data), admin.TokensOptions{Audit: a.audit})
	made, err := a.tokens.Begin(ctx)
	if err != nil {
		return nil, errors.Join(cli.Fail(err, ""), a.listener.Close())
	}
	a.line = fmt.Sprintf("%s, its token is in %s", url, a.tokens.OperatorPath())
	if made != "" {
		a.line = fmt.Sprintf("%s/#token=%s (shown this once; kept in %s)", url, made, a.tokens.OperatorPath())
	}
	return a, nil
}

// mostHandOver is how long a server waits for the one before it, which drains, to leave its address to it.
const mostHandOver = 40 * time.Second

// listenAdmin opens the address. Where a service manager hands over from one server to the next it waits until the one before has ended.
func listenAdmin(ctx context.Context, f *serveFlags) (net.Listener, error) {
	listener, err := net.Listen("tcp", f.admin.At)
	if err == nil || f.handOver == nil {
		return listener, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostHandOver)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, err
		case <-again.C:
			if listener, err = net.Listen("tcp", f.admin.At); err == nil {
				return listener, nil
			}
		}
	}
}

// close lets go of a listener that may never have been served.
func (a *adminSide) close() {
	if a.listener != nil {
		_ = a.listener.Close() // it may be closed already
	}
}

// serveAdmin answers operators until stop is called, which waits for requests under way.
func (e *edge) serveAdmin(a *adminSide, f *serveFlags, policy *live.Policy, log *slog.Logger) (stop func(), err error) {
	if a.listener == nil {
		return func() {}, nil
	}
	server, err := admin.New(admin.Options{
		Decider: e.decider,
		Policy:  policy,
		Tokens:  a.tokens,
		Audit:   a.audit,

		Recorder:   e.recorder,
		Denials:    e.denials.Open,
		Sessions:   e.sessions,
		IPv6Prefix: f.ipv6Prefix.Value,
		Version:    thisBuild().Version,
		Demo:       bool(f.demo),
		StoreKind:  e.storeLine,
		Table:      e.tableOf(),
		InFlight:   e.gateway.InFlight,

		Hosts:   f.adminHosts,
		Metrics: e.metrics.Handler(),
		Page:    page.Handler(),
		TLS:     e.gateway.TLSConfig(),
		Log:     log,
	})
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(ctx, e.metrics.Listener("admin", a.listener)); err != nil {
			log.Error("the admin listener has ended", "error", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
		closing(log, server)
	}, nil
}

// tableOf tells of the counts in this process; nil where nothing is known of them.
func (e *edge) tableOf() func() admin.Table {
	ask := e.figures.Table
	if ask == nil {
		return nil
	}
	return func() admin.Table { return admin.Table(ask()) }
}

// closing closes what only holds memory.
func closing(log *slog.Logger, c io.Closer) {
	if err := c.Close(); err != nil {
		log.Warn("close", "error", err)
	}
}
