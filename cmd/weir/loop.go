package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir/internal/cli"
)

// mostLookUp bounds how long start-up looks up the name of an upstream that has the port of a listener. A name that cannot be looked
// up then may yet be: nothing is plain about it.
const mostLookUp = 2 * time.Second

// An ownListener is where this server listens, and what said so.
type ownListener struct {
	at netip.AddrPort
	by string // "--listen", "--admin", or the service manager
}

// heldSocket is what says where a socket listens that a service manager has given.
const heldSocket = "a socket of the service manager"

// occupy notes that this server listens at l, and refuses to start where an address of --upstream leads there: before itself it would ask
// itself without end, and before the admin listener let the public in there. It sees what is plain now; avoid sees the rest, but for loops by
// way of another machine.
func (f *serveFlags) occupy(ctx context.Context, l net.Listener, by string) error {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil
	}
	f.own = append(f.own, ownListener{at.AddrPort(), by})
	for _, u := range f.upstream {
		host, port, err := net.SplitHostPort(whereTo(u))
		if err != nil {
			continue // the gateway says what is wrong with it
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || int(n) != at.Port {
			continue
		}
		for _, to := range addressesOf(ctx, host) {
			if err := f.avoid(netip.AddrPortFrom(to, uint16(n))); err != nil {
				return cli.UsageError("--upstream wants the address of your backend; --listen and --admin, or the sockets of a service manager, say where this server is",
					"--upstream %s is no backend: %w", u.Redacted(), err)
			}
		}
	}
	return nil
}

// avoid says why the upstream is not asked for at an address: this server listens there. It is for each address that a connection is about to be made
// to, since a name can come to mean another one. It may be called by several goroutines, once the listeners are open.
func (f *serveFlags) avoid(to netip.AddrPort) error {
	for _, l := range f.own {
		if to.Port() == l.at.Port() && endsAt(to.Addr(), l.at.Addr(), ownAddresses) {
			return fmt.Errorf("this server itself listens on %v (%s)", l.at, l.by)
		}
	}
	return nil
}

// addressesOf returns the addresses that a host has: one that is written as such has itself, and a name all that it means.
func addressesOf(ctx context.Context, host string) []netip.Addr {
	if one, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{one}
	}
	ctx, cancel := context.WithTimeout(ctx, mostLookUp)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return all
}

// ownAddresses returns the addresses of this machine's interfaces; none where the system does not say.
func ownAddresses() (own []netip.Addr) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, n := range networks {
		if prefix, err := netip.ParsePrefix(n.String()); err == nil {
			own = append(own, plainAddr(prefix.Addr()))
		}
	}
	return own
}

// endsAt reports whether a connection to an address ends at a listener that is bound to another, given that the ports are the same. own
// is asked where that is bound to all addresses of the machine. One that is bound to all of IPv6 is taken to be bound to all of IPv4
// too, as it is unless a service manager has made it otherwise.
func endsAt(to, bound netip.Addr, own func() []netip.Addr) bool {
	to, bound = plainAddr(to), plainAddr(bound)
	if to.IsUnspecified() { // who connects there is connected to the machine itself
		for _, loopback := range [...]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if (to.Is6() || loopback.Is4()) && endsAt(loopback, bound, own) {
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

// plainAddr is an address as others of the same meaning are: without a zone, and IPv4 as such.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
