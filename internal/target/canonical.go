package target

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A PathError says why a path has no single safe reading (D10).
type PathError struct {
	Path   string // as received
	Reason string
}

func (e *PathError) Error() string {
	return fmt.Sprintf("path %.200q %s", e.Path, e.Reason)
}

// Canonical returns the one form of an escaped path, the part of a request target before the query, that backends receive
// (D10): dot segments resolved as RFC 3986, section 5.2.4, does (".." does not leave the root), empty segments folded,
// unreserved characters unescaped, all others that need it escaped with capital digits. The empty path is "/". A trailing
// slash stays. Canonical(Canonical(p)) is Canonical(p).
//
// What has no single safe reading is a *PathError: an escaped slash or backslash, a raw backslash, blank or "#", a control
// character, an escape that survives decoding ("%256c"), an escape that is none, invalid UTF-8, a dot segment with
// parameters ("..;x", which some backends resolve and others do not), a path that does not begin with a slash.
func Canonical(escapedPath string) (string, error) {
	if IsPlain(escapedPath) {
		return escapedPath, nil
	}
	escaped, _, err := Decode(escapedPath)
	return escaped, err
}

// IsPlain reports whether a path is canonical as it stands, and its own decoded form, which nearly all are, so that nothing is
// copied for it.
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
			return false // perhaps a dot segment
		}
		slash = false
	}
	return true
}

// canonical returns the canonical form of a path, escaped and decoded.
func Decode(p string) (escaped, decoded string, err error) {
	if p == "" {
		return "/", "/", nil
	}
	if p[0] != '/' {
		return "", "", &PathError{p, "does not begin with a slash"}
	}
	w := pathWriter{escaped: make([]byte, 0, len(p)+16), decoded: make([]byte, 0, len(p))}
	directory := false // whether the last segment left nothing but its slash
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

// A pathWriter holds the segments that stand so far, each after its slash, in both forms.
type pathWriter struct{ escaped, decoded []byte }

// add appends one segment, or resolves it: then gone is true.
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
				return errors.New("has a % that begins no escape")
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

// checkText refuses a decoded segment that a backend could decode once more, or differently.
func checkText(s []byte) error {
	for i := 0; i < len(s); {
		c := s[i]
		if c == '%' && survives(s[i+1:]) {
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

// survives reports whether what follows a decoded "%" makes it an escape again: two hex digits, or u and four.
func survives(s []byte) bool {
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

// hidesDots reports whether a segment is a dot segment once parameters, or what else a backend may cut off, are gone.
func hidesDots(name []byte) bool {
	if name[0] != '.' && name[0] != ' ' {
		return false
	}
	for i, c := range name {
		if c == ';' || c == '?' || c == '#' {
			name = name[:i]
			break
		}
	}
	name = []byte(strings.Trim(string(name), " "))
	return string(name) == "." || string(name) == ".."
}

// guess returns a decoded reading of a path that has none that is safe, only to find out which surface it was meant for:
// everything that any backend might decode is decoded.
func Guess(p string) string {
	for range 8 {
		once := unescape(p)
		if once == p {
			break
		}
		p = once
	}
	// The overlong forms of slash, backslash and dot, and the characters that are dropped or read as a slash somewhere.
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

// unescape decodes what escapes there are and leaves everything else.
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

// The classes of the bytes of a path: RFC 3986, sections 2.3 (unreserved) and 3.3 (what else a segment may hold as it is).
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
