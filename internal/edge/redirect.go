package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
)

// A redirectDoor sends callers who come in clear text to https, and answers the challenges of an
// authority by ACME.
type redirectDoor struct {
	listener net.Listener
	to       uint16 // the port of https
	redirect *gateway.Redirect
}

// openRedirect listens for a redirectDoor, unless the service manager has passed its socket. It
// returns nil if none is wanted.
func openRedirect(ctx context.Context, c *Config, l *listeners, self *ownListeners, own *parts) (*redirectDoor, error) {
	o := operatorListener{"--redirect", redirectSocket, c.RedirectListen, "--redirect :0 takes any free port"}
	listener, err := o.open(ctx, l.redirect, l, self, own)
	if err != nil {
		return nil, err
	}
	if listener == nil && c.RedirectPort != 0 {
		return nil, cli.UsageError("give --redirect [HOST]:PORT too, or leave it out", "--redirect-port has no effect without --redirect")
	}
	if listener == nil {
		return nil, nil
	}
	d := &redirectDoor{listener: listener, to: c.RedirectPort}
	if d.to == 0 {
		d.to = addrPort(l.public.Addr()).Port()
	}
	if d.to == 0 {
		return nil, cli.UsageError("give --redirect-port, such as 443", "--redirect cannot know the port of https, since --listen %s has none", l.public.Addr())
	}
	return d, nil
}

// attach gives the door its gateway.
func (d *redirectDoor) attach(g *gateway.Gateway, h *hooks) (err error) {
	if d.redirect, err = g.Redirect(d.to); err != nil {
		return cli.UsageError("", "%w", err)
	}
	d.listener = h.listener("redirect", d.listener)
	return nil
}

// Serve implements Door.
func (d *redirectDoor) Serve(ctx context.Context) error { return d.redirect.Serve(ctx, d.listener) }

// Addr implements Door.
func (d *redirectDoor) Addr() net.Addr { return d.listener.Addr() }

// row returns the row of the door.
func (d *redirectDoor) row() Row {
	return Row{"redirect", fmt.Sprintf("%s, to https at port %d", reachable(d.Addr(), false), d.to)}
}

// addrPort returns a TCP address; the zero AddrPort if it is another.
func addrPort(a net.Addr) netip.AddrPort {
	at, _ := netip.ParseAddrPort(a.String())
	return at
}
