package edge

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/check"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
)

// ForwardAuth are the settings of the door for proxies that ask about each request.
type ForwardAuth struct {
	// Listen is its address, HOST:PORT, or unix: and the path of a socket; empty: none.
	Listen  string
	Dialect check.Dialect
	// Peers are the networks of the proxies. At a Unix socket they are all that can connect to it.
	Peers []netip.Prefix
}

// ForwardAuthDialects returns the names of the proxies that can ask.
func ForwardAuthDialects() []string { return check.Dialects() }

// asksAlone reports whether a server has no backend: proxies ask about requests, and nothing is
// forwarded here. Its public listener is that of ForwardAuth, or else that of RLS.
func (c *Config) asksAlone() bool {
	return (c.ForwardAuth.Listen != "" || c.RLS.Listen != "") && len(c.Sites) == 0
}

// publicAddress returns the address of the public listener.
func (c *Config) publicAddress() string {
	switch {
	case !c.asksAlone():
		return c.Listen
	case c.ForwardAuth.Listen != "":
		return c.ForwardAuth.Listen
	}
	return c.RLS.Listen
}

// forwardAuthSocket is the name of the door's listener, for the next process.
const forwardAuthSocket = "forward-auth"

// forwardAuthLabel is the label by which the secret of sealed refusals is derived (openDenials).
const forwardAuthLabel = "refusals of forward auth"

// A checkDoor answers proxies.
type checkDoor struct {
	door     *check.Door
	listener net.Listener
	dialect  check.Dialect
}

// openForwardAuth listens for proxies beside the public listener. It returns nil if none is wanted,
// or if the public listener is for them.
func openForwardAuth(ctx context.Context, c *Config, l *listeners, self *ownListeners, own *parts) (net.Listener, error) {
	at := c.ForwardAuth.Listen
	if at == "" || c.asksAlone() {
		return nil, nil
	}
	return openPeerListener(ctx, operatorListener{"--forward-auth", forwardAuthSocket, at, "--forward-auth 127.0.0.1:0 takes any free port"}, l, self, own)
}

// openCheckDoor makes the door of a listener. The gateway has its settings.
func openCheckDoor(c *Config, g *gateway.Gateway, l net.Listener, h *hooks) (*checkDoor, error) {
	if c.asksAlone() {
		if err := forwardAuthMisfit(c.Policy.Policy); err != nil {
			return nil, err
		}
	}
	secret, err := h.derive(forwardAuthLabel)
	if err != nil {
		return nil, err
	}
	o := check.Options{Dialect: c.ForwardAuth.Dialect, Peers: c.ForwardAuth.Peers, Secret: secret}
	if l.Addr().Network() == "unix" {
		o.Peers = []netip.Prefix{netip.PrefixFrom(SocketPeer, SocketPeer.BitLen())}
	} else if c.securesProxies(l.Addr()) {
		if o.TLS, err = g.OperatorTLS(); err != nil {
			return nil, cli.Fail(err, "")
		}
	}
	door, err := g.ForwardAuth(o)
	if err != nil {
		return nil, cli.UsageError("see 'weir serve --help'", "%w", err)
	}
	h.policies = append(h.policies, warnOnce(c.Log, ForwardAuthWarnings))
	return &checkDoor{door, h.listener("forward-auth", l), o.Dialect}, nil
}

// openCheck makes the door for proxies, if there is one. beside is its listener if that is not the
// public one.
func (s *Server) openCheck(beside net.Listener, h *hooks) (err error) {
	if s.config.asksAlone() && !s.config.rlsAlone() {
		beside = s.listeners.public
	}
	if beside != nil {
		s.check, err = openCheckDoor(s.config, s.public.gateway, beside, h)
	}
	return err
}

// callerDoors returns the doors for callers and for their proxies.
func (s *Server) callerDoors() (all []Door) {
	if !s.config.asksAlone() {
		all = append(all, s.public)
	}
	if s.check != nil {
		all = append(all, s.check)
	}
	if s.rls != nil {
		all = append(all, s.rls.doors...)
	}
	return all
}

// Serve implements Door.
func (d *checkDoor) Serve(ctx context.Context) error { return d.door.Serve(ctx, d.listener) }

// Addr implements Door.
func (d *checkDoor) Addr() net.Addr { return d.listener.Addr() }

// row returns the row of the door.
func (d *checkDoor) row(c *Config) Row {
	from := "whoever can connect to that socket"
	if d.Addr().Network() != "unix" {
		var all []string
		for _, p := range c.ForwardAuth.Peers {
			all = append(all, p.String())
		}
		from = strings.Join(all, ", ")
	}
	return Row{"proxies", fmt.Sprintf("%s asks at %s, believed from %s", d.dialect, reachable(d.Addr(), c.securesProxies(d.Addr())), from)}
}

// securesProxies reports whether proxies ask over TLS at an address: they do if the server has a
// certificate, and if their bytes leave the machine.
func (c *Config) securesProxies(at net.Addr) bool {
	return at.Network() != "unix" && c.secure() && admin.UsesTLS(at)
}

// A front is the door that tells how a server is doing.
type front interface {
	Accepted() int64
	InFlight() int64
	Draining() bool
	Ready(ctx context.Context) (status int, text string)
}

func (s *Server) front() front {
	switch {
	case !s.config.asksAlone():
		return s.public.gateway
	case s.check != nil:
		return s.check.door
	}
	return s.rls.door
}

// openNone returns the backend of a server that forwards nothing.
func openNone(ctx context.Context, c *Config, self *ownListeners, h *hooks, own *parts) (*backend, error) {
	b, err := openUpstream(ctx, c, self, h, own)
	if err != nil {
		return nil, err
	}
	attach := b.attach
	b.attach = func(o *gateway.Options) {
		attach(o)
		o.Backend = http.NotFoundHandler() // which nothing reaches
	}
	proxy := string(c.ForwardAuth.Dialect)
	if c.rlsAlone() {
		proxy = "Envoy"
	}
	b.lines[0] = "none here: " + proxy + " forwards the requests that are admitted"
	return b, nil
}

// forwardAuthMisfit returns an error if a limiter needs the response of a request, which no proxy
// reports.
func forwardAuthMisfit(p weir.Policy) error {
	for i := range p.Limiters {
		l := &p.Limiters[i]
		what := ""
		switch {
		case len(l.InFlight.Key) > 0:
			what = "limits requests that are under way (in_flight)"
		case l.SettlesUnits():
			what = "counts by the response (count, or a cost that the answer tells)"
		case l.Answers != weir.AnswerBackend:
			what = "answers requests itself (answers)"
		default:
			continue
		}
		return cli.UsageError("leave that out of the limiter, or put Weir in front of the backend with --upstream",
			"limiter %q %s, and with --forward-auth alone no response is seen", l.Name, what)
	}
	return nil
}

// ForwardAuthWarnings returns where a policy does less for requests that a proxy asks about.
func ForwardAuthWarnings(p weir.Policy) (all []Warning) {
	for i := range p.Limiters {
		l := &p.Limiters[i]
		args := []any{"limiter", l.Name}
		if len(l.InFlight.Key) > 0 {
			all = append(all, Warning{"in_flight has no effect on requests that --forward-auth is asked about: it is not told when they end", args})
		}
		if l.SettlesUnits() {
			all = append(all, Warning{"for requests that --forward-auth is asked about, what is charged at first stays: it is not told their response", args})
		}
		if l.Answers != weir.AnswerBackend {
			all = append(all, Warning{"the answer of this limiter itself reaches callers through nginx alone; others get a 404 at --forward-auth", args})
		}
		if l.Reserve.From.Form == weir.ReadJSON {
			all = append(all, Warning{"a cost in the request's body is not read at --forward-auth, which gets no bodies: the most is charged", args})
		}
		if l.CountsBy(identity.Cert) || l.Requires == identity.Cert {
			all = append(all, Warning{"no caller has a client certificate at --forward-auth: the proxy keeps it", args})
		}
		if countsByAgent(l) {
			all = append(all, Warning{"an agent that only the body names is not found at --forward-auth, which gets no bodies: the User-Agent counts instead", args})
		}
	}
	return all
}

func countsByAgent(l *weir.Limiter) bool {
	return slices.ContainsFunc(l.Rows(), func(w weir.Window) bool { return slices.Contains(slices.Concat(w.Key...), identity.Agent) })
}
