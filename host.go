package weir

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// AppendHost appends to dst the host of an authority, which is the value of a Host field, in the
// form that hosts are compared and counted in: without port, in lower case, without a dot at the
// end, and an IPv6 address in its shortest form (D33). ok is false, and host is dst, if authority
// is empty or its host is neither an address nor a name of letters, digits, dashes, underscores and
// dots. A name of other letters is accepted in its ASCII form alone, which all clients send.
func AppendHost(dst []byte, authority string) (host []byte, ok bool) {
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 || !isPortSuffix(authority[end+1:]) {
			return dst, false
		}
		a, err := netip.ParseAddr(authority[1:end])
		if err != nil || !a.Is6() || a.Zone() != "" {
			return dst, false
		}
		return append(a.AppendTo(append(dst, '[')), ']'), true
	}
	name := authority
	if i := strings.IndexByte(authority, ':'); i >= 0 {
		if !isPortSuffix(authority[i:]) {
			return dst, false
		}
		name = authority[:i]
	}
	name = strings.TrimSuffix(name, ".")
	host = dst
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			host = append(host, c+'a'-'A')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && i > 0 && name[i-1] != '.':
			host = append(host, c)
		default:
			return dst, false
		}
	}
	if name == "" || name[len(name)-1] == '.' {
		return dst, false
	}
	return host, true
}

// isPortSuffix reports whether s is empty, or a colon and digits.
func isPortSuffix(s string) bool {
	if s == "" {
		return true
	}
	return s[0] == ':' && strings.Trim(s[1:], "0123456789") == ""
}

// A HostTable holds values by host, as routes are found by theirs (D33). A request gets the value
// of its own host, else that of the longest name with a star that covers it, else that of all
// hosts. The zero value is empty. Get is safe for concurrent use while Set is not called.
type HostTable[T any] struct {
	any   *T
	exact map[string]*T // by host; with under nil if no host was set
	under map[string]*T // by what follows the star: ".example.com" for "*.example.com"
}

// Set sets the value of a host in the form of Route.Host; empty: of all hosts.
func (t *HostTable[T]) Set(host string, v T) { *t.at(host) = v }

// at returns where the value of a host is, and makes a missing one.
func (t *HostTable[T]) at(host string) *T {
	if host == "" {
		if t.any == nil {
			t.any = new(T)
		}
		return t.any
	}
	if t.exact == nil {
		t.exact, t.under = make(map[string]*T), make(map[string]*T)
	}
	in := t.exact
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		in, host = t.under, suffix
	}
	if in[host] == nil {
		in[host] = new(T)
	}
	return in[host]
}

// above returns the value of the longest name with a star that covers a folded host, else that of
// all hosts; nil if there is neither.
func (t *HostTable[T]) above(host string) *T {
	if len(t.under) == 0 {
		return t.any
	}
	for i := 1; i < len(host); i++ {
		if host[i] != '.' {
			continue
		}
		if under := t.under[host[i:]]; under != nil {
			return under
		}
	}
	return t.any
}

// Get returns the value for an authority, which is the value of a Host field; nil if there is none.
// An authority that is no host gets the value of all hosts. The value must not be changed.
func (t *HostTable[T]) Get(authority string) *T {
	if t.exact == nil {
		return t.any
	}
	var space [128]byte
	host, ok := AppendHost(space[:0], authority)
	if !ok {
		return t.any
	}
	if exact := t.exact[string(host)]; exact != nil {
		return exact
	}
	if len(t.under) == 0 {
		return t.any
	}
	return t.above(string(host))
}

// hostProblem returns what is wrong with the host of a route; nil if it has none.
func (r Route) hostProblem() error {
	name, star := strings.CutPrefix(r.Host, "*.")
	switch {
	case r.Host == "":
		return nil
	case strings.Contains(name, "*"):
		return fmt.Errorf("host %q: a star stands for all names before a dot, at the beginning only, as in *.example.com", r.Host)
	}
	if a, err := netip.ParseAddr(name); err == nil && a.Is6() {
		return fmt.Errorf("host %q: write an IPv6 address in brackets: [%v]", r.Host, a)
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, ']') {
		return fmt.Errorf("host %q has a port, which is not compared: write %q", r.Host, strings.TrimSuffix(r.Host, name[i:]))
	}
	for _, c := range []byte(name) {
		if c >= 0x80 {
			return fmt.Errorf("host %q: write its ASCII form, which begins with xn--", r.Host)
		}
	}
	folded, ok := AppendHost(nil, name)
	switch {
	case !ok || len(name) > maxHost:
		return fmt.Errorf("host %q is neither a name of letters, digits, dashes and dots, of at most %d bytes, nor an address", r.Host, maxHost)
	case string(folded) != name:
		return fmt.Errorf("host %q is compared as %q: write it so", r.Host, strings.TrimSuffix(r.Host, name)+string(folded))
	case star && name[0] == '[':
		return errors.New("a star cannot be before an address")
	}
	return nil
}

// maxHost is the max length of a host name (RFC 1035, section 2.3.4).
const maxHost = 253

// cutHost cuts what a policy writes before the path of a route, and returns it as Route.Host has
// it, if it is a host at all. A name without a dot needs one at its end: "orders/x" is more likely
// a path that lacks its slash.
func cutHost(s string) (host, path string) {
	i := strings.IndexByte(s, '/')
	if i <= 0 || !strings.ContainsAny(s[:i], ".:") && s[:i] != "localhost" {
		return "", s
	}
	host, star := strings.CutPrefix(s[:i], "*.")
	if folded, ok := AppendHost(nil, host); ok && !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":") {
		host = string(folded)
	}
	if star {
		host = "*." + host
	}
	return host, s[i:]
}
