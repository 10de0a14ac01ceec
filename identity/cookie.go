package identity

import "strings"

// appendCookie appends the value of a cookie, without the quotes around it. A request that has the
// cookie with two different values, or with a value that servers would not all accept, counts as
// one without it: a backend could read another value than the one that was counted.
func (c *Caller) appendCookie(dst []byte, name string) ([]byte, bool) {
	value, found := "", false
	for _, line := range c.request.Header("Cookie") {
		for rest := line; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, ";")
			before, v, _ := strings.Cut(pair, "=")
			if strings.Trim(before, " \t") != name {
				continue
			}
			v, ok := CookieValue(v)
			if !ok || found && v != value {
				return dst, false
			}
			value, found = v, true
		}
	}
	return append(dst, value...), value != ""
}

// CookieValue returns the form of a cookie's value that it is counted by: without the blanks and
// the quotes around it (RFC 6265, section 4.1.1). ok is false if it has a character that servers
// read differently. Blanks inside and commas are accepted, since browsers send them.
func CookieValue(s string) (value string, ok bool) {
	s = strings.Trim(s, " \t")
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return "", false
		}
	}
	return s, true
}
