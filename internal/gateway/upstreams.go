package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/poller"
	"github.com/weirlimit/weir/internal/upstream"
)

// keptFor is how long a connection to the upstream is kept unused: less than the 60 or 75 s after
// which common servers close one.
const keptFor = 55 * time.Second

// newPool returns the addresses of the upstream, their health, and the fast engine's connections to
// them.
func (g *Gateway) newPool() (*upstream.Pool, error) {
	first := g.options.Upstream
	o := upstream.Options{
		Connect: g.rules.Limits.Connect,
		Header:  g.rules.Limits.Upstream,
		Stall:   g.rules.Limits.Stall,
		Idle:    keptFor,
		Dial:    poller.Dial(g.newDialer()),
		Log:     g.rules.Log,
	}
	for _, u := range append([]*url.URL{first}, g.options.MoreUpstreams...) {
		switch {
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			return nil, fmt.Errorf("upstream %q: an http or https URL with a host is allowed: http://127.0.0.1:9000", u.Redacted())
		case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return nil, fmt.Errorf("upstream %q: only a scheme, a host and a base path are allowed", u.Redacted())
		case u.Scheme != first.Scheme || strings.TrimSuffix(u.EscapedPath(), "/") != strings.TrimSuffix(first.EscapedPath(), "/"):
			return nil, fmt.Errorf("upstreams %q and %q: all must have the same scheme and base path", first.Redacted(), u.Redacted())
		}
		o.Addresses = append(o.Addresses, upstream.AddressOf(u))
	}
	return upstream.New(o)
}

// newDialer returns the dialer to the upstream, of both engines.
func (g *Gateway) newDialer() *net.Dialer {
	d := &net.Dialer{Timeout: g.rules.Limits.Connect, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}}
	if avoid := g.options.Avoid; avoid != nil {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("address %q: %w", address, err)
			}
			return avoid(to)
		}
	}
	return d
}
