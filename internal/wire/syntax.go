package wire

import "math/bits"

// The classes of bytes, by what a byte may be part of.
const (
	inToken = 1 << iota // RFC 9110, section 5.6.2
	inHost              // a name or an IPv4 address in Host, beside "%" and two digits
	inValue             // a field value, a reason, chunk extensions
	isHex
)

// classes holds the classes of each byte.
var classes = classify()

func classify() (table [256]uint8) {
	for c := range table {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' && c < 0x80
		digit := c >= '0' && c <= '9'
		if letter || digit {
			table[c] |= inToken | inHost
		}
		if digit || letter && c|0x20 <= 'f' {
			table[c] |= isHex
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			table[c] |= inValue
		}
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		table[c] |= inToken
	}
	// unreserved and sub-delims, but no comma: that is two Hosts in one field
	for _, c := range "-._~!$&'()*+;=" {
		table[c] |= inHost
	}
	return table
}

// IsToken reports whether s can be a method, a field's name, a connection option (RFC 9110, section
// 5.6.2). An empty string cannot.
func IsToken(s string) bool { return s != "" && span(s, 0, inToken) == len(s) }

// span returns the end of the bytes of a class that begin at i.
func span(s string, i int, class uint8) int {
	for i < len(s) && classes[s[i]]&class != 0 {
		i++
	}
	return i
}

// EqualFold reports whether two strings are equal except for the case of ASCII letters. No other
// letters are folded: K is not the Kelvin sign.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// Eight bytes of a head are looked at in one step, as one number with a mark (the highest bit) for
// each. That reads a head in half the time that a table takes. All sums stay within their bytes,
// since the highest bits are cleared before.
const (
	ones   = 0x0101010101010101
	sevens = 0x7f * ones
	marks  = 0x80 * ones
)

// eight returns the eight bytes at i, the first one lowest.
func eight(s string, i int) uint64 {
	b := s[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// plain returns the end of the bytes from i on that are neither below low (at least 1) nor 0x7f.
func plain(s string, i int, low byte) int {
	above := uint64(0x80-low) * ones
	for ; len(s)-i >= 8; i += 8 {
		x := eight(s, i)
		low7 := x & sevens
		if odd := (low7 + ones | ^(low7 + above)) & ^x & marks; odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for i < len(s) && s[i] >= low && s[i] != 0x7f {
		i++
	}
	return i
}

// valueEnd returns the end of the bytes from i on that can be part of a value.
func valueEnd(s string, i int) int {
	i = plain(s, i, ' ')
	for i < len(s) && s[i] == '\t' {
		i = plain(s, i+1, ' ')
	}
	return i
}

// nameEnd returns the end of the token that begins at i. Letters and dashes, which most names are
// made of, are looked at eight at a time.
func nameEnd(s string, i int) int {
	for ; len(s)-i >= 8; i += 8 {
		x := eight(s, i)
		low7 := x & sevens
		small := low7 | 0x20*ones
		letters := (small + (0x80-'a')*ones) & ^(small + (0x7f-'z')*ones)
		dashes := marks - (low7 ^ '-'*ones)
		if usual := (letters | dashes) & ^x & marks; usual != marks {
			i += bits.TrailingZeros64(^usual&marks) / 8
			break
		}
	}
	return span(s, i, inToken)
}

// fieldLines appends the field lines that begin at i, and end with an empty line at the very end of
// s.
func fieldLines(dst []Field, s string, i, limit int) ([]Field, *Refusal) {
	for {
		start := i
		i = nameEnd(s, i)
		if i == start || i == len(s) || s[i] != ':' {
			if i == start && s[i:] == "\r\n" {
				return dst, nil
			}
			return dst, nameRefusal(s, start, i)
		}
		if len(dst) == limit {
			return dst, tooManyFields
		}
		name := s[start:i]
		i++
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		first := i
		i = valueEnd(s, i)
		if len(s)-i < 2 || s[i] != '\r' || s[i+1] != '\n' {
			return dst, badByte(s, i, badValue)
		}
		last := i
		for last > first && (s[last-1] == ' ' || s[last-1] == '\t') {
			last--
		}
		dst = append(dst, Field{name, s[first:last]})
		i += 2
	}
}

// nameRefusal returns why s[start:] does not begin with a name and a colon; i is the first byte
// that is not part of a name.
func nameRefusal(s string, start, i int) *Refusal {
	switch {
	case i == len(s):
		return headEnds
	case i == start && (s[i] == ' ' || s[i] == '\t'):
		return obsFold
	case i == start && len(s)-i > 2 && s[i:i+2] == "\r\n":
		return afterHead
	case i == start && s[i] == ':':
		return noName
	case s[i] == ' ' || s[i] == '\t':
		return blankInName
	case s[i] == '\r' && i+1 < len(s) && s[i+1] == '\n':
		return noColon
	}
	return badByte(s, i, badName)
}

// badByte returns what is wrong with the byte at i, at which a line should continue or end:
// otherwise, unless the byte ends lines.
func badByte(s string, i int, otherwise *Refusal) *Refusal {
	switch {
	case i >= len(s):
		return headEnds
	case s[i] == '\n':
		return bareLF
	case s[i] == '\r' && (i+1 == len(s) || s[i+1] != '\n'):
		return bareCR
	}
	return otherwise
}

func valuesOf(fields []Field, name string) []string {
	return appendValues(nil, fields, name)
}

func appendValues(dst []string, fields []Field, name string) []string {
	for i := range fields {
		if EqualFold(fields[i].Name, name) {
			dst = append(dst, fields[i].Value)
		}
	}
	return dst
}
