package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/admin/page"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/handover"
	"github.com/weirlimit/weir/internal/owned"
	"github.com/weirlimit/weir/internal/sample"
)

// An adminSide is what operators need before the admin API can be opened: its listeners, tokens,
// and the audit log. A server without the listeners has the log only.
type adminSide struct {
	listener net.Listener // nil: there is none
	metrics  net.Listener // for metrics and health alone; nil: there is none
	tokens   *admin.Tokens
	audit    *admin.Audit
	rows     []Row
}

// openAdminSide opens the audit log, and the listeners that are wanted, unless the service manager
// has passed their sockets. If there is an admin listener, it makes the operator's token if there
// is none.
func openAdminSide(ctx context.Context, c *Config, l *listeners, self *ownListeners, own *parts) (*adminSide, error) {
	if err := sample.MakeDir(c.Data); err != nil {
		return nil, noData(c.Data, err)
	}
	data := absolute(c.Data)
	audit, err := admin.OpenAudit(ctx, data, nil)
	if err != nil {
		return nil, cli.Fail(err, DataHint(err))
	}
	a := &adminSide{audit: audit, tokens: admin.OpenTokens(data, admin.TokensOptions{Audit: audit})}
	o := operatorListener{"--admin", adminSocket, c.AdminListen, "--admin 127.0.0.1:0 takes any free port, --admin '' does without"}
	if a.listener, err = o.open(ctx, l.admin, l, self, own); err != nil {
		return nil, err
	}
	o = operatorListener{"--metrics", metricsSocket, c.MetricsListen, "--metrics 127.0.0.1:0 takes any free port"}
	if a.metrics, err = o.open(ctx, l.metrics, l, self, own); err != nil {
		return nil, err
	}
	if a.listener != nil {
		if err := a.begin(ctx, c); err != nil {
			return nil, err
		}
	}
	if a.metrics == nil && c.MetricsOpen {
		return nil, ErrMetricsOpen
	}
	if a.metrics != nil {
		a.describeMetrics(c)
	}
	return a, nil
}

// ErrMetricsOpen is the failure of --metrics-open without a listener.
var ErrMetricsOpen = cli.UsageError("give --metrics [HOST]:PORT too, or leave it out", "--metrics-open has no effect without a listener for metrics")

// begin makes the operator's token if there is none.
func (a *adminSide) begin(ctx context.Context, c *Config) error {
	warnOfClearText(c, "--admin", a.listener.Addr())
	made, err := a.tokens.Begin(ctx)
	if err != nil {
		return cli.Fail(err, owned.HintOf(err, ""))
	}
	url := c.operatorURL(a.listener.Addr())
	line := fmt.Sprintf("%s, its token is in %s", url, a.tokens.OperatorPath())
	if err := a.tokens.CheckOperator(); err != nil {
		line = fmt.Sprintf("%s, but %v: 'weir admin create NAME --role ROLE' makes another token, or 'weir admin revoke %s' lets the next start make this one anew", url, err, admin.Operator)
	}
	if made != "" && c.ShowToken {
		line = fmt.Sprintf("%s/#token=%s (shown this once; kept in %s)", url, made, a.tokens.OperatorPath())
	}
	a.rows = append(a.rows, Row{"admin", line})
	return nil
}

// describeMetrics adds the row of the listener for metrics.
func (a *adminSide) describeMetrics(c *Config) {
	access := "for tokens from 'weir admin create NAME --role metrics'"
	if c.MetricsOpen {
		access = "without a token, for all who reach it"
	} else {
		warnOfClearText(c, "--metrics", a.metrics.Addr())
	}
	a.rows = append(a.rows, Row{"metrics", fmt.Sprintf("%s/metrics, %s; /livez and /readyz", c.operatorURL(a.metrics.Addr()), access)})
}

// operatorURL returns the URL of a listener for operators.
func (c *Config) operatorURL(at net.Addr) string {
	return reachable(at, c.secure() && admin.UsesTLS(at))
}

// warnOfClearText warns of tokens that can be read on the network.
func warnOfClearText(c *Config, flag string, addr net.Addr) {
	if at, err := netip.ParseAddrPort(addr.String()); !c.secure() && (err != nil || !at.Addr().IsLoopback()) {
		c.Log.Warn("admin tokens cross the network in clear text: give --tls-cert and --tls-key, or bind the listener to 127.0.0.1", "listener", flag, "address", addr.String())
	}
}

// An operatorListener is a listener that a flag asks for; without an address it does not.
type operatorListener struct{ flag, socket, address, free string }

// open returns the socket that a service manager has passed, if it is not nil, or that of the
// previous process, or else listens. It returns nil if there is nothing to listen on.
func (o operatorListener) open(ctx context.Context, passed net.Listener, l *listeners, self *ownListeners, own *parts) (net.Listener, error) {
	if passed != nil {
		return passed, self.claimListener(ctx, passed, byManager)
	}
	listener, held, err := l.from.Take(o.socket, o.address)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	by := o.flag
	switch {
	case held:
		by = byManager
	case listener != nil:
	case o.address == "":
		return nil, nil
	default:
		if listener, err = listenAdmin(ctx, o.address, l.held && l.from == nil); err != nil {
			return nil, cli.Fail(fmt.Errorf("listen on %s %q: %w", o.flag, o.address, cause(err)), listenHint(err, o.free))
		}
	}
	own.own(func() error {
		_ = listener.Close() // it may be closed already
		return nil
	})
	l.add(handover.Socket{Name: o.socket, Address: o.address, Held: held, Listener: listener})
	return listener, self.claimListener(ctx, listener, by)
}

// maxAdminWait bounds the wait for the address of a process that drains.
const maxAdminWait = 40 * time.Second

// listenAdmin listens on the address. If a service manager hands over from one process to the next
// (held), it waits until the process before this one has closed the address.
func listenAdmin(ctx context.Context, address string, held bool) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil || !held {
		return listener, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxAdminWait)
	defer cancel()
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, err
		case <-retry.C:
			if listener, err = net.Listen("tcp", address); err == nil {
				return listener, nil
			}
		}
	}
}

// An adminDoor serves operators at one listener.
type adminDoor struct {
	serve    func(context.Context, net.Listener) error
	listener net.Listener
}

// openAdminDoors makes the admin API of a server, with a door for each of its listeners.
func openAdminDoors(a *adminSide, s *Server, h *hooks) ([]Door, error) {
	if a.listener == nil && a.metrics == nil {
		return nil, nil
	}
	c, g := s.config, s.public.gateway
	secure, err := g.OperatorTLS()
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	o := admin.Options{
		Decider:     s.counter.Decider,
		Policy:      s.policy.Policy,
		Tokens:      a.tokens,
		Audit:       a.audit,
		Sessions:    s.backend.sessions,
		APITokens:   s.backend.tokens,
		IPv6Prefix:  c.Callers.IPv6Prefix,
		Version:     c.Build.Version,
		Demo:        c.Demo,
		StoreKind:   s.counter.store.line,
		Health:      s.counter.health,
		Table:       s.counter.store.table,
		InFlight:    s.front().InFlight,
		Hosts:       c.AdminHosts,
		OpenMetrics: c.MetricsOpen,
		Ready:       s.front().Ready,
		Page:        page.Handler(),
		TLS:         secure,
		Log:         c.Log,
	}
	if figures := s.counter.store.figures; figures != nil {
		o.Leases = func() admin.Leases {
			l := figures().Leases
			return admin.Leases{Takes: l.Takes, Granted: l.Granted, Returned: l.Returned, HeldBack: l.HeldBack, Stranded: l.Stranded, Claims: l.Claimed}
		}
	}
	if g.Upstreams() != nil {
		o.Upstreams = s.public.shownUpstreams
	}
	for _, attach := range h.admin {
		attach(&o)
	}
	server, err := admin.New(o)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	s.parts.own(func() error {
		if err := server.Close(); err != nil { // it holds memory only
			c.Log.Warn("close the admin API", "error", err)
		}
		return nil
	})
	var doors []Door
	if a.listener != nil {
		doors = append(doors, &adminDoor{server.Serve, h.listener("admin", a.listener)})
	}
	if a.metrics != nil {
		doors = append(doors, &adminDoor{server.ServeMetrics, h.listener("metrics", a.metrics)})
	}
	return doors, nil
}

// Serve implements Door.
func (d *adminDoor) Serve(ctx context.Context) error { return d.serve(ctx, d.listener) }

// Addr implements Door.
func (d *adminDoor) Addr() net.Addr { return d.listener.Addr() }
