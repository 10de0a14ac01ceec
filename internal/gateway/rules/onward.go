package rules

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// A Head is what an engine has understood of a request's head, as far as Onward needs it.
type Head struct {
	Method  string
	Minor   int      // HTTP/1.Minor; 1 for HTTP/2 too
	Host    string   // as the client sent it; empty: it sent none, or an empty one
	Length  int64    // of the body; 0: there is none; negative: not known
	Peer    string   // the other side of the connection: address and port
	Secure  bool     // TLS
	Proto   []string // the lines of X-Forwarded-Proto
	Upgrade []string // the lines of Upgrade; nil also if Connection does not name it

	Chains [][]*x509.Certificate // of the client's certificate, as they verified; nil: none
}

// Onward is what an upstream receives of a request, beside its method, its target, the fields that
// are forwarded (IsForwarded) and the chain of addresses, which identity.Caller makes (see
// VisitForwarding).
type Onward struct {
	Host           string
	ForwardedProto string
	ForwardedHost  string // empty: no field names it
	Websocket      bool   // the request asks for one, and Upgrade and Connection are sent
	Alone          bool   // Connection: close is sent, and the connection ends with this exchange

	chain []*x509.Certificate // the caller's certificate and those above it; nil: none is sent
}

// Onward returns what the upstream of a site receives of a request.
func (r *Rules) Onward(h *Head, to *Site) Onward {
	o := Onward{Host: h.Host, ForwardedProto: r.proto(h), ForwardedHost: h.Host, Websocket: h.IsWebsocket(), Alone: isAlone(h.Method, h.Length)}
	if o.Host == "" {
		// HTTP/1.0 may send no Host, and any version an empty one (RFC 9112, section 3.2). The
		// upstream gets its own then, of several addresses the first one's.
		o.Host = to.own
	}
	if len(h.Chains) > 0 && r.forwarded&(1<<placeCert) != 0 && !r.isFromProxy(h.Peer) {
		o.chain = h.Chains[0]
	}
	return o
}

// isFromProxy reports whether the other side of a connection is a trusted proxy.
func (r *Rules) isFromProxy(peer string) bool {
	if len(r.TrustedProxies) == 0 {
		return false
	}
	at, err := netip.ParseAddrPort(peer)
	return err == nil && r.Trusts(at.Addr())
}

// proto returns the scheme of the client's connection: that of this one, unless a trusted proxy is
// the peer and names another.
func (r *Rules) proto(h *Head) string {
	if len(h.Proto) == 1 && (h.Proto[0] == "http" || h.Proto[0] == "https") && r.isFromProxy(h.Peer) {
		return h.Proto[0]
	}
	if h.Secure {
		return "https"
	}
	return "http"
}

// IsWebsocket reports whether a request asks for a websocket and nothing else, without a body. No
// other upgrade is forwarded: h2c above all would open a tunnel through which requests pass
// uncounted.
func (h *Head) IsWebsocket() bool {
	return h.Minor >= 1 && h.Length == 0 && h.Method == http.MethodGet &&
		len(h.Upgrade) == 1 && strings.EqualFold(strings.TrimSpace(h.Upgrade[0]), "websocket")
}

// ExpectsBody reports whether a method gives a body its meaning. Requests of these methods send
// Content-Length: 0 if they have no body.
func ExpectsBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// isAlone reports whether a request has to be the last one on its upstream connection. A backend
// may leave a body unread that its method gives no meaning, and take it for its next request.
func isAlone(method string, length int64) bool { return length != 0 && !ExpectsBody(method) }

// CheckAnswer returns what is wrong with an upstream's answer that is well-formed and makes no
// sense here. asked reports whether the request asked for a websocket, which a 101 may switch to;
// upgrade are the lines of the answer's Upgrade.
func CheckAnswer(status int, asked bool, upgrade []string) error {
	switch {
	case status < 100:
		return fmt.Errorf("it answered with status %03d: there is none below 100", status)
	case status == http.StatusSwitchingProtocols && (!asked || len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket")):
		return errors.New("it switched to a protocol that the request did not ask for")
	}
	return nil
}
