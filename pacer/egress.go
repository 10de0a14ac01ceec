package pacer

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// An egress is a local address that requests leave from, and its transport. The zero Addr means
// that the system chooses.
type egress struct {
	addr netip.Addr
	base http.RoundTripper
}

// egresses returns the egresses of the options.
func egresses(o *Options) []egress {
	if len(o.Egress) == 0 {
		return []egress{{base: o.Base}}
	}
	from := o.EgressTransport
	if from == nil {
		base, ok := o.Base.(*http.Transport)
		if !ok || base.DialTLSContext != nil {
			panic(fmt.Sprintf("pacer: Options.Base is a %T or has a TLS dialer of its own, which cannot send from the addresses in Options.Egress: set Options.EgressTransport", o.Base))
		}
		from = func(addr netip.Addr) http.RoundTripper { return dialingFrom(base, addr) }
	}
	var all []egress
	for _, addr := range o.Egress {
		all = append(all, egress{addr, from(addr)})
	}
	return all
}

// dialingFrom returns a clone of a transport that dials from a local address.
func dialingFrom(base *http.Transport, addr netip.Addr) http.RoundTripper {
	t := base.Clone()
	d := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))}
	t.DialContext = d.DialContext
	return t
}

// byBudget returns the ways of a line, the one with the most free calls first.
func (l *line) byBudget(t *Transport, now int64) []*way {
	type rated struct {
		*way
		free int64
	}
	all := make([]rated, len(l.ways))
	for i := range l.ways {
		all[i] = rated{&l.ways[i], endless}
		for _, w := range l.ways[i].windows {
			view := w.snapshot()
			all[i].free = min(all[i].free, view.capacity(t.ask(l.cost, w), now, now))
		}
	}
	slices.SortStableFunc(all, func(a, b rated) int { return int(min(max(b.free-a.free, -1), 1)) })
	ways := make([]*way, len(all))
	for i := range all {
		ways[i] = all[i].way
	}
	return ways
}
