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
)

// A pinned host is one whose addresses were looked at once: connections go there and nowhere else, whatever its name resolves to later.
type pinned struct {
	name  string
	addrs []netip.Addr
	port  string
}

// resolve finds the addresses of a URL's host.
func resolve(ctx context.Context, u *url.URL) (*pinned, error) {
	p := &pinned{name: u.Hostname(), port: u.Port()}
	if p.port == "" {
		p.port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", p.name)
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("find the address of %q: %w", p.name, err), "is the URL spelled as it should be?")
	}
	for _, addr := range addrs {
		p.addrs = append(p.addrs, addr.Unmap())
	}
	return p, nil
}

// loopback reports whether every address is of this machine alone.
func (p *pinned) loopback() bool {
	for _, addr := range p.addrs {
		if !addr.IsLoopback() {
			return false
		}
	}
	return len(p.addrs) > 0
}

// dial connects to the first of the addresses that answers, whatever address the caller would have looked up.
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

// where says the addresses, for people.
func (p *pinned) where() string {
	all := make([]string, len(p.addrs))
	for i, addr := range p.addrs {
		all[i] = addr.String()
	}
	return strings.Join(all, ", ")
}

// announce says what will be sent, before it is.
func announce(w io.Writer, to *url.URL, host *pinned, plan *verify.Plan) {
	at := ""
	if _, err := netip.ParseAddr(host.name); err != nil {
		at = ", at " + host.where()
	}
	fmt.Fprintf(w, "the plan for %s%s:\n", to, at)
	for _, line := range plan.Lines {
		for i, part := range wrap(line, reportWidth-4) {
			indent := "  "
			if i > 0 {
				indent = "    "
			}
			fmt.Fprintln(w, indent+part)
		}
	}
}
