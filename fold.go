package weir

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// folded returns the form of path that chooses the limiter (see fold). The root is the empty path,
// because every path is below it. Most paths are in that form already, and are not copied.
func folded(path string) string {
	if isFolded(path) {
		return path
	}
	if p := string(fold(nil, path)); p != "/" {
		return p
	}
	return ""
}

func isFolded(path string) bool {
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	before := byte(0)
	for _, c := range []byte(path) {
		switch {
		case plain[c]:
		case c == '/' && before != '/':
		case c == '.' && before != '/': // fold must look at a segment that begins with a dot
		default:
			return false
		}
		before = c
	}
	return true
}

// plain holds the bytes that fold never changes.
var plain = func() (t [256]bool) {
	for c := range utf8.RuneSelf {
		t[c] = !('A' <= c && c <= 'Z') && c != '/' && c != '\\' && c != '.' && c != ';'
	}
	return t
}()

// fold appends the form of path that chooses the limiter (D10); nothing else uses that form.
// Letters are in lower case. ";parameters", empty segments and trailing slashes are dropped. A
// backslash is a slash. Dot segments are resolved. So every spelling that a backend may accept is
// counted.
func fold(dst []byte, path string) []byte {
	for i := 0; i < len(path); {
		if isSlash(path[i]) {
			i++
			continue
		}
		start := len(dst)
		dst = append(dst, '/')
		for i < len(path) && !isSlash(path[i]) && path[i] != ';' {
			c := path[i]
			if c >= utf8.RuneSelf {
				r, size := utf8.DecodeRuneInString(path[i:])
				dst = appendFolded(dst, r, path[i:i+size])
				i += size
				continue
			}
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
		}
		for i < len(path) && !isSlash(path[i]) {
			i++
		}
		switch string(dst[start:]) {
		case "/", "/.":
			dst = dst[:start]
		case "/..":
			dst = dst[:max(bytes.LastIndexByte(dst[:start], '/'), 0)]
		}
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// appendFolded appends one representative of the letters that some case-insensitive comparison
// treats as equal: the Kelvin sign is a k, the dotless i an i, the sharp s a double s. Bytes that
// are not UTF-8 stay as they are.
func appendFolded(dst []byte, r rune, raw string) []byte {
	if r == utf8.RuneError {
		return append(dst, raw...)
	}
	if letters, ok := unfolded[r]; ok {
		return append(dst, letters...)
	}
	smallest := r
	for s := unicode.SimpleFold(r); s != r; s = unicode.SimpleFold(s) {
		smallest = min(smallest, s)
	}
	return utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(smallest)))
}

// unfolded holds the letters whose full case folding (Unicode, CaseFolding.txt, status F) is
// several ASCII letters. It also holds the capital I with a dot, which some languages fold to an i.
var unfolded = map[rune]string{
	'\u00DF': "ss", '\u1E9E': "ss", '\u0130': "i",
	'\uFB00': "ff", '\uFB01': "fi", '\uFB02': "fl", '\uFB03': "ffi", '\uFB04': "ffl", '\uFB05': "st", '\uFB06': "st",
}
