package identity

import (
	"net/netip"
	"strings"
)

func (c *Caller) appendHost(dst []byte, _ string) ([]byte, bool) {
	return AppendHost(dst, c.request.Host())
}

// AppendHost appends to dst the host of an authority in the form that it is counted by: without
// port, in lower case, without a dot at the end, and an IPv6 address in its shortest form (D33). ok
// is false, and host is dst, if authority is empty or its host is neither an address nor a name of
// letters, digits, dashes, underscores and dots. A name of other letters is accepted in its ASCII
// form alone, which all clients send.
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
