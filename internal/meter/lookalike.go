package meter

import (
	"unicode"
	"unicode/utf8"
)

// A lookalike compares the names of a text as the laxest of its readers do: without letter case, as
// encoding/json does, without "_" and "-", as encoding/json/v2 can, and up to a NUL, as C does.
type lookalike struct {
	on         bool
	isCompared bool               // the present name may still be taken for that of the path
	ended      bool               // by a NUL
	n          int                // the length of name
	name       [maxLookalike]byte // what the present name has so far, without "_" and "-"
}

// maxLookalike is the max length of a name that is compared. A character has at most three times as
// many bytes as the same in the other letter case, and a path at most 128.
const maxLookalike = 3 * 128

// begin begins a name; isCompared is whether its object is on the path.
func (l *lookalike) begin(isCompared bool) {
	l.isCompared, l.ended, l.n = l.on && isCompared, false, 0
}

// add adds the next bytes of the present name.
func (l *lookalike) add(p []byte) {
	for _, c := range p {
		switch {
		case l.ended || c == '_' || c == '-':
		case c == 0:
			l.ended = true
		case l.n == len(l.name):
			l.isCompared = false
			return
		default:
			l.name[l.n] = c
			l.n++
		}
	}
}

// is reports whether the present name, which isCompared, may be taken for the path's.
func (l *lookalike) is(other string) bool {
	name := l.name[:l.n]
	for _, want := range other {
		if want == '_' || want == '-' {
			continue
		}
		r, size := utf8.DecodeRune(name)
		if size == 0 || foldRune(r) != foldRune(want) {
			return false
		}
		name = name[size:]
	}
	return len(name) == 0
}

// foldRune returns the first of the characters that differ from r in their letter case alone.
func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}
