// Package terms splits text of any language into the terms by which documents are found.
//
// A term is a word in a normal form: NFKC, case-folded, without the diacritics of Latin, Greek and
// Cyrillic, without the points of Arabic and Hebrew, and without inflectional endings (see
// stem.go). Scripts that are written without spaces yield overlapping pairs of characters instead.
// So does Hangul, because its particles are written together with the word before them. The stop
// words are in stop.txt.
package terms

import (
	"iter"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Version changes whenever the same text may yield different terms. An index that was built with
// another version must be rebuilt.
const Version = 1

// maxTerm is the length in bytes to which longer terms are truncated.
const maxTerm = 64

// A Term is one term of a text and its position in the text.
type Term struct {
	Text       string // at most 64 bytes of valid UTF-8: letters, digits and marks
	Start, End int    // text[Start:End]; pairs of characters overlap
}

// Of yields the terms of text in order. In text that is not valid UTF-8, each invalid byte counts
// as a space.
func Of(text string) iter.Seq[Term] {
	return func(yield func(Term) bool) {
		c := cutter{text: text, yield: yield, word: make([]byte, 0, 2*maxTerm)}
		c.run()
	}
}

// A cutter splits one text in a single pass.
type cutter struct {
	text    string
	yield   func(Term) bool
	stopped bool

	word         []byte // the current word; empty if there is none
	start, until int    // of the current word, in text
	script       script // of the last letter of the current word

	before, now cluster // the last two characters of a script without spaces
	paired      bool    // a pair with before has been yielded
}

// A cluster is a character with its marks, in a script without spaces.
type cluster struct {
	bytes      [maxTerm / 2]byte // of which n are used; marks that do not fit are dropped
	n          int
	start, end int  // end is 0 if there is no character
	leading    bool // a vowel that is written before its consonant
}

func (c *cluster) grow(r rune, end int) {
	if c.n+utf8.RuneLen(r) <= len(c.bytes) {
		c.n += utf8.EncodeRune(c.bytes[c.n:], r)
	}
	c.end = end
}

func (c *cutter) run() {
	for at := 0; at < len(c.text) && !c.stopped; {
		if b := c.text[at]; b < utf8.RuneSelf {
			c.ascii(b, at)
			at++
			continue
		}
		r, size := utf8.DecodeRuneInString(c.text[at:])
		if i := infoOf(r); i.alone && (i.kind != other && i.kind != spaceless || boundaryFollows(c.text[at+size:])) {
			c.rune(r, i, at, at+size) // the common case: 4 times as fast as unit
			at += size
			continue
		}
		at += c.unit(at)
	}
	c.end()
}

// boundaryFollows reports whether normalization cannot combine the start of rest with the character
// before it.
func boundaryFollows(rest string) bool {
	if rest == "" || rest[0] < utf8.RuneSelf {
		return true
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return infoOf(r).begins
}

// unit processes the shortest text at the position that normalization cannot split, such as a
// letter with its marks or the jamo of a syllable. It returns the length in bytes.
func (c *cutter) unit(at int) (size int) {
	size = max(1, min(norm.NFKC.NextBoundaryInString(c.text[at:], true), maxUnit))
	for at+size < len(c.text) && !utf8.RuneStart(c.text[at+size]) {
		size++
	}
	for _, r := range norm.NFKC.String(c.text[at : at+size]) {
		c.rune(r, infoOf(r), at, at+size)
	}
	return size
}

// maxUnit bounds the bytes that are normalized at once, so that a letter with a thousand accents
// costs little.
const maxUnit = 128

func (c *cutter) ascii(b byte, at int) {
	switch {
	case b >= 'a' && b <= 'z' || b >= '0' && b <= '9':
	case b >= 'A' && b <= 'Z':
		b += 'a' - 'A'
	default:
		c.end()
		return
	}
	c.letter(at, at+1, latin)
	if len(c.word) < maxTerm {
		c.word = append(c.word, b)
	}
}

// rune processes one normalized rune of text[start:end].
func (c *cutter) rune(r rune, i *info, start, end int) {
	switch i.kind {
	case none:
		c.end()
	case clear:
	case mark:
		c.mark(r, end)
	case spaceless:
		c.character(r, start, end)
	default:
		c.letter(start, end, i.kind)
		if i.spelled != "" {
			c.add(i.spelled)
		} else if len(c.word)+utf8.RuneLen(i.fold) <= maxTerm {
			c.word = utf8.AppendRune(c.word, i.fold)
		}
	}
}

// letter begins a word at start, or extends the current word to end.
func (c *cutter) letter(start, end int, k script) {
	if c.now.end > 0 {
		c.end()
	}
	if len(c.word) == 0 {
		c.start = start
	}
	c.until, c.script = end, k
}

func (c *cutter) add(s string) {
	if len(c.word)+len(s) <= maxTerm {
		c.word = append(c.word, s...)
	}
}

// mark processes a combining mark, which belongs to the letter before it in any script.
func (c *cutter) mark(r rune, end int) {
	switch {
	case c.now.end > 0:
		c.now.grow(r, end)
	case len(c.word) == 0:
	case c.script != other:
		c.until = end
	case len(c.word)+utf8.RuneLen(r) <= maxTerm:
		c.until = end
		// In Devanagari and related scripts the marks are vowels.
		c.word = utf8.AppendRune(c.word, r)
	}
}

// character processes a letter of a script without spaces.
func (c *cutter) character(r rune, start, end int) {
	if len(c.word) > 0 {
		c.end()
	}
	if c.now.end > 0 {
		if c.now.leading || followsItsConsonant(r) {
			c.now.leading = false
			c.now.grow(r, end)
			return
		}
		c.pair()
	}
	c.now = cluster{start: start, leading: leadsItsConsonant(r)}
	c.now.grow(r, end)
}

// pair yields the last two characters as one term, if there are two.
func (c *cutter) pair() {
	if c.before.end > 0 {
		pair := append(append(make([]byte, 0, maxTerm), c.before.bytes[:c.before.n]...), c.now.bytes[:c.now.n]...)
		c.emit(string(pair), c.before.start, c.now.end)
		c.paired = true
	}
	c.before = c.now
}

// end yields the current word or pair, and resets it.
func (c *cutter) end() {
	switch {
	case c.now.end > 0:
		c.pair()
		if !c.paired { // a character alone
			c.emit(string(c.now.bytes[:c.now.n]), c.now.start, c.now.end)
		}
		c.before, c.now, c.paired = cluster{}, cluster{}, false
	case len(c.word) > 0:
		c.emit(stem(string(c.word), c.script), c.start, c.until)
		c.word = c.word[:0]
	}
}

func (c *cutter) emit(text string, start, end int) {
	if !c.stopped {
		c.stopped = !c.yield(Term{text, start, end})
	}
}
