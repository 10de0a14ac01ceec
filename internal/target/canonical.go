package target

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A PathError is the reason why a path has no canonical form (see Canonical).
type PathError struct {
	Path   string // as received
	Reason string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %.200q %s", e.Path, e.Reason)
}

// Canonical returns the canonical form of an escaped path, which is the part of a request target
// before the query. Upstreams receive only this form. Dot segments are resolved as in RFC 3986,
// section 5.2.4 (".." at the root stays at the root), empty segments are removed, unreserved
// characters are unescaped, and all others that need it are escaped with upper-case digits. The
// empty path becomes "/". A trailing slash is kept. Canonical is idempotent.
//
// A path that upstreams could read in more than one way is rejected with a *PathError: an escaped
// slash or backslash, a raw backslash, space or "#", a control character, an escape that is still
// one after decoding ("%256c"), an incomplete escape, invalid UTF-8, a dot segment with parameters
// ("..;x", which some upstreams resolve and others do not), a path that does not begin with a
// slash.
func Canonical(escapedPath string) (string, error) {
	if IsPlain(escapedPath) {
		return escapedPath, nil
	}
	escaped, _, err := Decode(escapedPath)
	return escaped, err
}

// IsPlain reports whether a path is canonical and equal to its decoded form. Nearly all paths are,
// and none of those is copied. It is false for some paths that are, too.
func IsPlain(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	slash := false
	for i := range len(p) {
		c := p[i]
		if class[c]&(unreserved|delimiter) == 0 {
			if c != '/' || slash {
				return false
			}
			slash = true
			continue
		}
		if slash && c == '.' {
			return false // may be a dot segment
		}
		slash = false
	}
	return true
}

// Decode returns the canonical form of a path, escaped and decoded. The error is a *PathError.
func Decode(p string) (escaped, decoded string, err error) {
	if p == "" {
		return "/", "/", nil
	}
	if p[0] != '/' {
		return "", "", &PathError{p, "does not begin with a slash"}
	}
	w := pathWriter{escaped: make([]byte, 0, len(p)+16), decoded: make([]byte, 0, len(p))}
	directory := false // the last segment added only its slash
	for segment := range strings.SplitSeq(p[1:], "/") {
		if directory, err = w.add(segment); err != nil {
			return "", "", &PathError{p, err.Error()}
		}
	}
	if directory || len(w.escaped) == 0 {
		w.escaped, w.decoded = append(w.escaped, '/'), append(w.decoded, '/')
	}
	return string(w.escaped), string(w.decoded), nil
}

// A pathWriter holds the resolved segments in both forms, each after its slash.
type pathWriter struct{ escaped, decoded []byte }

// add appends one segment, or resolves it, in which case gone is true.
func (w *pathWriter) add(segment string) (gone bool, err error) {
	start, from := len(w.escaped), len(w.decoded)
	w.escaped, w.decoded = append(w.escaped, '/'), append(w.decoded, '/')
	if err := w.decode(segment); err != nil {
		return false, err
	}
	name := w.decoded[from+1:]
	if err := checkText(name); err != nil {
		return false, err
	}
	switch string(name) {
	case "", ".":
		w.escaped, w.decoded = w.escaped[:start], w.decoded[:from]
		return true, nil
	case "..":
		w.escaped = w.escaped[:max(bytes.LastIndexByte(w.escaped[:start], '/'), 0)]
		w.decoded = w.decoded[:max(bytes.LastIndexByte(w.decoded[:from], '/'), 0)]
		return true, nil
	}
	if hidesDots(name) {
		return false, errors.New("has a dot segment with something after it, which backends resolve differently")
	}
	return false, nil
}

// decode appends the bytes of a segment to both forms.
func (w *pathWriter) decode(segment string) error {
	for i := 0; i < len(segment); i++ {
		c, wasEscaped := segment[i], false
		if c == '%' {
			if i+2 >= len(segment) || class[segment[i+1]]&hexDigit == 0 || class[segment[i+2]]&hexDigit == 0 {
				return errors.New("has a % that does not begin an escape")
			}
			c, wasEscaped = unhex(segment[i+1])<<4|unhex(segment[i+2]), true
			i += 2
		}
		switch {
		case c < ' ' || c == 0x7f:
			return errors.New("has a control character")
		case c == '\\':
			return errors.New("has a backslash, which some backends read as a slash")
		case wasEscaped && c == '/':
			return errors.New("has an escaped slash, which some backends read as a slash")
		case !wasEscaped && (c == ' ' || c == '#' || c == '?'):
			return fmt.Errorf("has a raw %q", c)
		}
		w.decoded = append(w.decoded, c)
		if class[c]&unreserved != 0 || !wasEscaped && class[c]&delimiter != 0 {
			w.escaped = append(w.escaped, c)
		} else {
			w.escaped = append(w.escaped, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return nil
}

// checkText rejects a decoded segment that an upstream could decode a second time, or differently.
func checkText(s []byte) error {
	for i := 0; i < len(s); {
		c := s[i]
		if c == '%' && isEscape(s[i+1:]) {
			return errors.New("has an escape that survives decoding")
		}
		if c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && size == 1 {
			return errors.New("is not UTF-8")
		}
		if r < 0xa0 {
			return errors.New("has a control character")
		}
		i += size
	}
	return nil
}

// isEscape reports whether a "%" followed by s is an escape: two hex digits, or u and four.
func isEscape(s []byte) bool {
	if len(s) >= 5 && (s[0] == 'u' || s[0] == 'U') {
		s = s[1:5]
		return areHex(s)
	}
	return len(s) >= 2 && areHex(s[:2])
}

func areHex(s []byte) bool {
	for _, c := range s {
		if class[c]&hexDigit == 0 {
			return false
		}
	}
	return true
}

// hidesDots reports whether an upstream could read a segment as a dot segment because it cuts off
// parameters, a query, a fragment or spaces.
func hidesDots(name []byte) bool {
	if name[0] != '.' && name[0] != ' ' {
		return false
	}
	trimmed := nameOf(string(name))
	return trimmed == "." || trimmed == ".."
}

// nameOf returns a segment without what some backends cut off: parameters, a query, a fragment, and
// blanks around the rest and before its dots.
func nameOf(segment string) string {
	if i := strings.IndexAny(segment, ";?#"); i >= 0 {
		segment = segment[:i]
	}
	if !strings.Contains(segment, " .") {
		return strings.Trim(segment, " ")
	}
	name := make([]byte, 0, len(segment))
	for _, c := range []byte(segment) {
		if c == '.' {
			name = bytes.TrimRight(name, " ")
		}
		name = append(name, c)
	}
	return string(bytes.Trim(name, " "))
}

// Guess returns a decoded form of a path that Canonical rejects. It decodes everything that any
// upstream might decode, and serves only to find the surface that the request was probably meant
// for.
func Guess(p string) string {
	for range 8 {
		once := unescape(p)
		if once == p {
			break
		}
		p = once
	}
	// Overlong forms of slash, backslash and dot, and the characters that some servers drop or read
	// as a slash.
	p = strings.NewReplacer("\xc0\xaf", "/", "\xc1\x9c", "/", "\xc0\xae", ".", `\`, "/").Replace(p)
	p = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, p)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p
}

// unescape decodes all valid escapes in p and leaves the rest.
func unescape(p string) string {
	if !strings.Contains(p, "%") {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) && class[p[i+1]]&hexDigit != 0 && class[p[i+2]]&hexDigit != 0 {
			b = append(b, unhex(p[i+1])<<4|unhex(p[i+2]))
			i += 2
			continue
		}
		b = append(b, p[i])
	}
	return string(b)
}

const hexDigits = "0123456789ABCDEF"

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// Classes of the bytes of a path: RFC 3986, sections 2.3 (unreserved) and 3.3 (other characters
// that a segment may contain unescaped).
const (
	unreserved = 1 << iota
	delimiter
	hexDigit
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		switch c := byte(c); {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			t[c] |= unreserved
		case strings.IndexByte("!$&'()*+,;=:@", c) >= 0:
			t[c] |= delimiter
		}
		switch c := byte(c); {
		case 'a' <= c && c <= 'f', 'A' <= c && c <= 'F', '0' <= c && c <= '9':
			t[c] |= hexDigit
		}
	}
	return t
}()
