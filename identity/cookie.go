package identity

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// appendCookie appends the value of a cookie (see CookieValue). A request counts as one without the
// cookie if a backend could read another value than the one that was counted: if it has the cookie
// with two different values, with a value that servers read differently, or beside one whose name
// only some read as this name or only some find at all (see hidesCookie).
func (c *Caller) appendCookie(dst []byte, name string) ([]byte, bool) {
	value, found := "", false
	for _, line := range c.request.Header("Cookie") {
		for rest := line; rest != ""; {
			var pair string
			pair, rest, _ = strings.Cut(rest, ";")
			before, v, _ := strings.Cut(pair, "=")
			if before = strings.Trim(before, " \t"); before != name {
				if readsAs(before, name) != otherName || hidesCookie(pair, name) {
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
// escaped as UTF-8, a quote, a backslash, a "%" that begins no escape, or, not escaped, a blank, a
// comma or a "&", at which some servers end it.
func CookieValue(s string) (value string, ok bool) {
	s = strings.Trim(s, " \t")
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	for i := range len(s) {
		if c := s[i]; endsCookie[c] || c == '&' || c == '\\' {
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

// endsCookie has the bytes after which some servers read another cookie. Beside the semicolon these
// are the comma (RFC 2965; Perl and old versions of Rack), blanks (Python) and the quotes around a
// value. To servers that read fields as Latin-1 and trim names, some bytes beyond ASCII are blanks.
var endsCookie = func() (t [256]bool) {
	for c := range t {
		t[c] = c <= ' ' || c >= 0x7f || c == ';' || c == ',' || c == '"'
	}
	return t
}()

// hidesCookie reports whether a server that ends cookies at any byte of endsCookie finds one in
// pair that some read as name. pair is what is between two semicolons, and its own name is another.
func hidesCookie(pair, name string) bool {
	pair = strings.Trim(pair, " \t")
	end := 0
	for end < len(pair) && !endsCookie[pair[end]] {
		end++
	}
	if end == len(pair) { // as nearly always
		return false
	}
	for end = 0; end < len(pair); end++ {
		start := end
		for end < len(pair) && pair[end] != '=' && !endsCookie[pair[end]] {
			end++
		}
		if end-start >= len(name) && isAssigned(pair[end:]) && readsAs(pair[start:end], name) != otherName {
			return true
		}
		for end < len(pair) && !endsCookie[pair[end]] {
			end++
		}
	}
	return false
}

// isAssigned reports whether what follows a name begins with "=", perhaps after blanks.
func isAssigned(rest string) bool {
	for i := range len(rest) {
		if !endsCookie[rest[i]] {
			return rest[i] == '='
		}
	}
	return false
}
