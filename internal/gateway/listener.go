package gateway

import (
	"fmt"
	"net"
	"net/netip"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/weirlimit/weir/internal/gateway/pace"
	"github.com/weirlimit/weir/internal/poller"
)

// listener puts the layers around l: for the fast engine the poller, which waits for its
// connections, then WrapListener, then the PROXY protocol, then the pace of writing. TLS comes
// above.
func (g *Gateway) listener(l net.Listener) net.Listener {
	if g.Fast() {
		l = poller.Listen(l) // which takes sockets alone
	}
	if wrap := g.options.WrapListener; wrap != nil {
		l = wrap(l)
	}
	l = &pace.Listener{Listener: g.proxied(l), Limits: g.rules.AnswerPace, Clock: g.clock}
	if !g.Fast() {
		l = g.std.Listener(l)
	}
	return l
}

// proxied puts the PROXY protocol around l, if that is on.
func (g *Gateway) proxied(l net.Listener) net.Listener {
	if !g.options.ProxyProtocol {
		return l
	}
	return &proxyproto.Listener{
		Listener:          l,
		ConnPolicy:        g.proxyPolicy,
		ValidateHeader:    checkProxyHeader,
		ReadHeaderTimeout: g.rules.Limits.ProxyHeader,
	}
}

// proxyPolicy requires the header from trusted peers and refuses it from all others (D12).
func (g *Gateway) proxyPolicy(c proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
	if peer, err := netip.ParseAddrPort(c.Upstream.String()); err == nil && g.rules.Trusts(peer.Addr()) {
		return proxyproto.REQUIRE, nil
	}
	return proxyproto.REJECT, nil
}

// checkProxyHeader refuses a header that names no TCP peer. A LOCAL one, which a proxy's health
// check sends, names none and leaves the connection's own peer.
func checkProxyHeader(h *proxyproto.Header) error {
	if h.Command.IsLocal() {
		return nil
	}
	source, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok || source.IP == nil {
		return fmt.Errorf("PROXY header: source %v is not a TCP address", h.SourceAddr)
	}
	return nil
}
