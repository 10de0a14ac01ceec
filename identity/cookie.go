package identity

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// appendCookie appends the value of a cookie (see CookieValue). A request that has the cookie with
// two different values, with a value that servers read differently, or beside one whose name only
// some read as this name, counts as one without it: a backend could read another value than the one
// that was counted.
func (c *Caller) appendCookie(dst []byte, name string) ([]byte, bool) {
	value, found := "", false
	for _, line := range c.request.Header("Cookie") {
		for rest := line; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, ";")
			before, v, _ := strings.Cut(pair, "=")
			if before = strings.Trim(before, " \t"); before != name {
				if readsAs(before, name) != otherName {
					return dst, false
				}
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
// the quotes around it (RFC 6265, section 4.1.1), its escapes decoded once, as PHP and Express do.
// A backend that decodes nothing reads two values where one is counted. ok is false if it has
// something that servers read differently: a control character or one beyond ASCII that is not
// escaped as UTF-8, a quote, a backslash, a "%" that begins no escape. Blanks inside and commas are
// accepted, since browsers send them.
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
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	s, err := url.PathUnescape(s)
	if err != nil || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "", false
	}
	return s, true
}
