package target

import (
	"strings"

	"github.com/weirlimit/weir"
)

// The bounds of a canonical path with nameless segments. Its readings double with each, and all are
// looked up, so that what a path costs stays near a millisecond.
const (
	maxNameless  = 6         // nameless segments
	maxReadBytes = 192 << 10 // of all readings together
)

// A nameless segment consists of nothing but parameters, a query, a fragment or blanks, as in
// "/a/;x/b". To some backends it is an empty segment, which they drop, and to others a name.

// otherNaming is otherReading for a path that is forwarded in its canonical form. It tries the path
// with each of its nameless segments dropped or named, in every combination. Backends differ in
// which characters they cut off (a servlet container drops ";x" and keeps "%3Fx"), and in where:
// some cut off parameters in the last segment alone. If there are too many combinations to try,
// otherNaming returns the reading in which all have names.
func (r *Request) otherNaming(d *weir.Decider, m weir.Match) (reading string, found bool) {
	if strings.IndexByte(r.Path, ';') < 0 && isWhole(r.Path) {
		return "", false
	}
	segments := strings.Split(r.Path, "/")
	var nameless []int
	for i, s := range segments {
		if s != "" && nameOf(s) == "" {
			nameless = append(nameless, i)
		}
	}
	if len(nameless) == 0 {
		return "", false
	}
	if len(nameless) > maxNameless || len(nameless) > 1 && len(r.Path)<<len(nameless) > maxReadBytes {
		return nameSome(segments, nameless, ^uint(0)), true
	}
	for named := uint(1); named < 1<<len(nameless); named++ { // 0 is the path as m matched it
		reading = nameSome(segments, nameless, named)
		if r.differs(d, m, reading, func(value string) string { return value }) {
			return reading, true
		}
	}
	return "", false
}

// nameSome returns the path of segments in which a nameless one has a name if its bit in named is
// set. nameless has their indexes. The others stay, and match drops them.
func nameSome(segments []string, nameless []int, named uint) string {
	size := len(segments) + len(nameless)
	for _, s := range segments {
		size += len(s)
	}
	var b strings.Builder
	b.Grow(size)
	for i, s := range segments {
		if i > 0 {
			b.WriteByte('/')
		}
		if len(nameless) > 0 && nameless[0] == i {
			if named&1 != 0 {
				b.WriteByte(other)
			}
			nameless, named = nameless[1:], named>>1
		}
		b.WriteString(s)
	}
	return b.String()
}
