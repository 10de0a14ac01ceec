package accesslog

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// requestLine parses a logged request: "GET /path HTTP/1.1", or without a version as in HTTP/0.9.
// Method and target are returned as received. Both are nil if b is not a request (a TLS handshake
// in a plain HTTP log, a time-out).
func requestLine(b []byte) (method, target []byte) {
	blank := bytes.IndexByte(b, ' ')
	if blank <= 0 || !isMethod(b[:blank]) || string(b[:blank]) == "-" {
		return nil, nil
	}
	method, target = b[:blank], b[blank+1:]
	if version := versionLength(target); version > 0 {
		target = target[:len(target)-version]
	} else if len(target) > 0 && target[0] != '/' && authority(target) < 0 {
		return nil, nil
	}
	if len(target) == 0 {
		return nil, nil
	}
	return method, target
}

// versionLength returns the length of " HTTP/" and a version at the end of b, or 0 if b does not
// end so.
func versionLength(b []byte) int {
	for _, n := range [...]int{len(" HTTP/1.1"), len(" HTTP/2")} {
		if len(b) < n {
			continue
		}
		end := b[len(b)-n:]
		if string(end[:6]) == " HTTP/" && isDigit(end[6]) && (n == 7 || end[7] == '.' && isDigit(end[8])) {
			return n
		}
	}
	return 0
}

// authority returns the index of the authority in a target in absolute form, or -1 for another
// form.
func authority(target []byte) int {
	for _, scheme := range [...]string{"http://", "https://"} {
		if len(target) >= len(scheme) && bytes.EqualFold(target[:len(scheme)], []byte(scheme)) {
			return len(scheme)
		}
	}
	return -1
}

// origin returns the path and query of a target in absolute form, and any other target unchanged.
// The host of an absolute form is the record's, whatever its Host field was (RFC 9112, section
// 3.2.2).
func (r *record) origin(target []byte) []byte {
	if target == nil || target[0] == '/' {
		return target
	}
	from := authority(target)
	if from < 0 {
		return target
	}
	path := bytes.IndexAny(target[from:], "/?#")
	if path < 0 {
		r.Host = target[from:]
		return r.own([]byte{'/'})
	}
	path += from
	if r.Host = target[from:path]; target[path] == '/' {
		return target[path:]
	}
	r.own([]byte{'/'})
	tail := r.own(target[path:])
	return r.scratch[len(r.scratch)-len(tail)-1:]
}

// isMethod reports whether b is a token (RFC 9110) of at most 64 bytes.
func isMethod(b []byte) bool {
	if len(b) == 0 || len(b) > 64 {
		return false
	}
	for _, c := range b {
		if c-'A' <= 'Z'-'A' || c-'a' <= 'z'-'a' || isDigit(c) {
			continue
		}
		if bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) < 0 {
			return false
		}
	}
	return true
}

// quoteEnd returns the index of the quote that ends a quoted value beginning at b[0], skipping
// escaped quotes, or -1 if there is none. It examines each byte at most twice.
func quoteEnd(b []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		i += from
		slashes := 0
		for i-slashes > from && b[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		from = i + 1
	}
}

// unescape removes, in place, the escapes with which nginx (\x22, or with escape=json \" and
// \u0022) and Apache (\" and \t) write bytes that would end a value or a line. Invalid escapes are
// kept.
func unescape(b []byte) []byte {
	first := bytes.IndexByte(b, '\\')
	if first < 0 {
		return b
	}
	out := b[:first]
	for i := first; i < len(b); {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			i++
			continue
		}
		if plain := escaped(b[i+1]); plain != 0 {
			out = append(out, plain)
			i += 2
			continue
		}
		switch n := hex(b[i+2:], 2); {
		case b[i+1] == 'x' && n >= 0:
			out = append(out, byte(n))
			i += 4
			continue
		case b[i+1] == 'u':
			if r, size := unicodeEscape(b[i:]); size > 0 {
				out = utf8.AppendRune(out, r) // not longer than the escape
				i += size
				continue
			}
		}
		out = append(out, b[i])
		i++
	}
	return out
}

// escaped returns the byte of a one-letter escape, or 0 for any other c.
func escaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'v':
		return '\v'
	}
	return 0
}

// unicodeEscape reads \u0022 at b, or a surrogate pair; size is 0 if b begins with neither.
func unicodeEscape(b []byte) (r rune, size int) {
	if len(b) < 6 {
		return 0, 0
	}
	n := hex(b[2:], 4)
	if n < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(n) {
		return n, 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if pair := utf16.DecodeRune(n, hex(b[8:], 4)); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

// hex parses n hex digits at b, or returns -1 for any other characters.
func hex(b []byte, n int) rune {
	if len(b) < n {
		return -1
	}
	value := rune(0)
	for _, c := range b[:n] {
		switch {
		case isDigit(c):
			c -= '0'
		case c-'a' < 6:
			c -= 'a' - 10
		case c-'A' < 6:
			c -= 'A' - 10
		default:
			return -1
		}
		value = value<<4 | rune(c)
	}
	return value
}

// given returns a logged value, or nil for an empty one and for "-".
func given(b []byte) []byte {
	if len(b) == 0 || len(b) == 1 && b[0] == '-' {
		return nil
	}
	return b
}

// lastOf returns the last of a list of addresses such as X-Forwarded-For: the one that the nearest
// proxy has seen.
func lastOf(b []byte) []byte {
	if comma := bytes.LastIndexByte(b, ','); comma >= 0 {
		return given(bytes.TrimSpace(b[comma+1:]))
	}
	return b
}
