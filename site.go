package weir

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// sites are the routes of a policy by the host that they name (D33).
type sites struct {
	any   *site            // the routes that name no host
	exact map[string]*site // by host; with under nil if no route names a host
	under map[string]*site // by what follows the star: ".example.com" for "*.example.com"
}

// A site has the routes of one host, or of all hosts under one name.
type site struct {
	table *table
	wider *site // whose routes cover what these do not; nil: no other routes
}

func newSites() *sites { return &sites{any: &site{table: newTable()}} }

// add adds a route, as table.add does.
func (s *sites) add(r Route, by *cover) (taken *cover, ok bool) {
	return s.of(r.Host).table.add(r, by)
}

// of returns the site of a route's host, and makes a missing one.
func (s *sites) of(host string) *site {
	if host == "" {
		return s.any
	}
	if s.exact == nil {
		s.exact, s.under = make(map[string]*site), make(map[string]*site)
	}
	in := s.exact
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		in, host = s.under, suffix
	}
	if in[host] == nil {
		in[host] = &site{table: newTable()}
	}
	return in[host]
}

// link completes the sites after the last add.
func (s *sites) link() {
	for host, site := range s.exact {
		site.wider = s.above(host)
	}
	for suffix, site := range s.under {
		site.wider = s.above(suffix[1:])
	}
}

// above returns the narrowest site with a star that covers a folded host.
func (s *sites) above(host string) *site {
	if len(s.under) == 0 {
		return s.any
	}
	for i := 1; i < len(host); i++ {
		if host[i] != '.' {
			continue
		}
		if under := s.under[host[i:]]; under != nil {
			return under
		}
	}
	return s.any
}

// find returns the narrowest site that covers a request for an authority: the value of a Host
// field. One that is no host is covered by the routes that name none.
func (s *sites) find(authority string) *site {
	if s.exact == nil {
		return s.any
	}
	var space [128]byte
	host, ok := AppendHost(space[:0], authority)
	if !ok {
		return s.any
	}
	if exact := s.exact[string(host)]; exact != nil {
		return exact
	}
	if len(s.under) == 0 {
		return s.any
	}
	return s.above(string(host))
}

// match returns the most specific route of a request: that of the narrowest site that has one.
func (s *sites) match(method, authority, path string) *cover {
	for at := s.find(authority); at != nil; at = at.wider {
		if by := at.table.match(method, path); by != nil {
			return by
		}
	}
	return nil
}

// walk calls visit with every route that covers a request, the most specific first, until visit
// returns false.
func (at *site) walk(method, path string, visit func(*cover) bool) {
	for ; at != nil; at = at.wider {
		if !at.table.walk(method, path, visit) {
			return
		}
	}
}

// catchAll returns the least specific route of the narrowest site that has one for the path.
func (s *sites) catchAll(authority, path string) *cover {
	for at := s.find(authority); at != nil; at = at.wider {
		if by := at.table.catchAll(path); by != nil {
			return by
		}
	}
	return nil
}

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

// hostProblem returns what is wrong with the host of a route; nil if it has none.
func (r Route) hostProblem() error {
	name, star := strings.CutPrefix(r.Host, "*.")
	switch {
	case r.Host == "":
		return nil
	case strings.Contains(name, "*"):
		return fmt.Errorf("host %q: a star stands for all names before a dot, at the beginning only, as in *.example.com", r.Host)
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
