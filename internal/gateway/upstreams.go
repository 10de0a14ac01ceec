package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/weirlimit/weir/internal/gateway/rules"
	"github.com/weirlimit/weir/internal/poller"
	"github.com/weirlimit/weir/internal/upstream"
)

// keptFor is how long a connection to the upstream is kept unused: less than the 60 or 75 s after
// which common servers close one.
const keptFor = 55 * time.Second

// newSites returns the upstreams, with their health and the connections to them.
// secure is of https addresses; nil: the default.
func (g *Gateway) newSites(secure *tls.Config) ([]*rules.Site, error) {
	connect := g.dialThrough(poller.Dial(g.newDialer()))
	all := make([]*rules.Site, 0, len(g.options.Sites))
	for _, s := range g.options.Sites {
		pool, err := g.newPool(s, connect, secure)
		if err != nil {
			return nil, err
		}
		site, err := rules.NewSite(s.Host, s.Upstreams[0], pool)
		if err != nil {
			return nil, err
		}
		all = append(all, site)
	}
	return all, nil
}

// CheckSite returns why no gateway can have a site, which needs no file and no network; nil if one
// can. Errors name what operators have set.
func CheckSite(s Site) error {
	n := len(s.Upstreams)
	if n == 0 {
		return fmt.Errorf("new gateway: host %q has no upstream", s.Host)
	}
	first := s.Upstreams[0]
	for _, u := range s.Upstreams {
		switch {
		case upstream.IsSocket(u) && upstream.IsSocket(first) && u.Path != "":
			// its path is that of the socket
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			return fmt.Errorf("upstream %q: an http or https URL with a host is allowed, such as http://127.0.0.1:9000, or unix:/run/app.sock", u.Redacted())
		case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return fmt.Errorf("upstream %q: only a scheme, a host and a base path are allowed", u.Redacted())
		case u.Scheme != first.Scheme || strings.TrimSuffix(u.EscapedPath(), "/") != strings.TrimSuffix(first.EscapedPath(), "/"):
			return fmt.Errorf("upstreams %q and %q: all of one site must have the same scheme and base path", first.Redacted(), u.Redacted())
		}
	}
	if n > upstream.MaxAddresses {
		return fmt.Errorf("%d upstream addresses: 1 to %d are allowed", n, upstream.MaxAddresses)
	}
	return rules.CheckBase(first)
}

func (g *Gateway) newPool(s Site, connect dial, secure *tls.Config) (*upstream.Pool, error) {
	if err := CheckSite(s); err != nil {
		return nil, err
	}
	limits := &g.options.Limits
	o := upstream.Options{
		TLS:     secure,
		Connect: limits.Connect,
		Header:  limits.Upstream,
		Stall:   limits.UpstreamIdle,
		Stream:  limits.Stream,
		Idle:    keptFor,
		Dial:    connect,
		Log:     g.options.Log,
	}
	for _, u := range s.Upstreams {
		o.Addresses = append(o.Addresses, upstream.AddressOf(u))
	}
	return upstream.New(o)
}

// dialThrough returns connect, or what a test has put around it.
func (g *Gateway) dialThrough(connect dial) dial {
	if around := g.options.dial; around != nil {
		return around(connect)
	}
	return connect
}

// newDialer returns the dialer to upstreams.
func (g *Gateway) newDialer() *net.Dialer {
	d := &net.Dialer{Timeout: g.options.Limits.Connect, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4}}
	if avoid := g.options.Avoid; avoid != nil {
		d.Control = func(network, address string, _ syscall.RawConn) error {
			if network == "unix" {
				return nil // no listener of this server has its path
			}
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("address %q: %w", address, err)
			}
			return avoid(to)
		}
	}
	return d
}
