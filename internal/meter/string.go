package meter

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted is a string that a scanner reads.
type quoted struct {
	isName     bool // of a member
	isCompared bool // with the name of the path, and the same so far
	compared   int  // the number of bytes of that name that it has
	hex        rune // the digits after \u
	digits     int
	high       rune // the first half of a surrogate pair, which is to follow; 0: none
}

func (s *scanner) beginString() {
	s.state = inString
	s.isName, s.isCompared, s.compared, s.high = false, false, 0, 0
}

// readString reads a string up to its end, or up to an escape that is more than a character that no
// path has, and returns the number of bytes.
func (s *scanner) readString(p []byte) int {
	for i := 0; ; {
		n := plain(p[i:])
		if s.isCompared && n > 0 {
			s.compare(p[i : i+n])
		}
		if i += n; i == len(p) {
			return i
		}
		switch c := p[i]; {
		case c == '"':
			if s.state = afterValue; s.isName {
				s.isCompared = s.isCompared && s.high == 0
				s.endName()
			}
		case c != '\\':
			s.state = failed // a control character
		case !s.isCompared && i+1 < len(p) && isShortEscape(p[i+1]):
			i += 2 // texts have many
			continue
		default:
			s.state = inEscape
		}
		return i + 1
	}
}

// isShortEscape reports whether c ends an escape after its backslash.
func isShortEscape(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	}
	return false
}

// plain returns the number of bytes before the first quote, backslash or control character.
func plain(p []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(p); i += 8 { // eight at a time: 6 times as fast for long strings
		w := binary.LittleEndian.Uint64(p[i:])
		quote, backslash := w^ones*'"', w^ones*'\\'
		// the lowest bit is exact; the top bits of quote and backslash are those of w
		if hit := ((quote - ones) | (backslash - ones) | (w - ones*' ')) &^ w & tops; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(p); i++ {
		if c := p[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// compare compares the next bytes of a name with those of the path.
func (s *scanner) compare(p []byte) {
	name := s.names[s.depth-1][s.compared:]
	if s.high != 0 || len(p) > len(name) || name[:len(p)] != string(p) {
		s.isCompared = false
		return
	}
	s.compared += len(p)
}

// stepEscape reads the byte after a backslash.
func (s *scanner) stepEscape(c byte) {
	s.state = inString
	switch c {
	case 'u':
		s.state, s.hex, s.digits = inHex, 0, 0
		return
	case '"', '\\', '/':
	case 'b', 'f', 'n', 'r', 't':
		c = ' ' // a path has no such character
	default:
		s.state = failed
	}
	if s.isCompared {
		s.compare([]byte{c})
	}
}

// stepHex reads one of the four digits after \u.
func (s *scanner) stepHex(c byte) {
	switch {
	case '0' <= c && c <= '9':
		c -= '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		c = c | 0x20 - 'a' + 10
	default:
		s.state = failed
		return
	}
	s.hex = s.hex<<4 | rune(c)
	if s.digits++; s.digits < 4 {
		return
	}
	s.state = inString
	if s.isCompared {
		s.compareRune(s.hex)
	}
}

// compareRune compares an escaped character. Half a pair is U+FFFD to encoding/json, which is in no
// path.
func (s *scanner) compareRune(r rune) {
	if s.high != 0 {
		r = utf16.DecodeRune(s.high, r)
		s.high = 0
	} else if utf16.IsSurrogate(r) {
		s.high = r
		return
	}
	var encoded [utf8.UTFMax]byte
	s.compare(encoded[:utf8.EncodeRune(encoded[:], r)])
}
