package rules

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/internal/wire"
)

// A Forwarding is a field by which an upstream learns who is calling.
type Forwarding struct {
	Name    string
	Value   string // what it holds, for the page that lists it
	Default bool   // it is written unless Options.Forwarded says otherwise
}

// The fields by which an upstream learns who is calling. A client cannot send them: they are
// withheld (see IsWithheld).
const (
	ForwardedFor   = "X-Forwarded-For"
	ForwardedProto = "X-Forwarded-Proto"
	ForwardedHost  = "X-Forwarded-Host"
	RealIP         = "X-Real-IP"
	Forwarded      = "Forwarded"
	ClientCert     = "Client-Cert"
	ClientChain    = "Client-Cert-Chain"
)

// Forwardings are the fields that Weir can write, in the order in which it writes them.
// docs/fields.md lists them, and a test compares the page with this table.
var Forwardings = [...]Forwarding{
	placeFor:       {ForwardedFor, "the caller's address, then each trusted proxy up to the peer, as in `203.0.113.7, 10.0.0.4`", true},
	placeProto:     {ForwardedProto, "`http` or `https`: how the caller connected", true},
	placeHost:      {ForwardedHost, "the caller's Host; left out if the request has none", true},
	placeRealIP:    {RealIP, "the caller's address alone, as it is counted by", false},
	placeForwarded: {Forwarded, "all of it (RFC 7239), as in `for=203.0.113.7;host=api.example.com;proto=https, for=\"[2001:db8::4]\"`", false},
	placeCert:      {ClientCert, "the certificate that the caller has shown and Weir has verified (RFC 9440), as in `:MIIBqDCC…:`; left out if there is none", false},
	placeChain:     {ClientChain, "the certificates between that one and its authority, in the same form; left out if there are none", false},
}

// ForwardingNames are the names of the fields, as --forwarded has them.
func ForwardingNames() (names []string) {
	for _, f := range Forwardings {
		names = append(names, strings.ToLower(f.Name))
	}
	return names
}

// DefaultForwarding returns those of ForwardingNames that are written by default.
func DefaultForwarding() (names []string) {
	for _, f := range Forwardings {
		if f.Default {
			names = append(names, strings.ToLower(f.Name))
		}
	}
	return names
}

// forwardings are some of Forwardings, as a set of bits.
type forwardings uint8

// NoForwarding, alone in place of names, is none of the fields.
const NoForwarding = "none"

// newForwardings returns the set of the named fields, in any case; of the default ones without any.
func newForwardings(names []string) (set forwardings, err error) {
	switch {
	case len(names) == 0:
		names = DefaultForwarding()
	case len(names) == 1 && names[0] == NoForwarding:
		return 0, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(Forwardings[:], func(f Forwarding) bool { return strings.EqualFold(f.Name, name) })
		if i < 0 {
			return 0, fmt.Errorf("forwarded field %q: expected one of %s", name, strings.Join(ForwardingNames(), ", "))
		}
		set |= 1 << i
	}
	if set&(1<<placeChain) != 0 && set&(1<<placeCert) == 0 {
		// RFC 9440, section 2.3
		return 0, fmt.Errorf("forwarded field %q needs %q beside it", strings.ToLower(ClientChain), strings.ToLower(ClientCert))
	}
	return set, nil
}

// AppendForwarding appends the lines of all fields by which the upstream learns who is calling.
// chain is the caller's address and the trusted proxies after it, as X-Forwarded-For has them
// (identity.Caller).
func (r *Rules) AppendForwarding(b []byte, o *Onward, chain []byte) []byte {
	for place := range len(Forwardings) {
		if r.forwards(place, o) {
			b = append(append(b, Forwardings[place].Name...), ": "...)
			b = append(appendForwarding(b, place, o, chain), "\r\n"...)
		}
	}
	return b
}

// The places of Forwardings.
const (
	placeFor = iota
	placeProto
	placeHost
	placeRealIP
	placeForwarded
	placeCert
	placeChain
)

// forwards reports whether the field of a place is written.
func (r *Rules) forwards(place int, o *Onward) bool {
	if r.forwarded&(1<<place) == 0 {
		return false
	}
	switch place {
	case placeHost:
		return o.ForwardedHost != ""
	case placeCert:
		return len(o.chain) > 0
	case placeChain:
		return len(o.chain) > 2 // the last is the authority, which the backend has to know anyway
	}
	return true
}

// appendForwarding appends the value of the field of a place.
func appendForwarding(b []byte, place int, o *Onward, chain []byte) []byte {
	switch place {
	case placeFor:
		return append(b, chain...)
	case placeProto:
		return append(b, o.ForwardedProto...)
	case placeHost:
		return append(b, o.ForwardedHost...)
	case placeRealIP:
		return append(b, first(chain)...)
	case placeCert:
		return appendCertificates(b, o.chain[:1])
	case placeChain:
		return appendCertificates(b, o.chain[1:len(o.chain)-1])
	}
	return appendForwarded(b, o, chain)
}

// appendCertificates appends a list of byte sequences (RFC 9440, section 2; RFC 8941).
func appendCertificates(b []byte, all []*x509.Certificate) []byte {
	for i, cert := range all {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(base64.StdEncoding.AppendEncode(append(b, ':'), cert.Raw), ':')
	}
	return b
}

// first returns the first address of a chain.
func first(chain []byte) []byte {
	for i, c := range chain {
		if c == ',' {
			return chain[:i]
		}
	}
	return chain
}

// appendForwarded appends the value of Forwarded (RFC 7239, section 4): an element for each address
// of the chain. The first one is the caller's connection, and has its host and scheme.
func appendForwarded(b []byte, o *Onward, chain []byte) []byte {
	for i := 0; ; i++ {
		hop := first(chain)
		b = appendNode(append(b, "for="...), hop)
		if i == 0 {
			if o.ForwardedHost != "" {
				b = appendParameter(append(b, ";host="...), o.ForwardedHost)
			}
			b = append(append(b, ";proto="...), o.ForwardedProto...)
		}
		if len(hop) == len(chain) {
			return b
		}
		b, chain = append(b, ", "...), chain[len(hop)+len(", "):]
	}
}

// appendNode appends an address as a node (RFC 7239, section 6): IPv6 in brackets and quoted.
func appendNode(b, address []byte) []byte {
	a, err := netip.ParseAddr(string(address))
	switch {
	case err != nil:
		return append(b, "unknown"...)
	case a.Is4():
		return append(b, address...)
	}
	return append(append(append(b, `"[`...), address...), `]"`...)
}

// appendParameter appends a token as it is, and anything else quoted (RFC 9110, section 5.6.4).
func appendParameter(b []byte, value string) []byte {
	if wire.IsToken(value) {
		return append(b, value...)
	}
	b = append(b, '"')
	for _, c := range []byte(value) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}
