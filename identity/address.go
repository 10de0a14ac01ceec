package identity

import (
	"net/netip"
	"slices"
	"strings"
)

// clientAddr finds the client (D12). It is the peer, unless the peer is a trusted proxy. Then it is
// the first address from the right of the configured field that is no trusted proxy, or the
// leftmost if all are trusted. An entry that cannot be parsed ends the walk at the last trusted
// hop. visit, if not nil, is called with each hop from the peer to the client.
func (r *Resolver) clientAddr(req Request, visit func(netip.Addr)) netip.Addr {
	client := req.Peer()
	if visit != nil && client.IsValid() {
		visit(client)
	}
	if len(r.options.TrustedProxies) == 0 || !r.trusts(client) {
		return client
	}
	lines := req.Header(r.header)
	for i := len(lines) - 1; i >= 0; i-- {
		hops := hopWalk{rest: lines[i], forwarded: r.header == "Forwarded"}
		for {
			text, ok := hops.next()
			if !ok {
				break
			}
			hop := parseHop(text)
			if !hop.IsValid() {
				return client
			}
			client = hop
			if visit != nil {
				visit(client)
			}
			if !r.trusts(client) {
				return client
			}
		}
	}
	return client
}

// Trusts reports whether the peer of a connection is in Options.TrustedProxies.
func (r *Resolver) Trusts(peer netip.Addr) bool { return r.trusts(peer.Unmap().WithZone("")) }

func (r *Resolver) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(r.options.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ParsePeer parses the remote address of a connection, such as RemoteAddr of net/http, which is
// nearly always an address with a port. The result is IPv4 unmapped and without a zone, and the
// zero Addr if s is no address.
func ParsePeer(s string) netip.Addr {
	if a, ok := parseIPv4Peer(s); ok {
		return a
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	return parseHop(s)
}

// parseIPv4Peer parses an IPv4 address with a port, the most frequent form, in a third of the time
// that netip takes. For every other form ok is false, and netip parses it.
func parseIPv4Peer(s string) (a netip.Addr, ok bool) {
	var b [4]byte
	field, n, digits := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			n = n*10 + int(c-'0')
			digits++
			if digits > 1 && n < 10 || n > 255 { // a leading zero means octal to some parsers
				return netip.Addr{}, false
			}
		case digits == 0:
			return netip.Addr{}, false
		case c == '.' && field < 3:
			b[field] = byte(n)
			field, n, digits = field+1, 0, 0
		case c == ':' && field == 3:
			b[3] = byte(n)
			return netip.AddrFrom4(b), isPort(s[i+1:])
		default:
			return netip.Addr{}, false
		}
	}
	return netip.Addr{}, false
}

func isPort(s string) bool {
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || i == 5 {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return s != "" && n <= 65535
}

// parseHop parses an address with or without a port, and IPv6 with or without brackets. For
// anything else it returns the zero Addr. It rejects characters that no zone has, such as a quote
// or a comma: netip would accept any text as a zone.
func parseHop(s string) netip.Addr {
	s = strings.Trim(s, " \t")
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, foreignToHops) {
		return netip.Addr{}
	}
	if s[0] != '[' && strings.Count(s, ":") != 1 { // an address alone
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Addr{}
		}
		return a.Unmap().WithZone("")
	}
	if s[0] == '[' && s[len(s)-1] == ']' {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		if err != nil || !a.Is6() {
			return netip.Addr{}
		}
		return a.Unmap().WithZone("")
	}
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// foreignToHops reports whether r occurs in no address, port or zone (the unreserved characters of
// RFC 6874).
func foreignToHops(r rune) bool {
	return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("[]:.%-_~", r))
}

// A hopWalk iterates over the elements of one line from the right. It looks at what a client wrote
// on the left only when every hop to its right is trusted.
type hopWalk struct {
	rest      string
	forwarded bool // the syntax of Forwarded, else a plain list
	done      bool
}

// next returns the address that the next element names; ok is false at the end of the line. For an
// element that is empty (two commas, Forwarded without "for") or malformed it returns an empty
// text, which is no address.
func (h *hopWalk) next() (text string, ok bool) {
	if h.done {
		return "", false
	}
	comma := strings.LastIndexByte(h.rest, ',')
	if h.forwarded {
		comma = lastUnquotedComma(h.rest)
	}
	element := h.rest[comma+1:]
	h.done = comma < 0
	if !h.done {
		h.rest = h.rest[:comma]
	}
	if h.forwarded {
		element = forwardedFor(element)
	}
	return element, true
}

// lastUnquotedComma returns the index of the comma before the last element of a Forwarded line, or
// −1. It reads from the right: the first quote that it meets closes a string, and the next one that
// is not escaped opens it. So a quote that a client left open cannot swallow what the proxies
// appended.
func lastUnquotedComma(s string) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == ',' && !quoted:
			return i
		case s[i] == '"' && !quoted:
			quoted = true
		case s[i] == '"' && !isEscaped(s, i):
			quoted = false
		}
	}
	return -1
}

// isEscaped reports whether s[i] follows an odd number of backslashes.
func isEscaped(s string, i int) bool {
	backslashes := len(s[:i]) - len(strings.TrimRight(s[:i], `\`))
	return backslashes%2 == 1
}

// forwardedFor returns the "for" of one element of a Forwarded line (RFC 7239, section 4), which is
// a list of pairs joined by ";". It returns "" if the element has no "for", more than one, or is
// malformed.
func forwardedFor(s string) string {
	hop, seen := "", false
	for {
		s = strings.TrimLeft(s, " \t")
		if s == "" {
			return hop
		}
		if s[0] == ';' {
			s = s[1:]
			continue
		}
		eq := strings.IndexByte(s, '=')
		if eq <= 0 || strings.ContainsAny(s[:eq], " \t,;\"") {
			return ""
		}
		name := s[:eq]
		value, tail, ok := forwardedValue(s[eq+1:])
		if !ok {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return ""
			}
			seen, hop = true, value
		}
		s = strings.TrimLeft(tail, " \t")
		if s != "" && s[0] != ';' {
			return ""
		}
	}
}

// forwardedValue parses a token or a quoted string, and returns what follows it.
func forwardedValue(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		end := strings.IndexAny(s, " \t,;")
		if end < 0 {
			end = len(s)
		}
		if strings.IndexByte(s[:end], '"') >= 0 {
			return "", "", false
		}
		return s[:end], s[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
