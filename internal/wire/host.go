package wire

import (
	"net/netip"
	"strings"
)

// ValidHost reports whether a Host field's value is empty, or a host and perhaps a port (RFC 9110,
// section 7.2). A host is a name or an IPv4 address, in the bytes that RFC 3986, section 3.2.2,
// allows except the comma, or an IPv6 address in brackets, without a zone. A port is at most 65535,
// and may be empty.
func ValidHost(s string) bool {
	if s == "" {
		return true
	}
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		address, err := netip.ParseAddr(s[1:end])
		return err == nil && address.Is6() && address.Zone() == "" && validPort(s[end+1:])
	}
	i := 0
	for {
		i = span(s, i, inHost)
		if len(s)-i < 3 || s[i] != '%' || classes[s[i+1]]&classes[s[i+2]]&isHex == 0 {
			break
		}
		i += 3
	}
	return i > 0 && validPort(s[i:])
}

// validPort reports whether s is empty, or a colon and a port.
func validPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' {
		return false
	}
	port := 0
	for i := 1; i < len(s); i++ {
		digit := s[i] - '0'
		if digit > 9 {
			return false
		}
		if port = port*10 + int(digit); port > 65535 {
			return false
		}
	}
	return true
}
