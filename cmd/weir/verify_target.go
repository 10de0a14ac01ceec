package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/verify"
	reports "github.com/weirlimit/weir/internal/verify/report"
)

// A pinned host is a host whose name was resolved once: connections go to those addresses only,
// even if the name resolves to others later.
type pinned struct {
	name  string
	addrs []netip.Addr
	port  string
}

// resolve looks up the addresses of a URL's host.
func resolve(ctx context.Context, u *url.URL) (*pinned, error) {
	p := &pinned{name: u.Hostname(), port: u.Port()}
	if p.port == "" {
		p.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.name)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("find the address of %q: %w", p.name, err), "is the URL correct?")
	}
	for _, addr := range addrs {
		p.addrs = append(p.addrs, addr.Unmap())
	}
	return p, nil
}

// loopback reports whether every address is a loopback address.
func (p *pinned) loopback() bool {
	for _, addr := range p.addrs {
		if !addr.IsLoopback() {
			return false
		}
	}
	return len(p.addrs) > 0
}

// dial connects to the first address that accepts. It ignores the address that it is given.
func (p *pinned) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var dialer net.Dialer
	var failed []error
	for _, addr := range p.addrs {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(addr.String(), p.port))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// where lists the addresses.
func (p *pinned) where() string {
	all := make([]string, len(p.addrs))
	for i, addr := range p.addrs {
		all[i] = addr.String()
	}
	return strings.Join(all, ", ")
}

// announce prints what will be sent, before anything is sent.
func announce(w io.Writer, to *url.URL, host *pinned, plan *verify.Plan) error {
	at := ""
	if _, err := netip.ParseAddr(host.name); err != nil {
		at = ", at " + host.where()
	}
	return reports.PrintPlan(w, to.String()+at, plan)
}
