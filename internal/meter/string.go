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
	s.like.begin(false)
}

// beginName begins the string of a name. isCompared is whether its object is on the path.
func (s *scanner) beginName(isCompared bool) {
	s.beginString()
	s.isName, s.isCompared = true, isCompared
	s.like.begin(isCompared)
}

// compares reports whether the string is compared with a name of the path.
func (s *scanner) compares() bool { return s.isCompared || s.like.isCompared }

// readString reads a string up to its end, or up to an escape that is more than a character that no
// path has, and returns the number of bytes.
func (s *scanner) readString(p []byte) int {
	n := 0
	if s.compares() {
		if n = plain(p); n > 0 {
			s.compare(p[:n])
		}
	} else {
		n = text(p)
	}
	if n == len(p) {
		return n
	}
	switch c := p[n]; {
	case c == '"':
		if s.state = afterValue; s.isName {
			s.isCompared = s.isCompared && s.high == 0
			s.endName()
		}
	case c != '\\':
		s.state = failed // a control character
	default:
		s.state = inEscape
	}
	return n + 1
}

// plain returns the number of bytes before the first quote, backslash or control character.
func plain(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if hit := ends(binary.LittleEndian.Uint64(p[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(p); i++ {
		if isEnd(p[i]) {
			break
		}
	}
	return i
}

// text is plain that goes on after escapes of two bytes, of which texts have many. Most bytes of a
// body are read here, sixteen at a time.
func text(p []byte) int {
	rest := p
	for len(rest) >= 16 {
		first, second := ends(binary.LittleEndian.Uint64(rest)), ends(binary.LittleEndian.Uint64(rest[8:16]))
		if first|second == 0 {
			rest = rest[16:]
			continue
		}
		n := bits.TrailingZeros64(first) / 8
		if first == 0 {
			n = 8 + bits.TrailingZeros64(second)/8
		}
		if n+1 >= len(rest) || rest[n] != '\\' || !shortEscapes[rest[n+1]] {
			return len(p) - len(rest) + n
		}
		rest = rest[n+2:]
	}
	for i := 0; ; i += 2 {
		for i < len(rest) && !isEnd(rest[i]) {
			i++
		}
		if i+1 >= len(rest) || rest[i] != '\\' || !shortEscapes[rest[i+1]] {
			return len(p) - len(rest) + min(i, len(rest))
		}
	}
}

func isEnd(c byte) bool { return c == '"' || c == '\\' || c < ' ' }

// shortEscapes has the bytes that end an escape after its backslash.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// ends returns a word with the top bit set of each byte of w that isEnd. Only the lowest such bit
// is exact: a borrow can set others above it.
func ends(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	// a quote and the control characters, and no others, are below '!' with the second bit flipped
	quote, backslash := w^ones*2, w^ones*'\\'
	return ((quote - ones*'!') | (backslash - ones)) &^ w & tops
}

// compare compares the next bytes of a name with those of the path.
func (s *scanner) compare(p []byte) {
	if s.like.isCompared {
		s.like.add(p)
	}
	if !s.isCompared {
		return
	}
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
	if s.compares() {
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
	if s.compares() {
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
