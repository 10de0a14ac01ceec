package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/upstream"
)

// maxLookUp bounds the time in which start-up looks up the name of an upstream that has the port of
// a listener. A name that cannot be looked up then is checked again when it is connected to.
const maxLookUp = 2 * time.Second

// ownListeners are the addresses at which this server listens. Its upstream must not be one of
// them: the server would send requests to itself without end, or let the public reach the admin
// listener. A loop through another machine is not detected.
type ownListeners struct {
	sites []gateway.Site
	all   []ownListener
}

type ownListener struct {
	at netip.AddrPort
	by string // "--listen", "--admin", "--metrics", "--redirect", or byManager
}

// byManager is what decided the address of a socket that a service manager has passed.
const byManager = "a socket of the service manager"

// claimListener adds a listener, and returns an error if an address of the upstream is known to
// lead there.
func (o *ownListeners) claimListener(ctx context.Context, l net.Listener, by string) error {
	if at, ok := l.Addr().(*net.UnixAddr); ok {
		return o.claimSocket(at, by)
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil
	}
	o.all = append(o.all, ownListener{at.AddrPort(), by})
	for u := range o.upstreams() {
		host, port, err := net.SplitHostPort(HostPort(u))
		if err != nil {
			continue // it is a Unix socket, or the gateway reports it
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || int(n) != at.Port {
			continue
		}
		for _, to := range addressesOf(ctx, host) {
			if err := o.checkSelfProxy(netip.AddrPortFrom(to, uint16(n))); err != nil {
				return selfProxy(u, err)
			}
		}
	}
	return nil
}

// A Listener is where a server is to listen, as its flag gives it.
type Listener struct {
	Flag string // "--listen"
	At   string // [HOST]:PORT, or unix: and the path of a socket; empty: nowhere
}

// CheckSelfProxy returns the failure of a server whose upstream is one of its own listeners, as far
// as that is known without the network: addresses and localhost are compared, other names are not
// looked up, and of the machine's own addresses the loopback ones alone count.
func CheckSelfProxy(sites []gateway.Site, listeners ...Listener) error {
	o := &ownListeners{sites: sites}
	for u := range o.upstreams() {
		for _, l := range listeners {
			if leadsTo(u, l.At) {
				return selfProxy(u, fmt.Errorf("this server itself listens on %s (%s)", l.At, l.Flag))
			}
		}
	}
	return nil
}

// leadsTo reports whether an upstream is known to be what listens at an address.
func leadsTo(u *url.URL, listen string) bool {
	if path, ok := strings.CutPrefix(listen, "unix:"); ok || upstream.IsSocket(u) {
		return ok && upstream.IsSocket(u) && filepath.Clean(path) == filepath.Clean(u.Path)
	}
	host, port, err := net.SplitHostPort(listen)
	to, toPort, toErr := net.SplitHostPort(HostPort(u))
	number, numberErr := strconv.ParseUint(port, 10, 16)
	toNumber, toNumberErr := strconv.ParseUint(toPort, 10, 16)
	if errors.Join(err, toErr, numberErr, toNumberErr) != nil || number != toNumber || number == 0 {
		return false
	}
	for _, bound := range knownAddresses(cmp.Or(host, "::")) {
		for _, addr := range knownAddresses(to) {
			if reaches(addr, bound, func() []netip.Addr { return nil }) {
				return true
			}
		}
	}
	return false
}

// knownAddresses returns the addresses of a host without looking it up; none if that is needed.
func knownAddresses(host string) []netip.Addr {
	if strings.EqualFold(host, "localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	if one, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{one}
	}
	return nil
}

// selfProxy returns the failure of an upstream at which this server listens.
func selfProxy(u *url.URL, err error) error {
	return cli.UsageError("--upstream takes the address of your backend; --listen, --admin, --metrics and --redirect, or the sockets of a service manager, are addresses of this server",
		"--upstream %s is not a backend: %w", u.Redacted(), err)
}

// claimSocket returns an error if the upstream is a Unix socket at which this server listens.
func (o *ownListeners) claimSocket(at *net.UnixAddr, by string) error {
	own, err := os.Stat(at.Name)
	if err != nil {
		return nil // it is gone already
	}
	for u := range o.upstreams() {
		if !upstream.IsSocket(u) {
			continue
		}
		if to, err := os.Stat(u.Path); err == nil && os.SameFile(own, to) {
			return cli.UsageError("--upstream takes the socket of your backend; --listen is one of this server",
				"--upstream %s is not a backend: this server itself listens on %s (%s)", u.Redacted(), at.Name, by)
		}
	}
	return nil
}

// upstreams returns all addresses of all sites.
func (o *ownListeners) upstreams() iter.Seq[*url.URL] {
	return func(yield func(*url.URL) bool) {
		for _, s := range o.sites {
			for _, u := range s.Upstreams {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// checkSelfProxy returns an error if this server itself listens at an address. It is for every
// address that a connection to the upstream is about to be made to, since a name can get another
// address while the server runs. Goroutines may share it once all listeners are claimed.
func (o *ownListeners) checkSelfProxy(to netip.AddrPort) error {
	for _, l := range o.all {
		if to.Port() == l.at.Port() && reaches(to.Addr(), l.at.Addr(), interfaceAddresses) {
			return fmt.Errorf("this server itself listens on %v (%s)", l.at, l.by)
		}
	}
	return nil
}

// HostPort returns the host and port that a URL leads to, or the path of its Unix socket.
func HostPort(u *url.URL) string {
	if upstream.IsSocket(u) {
		return filepath.Clean(u.Path)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// addressesOf returns the addresses of a host, which may be an address itself; none if a name
// cannot be looked up.
func addressesOf(ctx context.Context, host string) []netip.Addr {
	if one, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{one}
	}
	ctx, cancel := context.WithTimeout(ctx, maxLookUp)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return all
}

// interfaceAddresses returns the addresses of this machine's interfaces; none if the system does
// not list them.
func interfaceAddresses() (all []netip.Addr) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, n := range networks {
		if prefix, err := netip.ParsePrefix(n.String()); err == nil {
			all = append(all, plainAddr(prefix.Addr()))
		}
	}
	return all
}

// reaches reports whether a connection to an address ends at a listener that is bound to another,
// given that the ports are equal. own is called if that is bound to all addresses of the machine. A
// listener that is bound to all of IPv6 counts as bound to all of IPv4 too, which is the default.
func reaches(to, bound netip.Addr, own func() []netip.Addr) bool {
	to, bound = plainAddr(to), plainAddr(bound)
	if to.IsUnspecified() { // such a connection goes to the machine itself
		for _, loopback := range [...]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if (to.Is6() || loopback.Is4()) && reaches(loopback, bound, own) {
				return true
			}
		}
		return false
	}
	switch {
	case !bound.IsUnspecified():
		return to == bound
	case bound.Is4() && to.Is6():
		return false
	}
	return to.IsLoopback() || slices.Contains(own(), to)
}

// plainAddr returns an address without a zone, and IPv4 in IPv6 as IPv4.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
