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
	"github.com/weirlimit/weir/internal/sample"
)

// An adminSide is what operators need before the admin API can be opened: a listener, tokens, and
// the audit log. A server without the listener has the log only.
type adminSide struct {
	listener net.Listener // nil: there is none
	tokens   *admin.Tokens
	audit    *admin.Audit
	line     string // for Server.Rows; empty: there is none
}

// openAdminSide opens the audit log. If there is an admin listener, it listens, unless the service
// manager has passed the socket, and makes the operator's token if there is none.
func openAdminSide(ctx context.Context, c *Config, l *listeners, self *ownListeners, own *parts) (*adminSide, error) {
	if err := sample.MakeDir(c.Data); err != nil {
		return nil, noData(c.Data, err)
	}
	data := absolute(c.Data)
	audit, err := admin.OpenAudit(ctx, data, nil)
	if err != nil {
		return nil, cli.Fail(err, DataHint)
	}
	a := &adminSide{audit: audit, listener: l.admin}
	if l.admin == nil && c.AdminListen == "" {
		return a, nil
	}
	by := byManager
	if l.admin == nil {
		by = "--admin"
		if a.listener, err = listenAdmin(ctx, c.AdminListen, l.held); err != nil {
			return nil, cli.Fail(fmt.Errorf("listen on --admin %q: %w", c.AdminListen, cause(err)),
				listenHint(err, "--admin 127.0.0.1:0 takes any free port, --admin '' does without"))
		}
		own.own(func() error {
			_ = a.listener.Close() // it may be closed already
			return nil
		})
	}
	if err := self.claimListener(ctx, a.listener, by); err != nil {
		return nil, err
	}
	addr := a.listener.Addr()
	if at, err := netip.ParseAddrPort(addr.String()); !c.secure() && (err != nil || !at.Addr().IsLoopback()) {
		c.Log.Warn("admin tokens cross the network in clear text: give --tls-cert and --tls-key, or bind the admin listener to 127.0.0.1", "admin", addr.String())
	}
	a.tokens = admin.OpenTokens(data, admin.TokensOptions{Audit: audit})
	made, err := a.tokens.Begin(ctx)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	url := reachable(addr, c.secure())
	a.line = fmt.Sprintf("%s, its token is in %s", url, a.tokens.OperatorPath())
	if made != "" {
		a.line = fmt.Sprintf("%s/#token=%s (shown this once; kept in %s)", url, made, a.tokens.OperatorPath())
	}
	return a, nil
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

// An adminDoor serves the admin API and the dashboard to operators.
type adminDoor struct {
	server   *admin.Server
	listener net.Listener
}

// openAdminDoor makes the admin API of a server.
func openAdminDoor(a *adminSide, s *Server, h *hooks) (*adminDoor, error) {
	c, g := s.config, s.public.gateway
	o := admin.Options{
		Decider:    s.counter.Decider,
		Policy:     s.policy.Policy,
		Tokens:     a.tokens,
		Audit:      a.audit,
		Sessions:   s.backend.sessions,
		APITokens:  s.backend.tokens,
		IPv6Prefix: c.Callers.IPv6Prefix,
		Version:    c.Build.Version,
		Demo:       c.Demo,
		StoreKind:  s.counter.store.line,
		Health:     s.counter.health,
		Table:      s.counter.store.table,
		InFlight:   g.InFlight,
		Hosts:      c.AdminHosts,
		Page:       page.Handler(),
		TLS:        g.TLSConfig(),
		Log:        c.Log,
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
	return &adminDoor{server, h.listener("admin", a.listener)}, nil
}

// Serve implements Door.
func (d *adminDoor) Serve(ctx context.Context) error { return d.server.Serve(ctx, d.listener) }

// Addr implements Door.
func (d *adminDoor) Addr() net.Addr { return d.listener.Addr() }
