// Package words cuts text of any language into the terms by which documents are found.
//
// A term is a word brought to one form: NFKC, case folded, without the diacritics of Latin, Greek and Cyrillic and the
// points of Arabic and Hebrew, and without the endings that inflection adds (stem.go says how far that goes). Scripts that
// are written without spaces give overlapping pairs of characters instead, and so does Hangul, whose particles cling to
// the word before them. stop.go knows the words that questions are made of in any case.
package words

import (
	"iter"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Version changes whenever the same text may give other terms than before: an index of another version is of no use.
const Version = 1

// mostTerm is the length in bytes to which longer terms are cut. No word that somebody asks for is longer.
const mostTerm = 64

// A Term is one term of a text and the bytes of the text that it stands for.
type Term struct {
	Text       string // at most 64 bytes of valid UTF-8: letters, digits and marks
	Start, End int    // text[Start:End]; pairs of characters overlap
}

// Of yields the terms of text in order. Text that is no UTF-8 is read as if each bad byte were a space.
func Of(text string) iter.Seq[Term] {
	return func(yield func(Term) bool) {
		c := cutter{text: text, yield: yield, word: make([]byte, 0, 2*mostTerm)}
		c.run()
	}
}

// A cutter walks once over a text.
type cutter struct {
	text    string
	yield   func(Term) bool
	stopped bool

	word         []byte // the word under way, and where it stands so far
	start, until int
	script       script // of its last letter

	before, now cluster // where words are pairs
	paired      bool    // before is part of a pair already
}

// A cluster is a character with its marks, in a script without spaces.
type cluster struct {
	bytes      [mostTerm / 2]byte // the first n of them; what does not fit is left out
	n          int
	start, end int  // end is 0 where there is none
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
		if i := about(r); i.alone && (i.kind != other && i.kind != spaceless || standsAlone(c.text[at+size:])) {
			c.rune(r, i, at, at+size) // nearly always: 4 times as fast
			at += size
			continue
		}
		at += c.unit(at)
	}
	c.end()
}

// standsAlone says whether what rest begins with leaves the character before it as it is.
func standsAlone(rest string) bool {
	if rest == "" || rest[0] < utf8.RuneSelf {
		return true
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return about(r).begins
}

// unit takes what normalisation cannot split (a letter with its marks, jamo that make a syllable) and returns its size.
func (c *cutter) unit(at int) (size int) {
	size = max(1, min(norm.NFKC.NextBoundaryInString(c.text[at:], true), maxUnit))
	for at+size < len(c.text) && !utf8.RuneStart(c.text[at+size]) {
		size++
	}
	for _, r := range norm.NFKC.String(c.text[at : at+size]) {
		c.rune(r, about(r), at, at+size)
	}
	return size
}

// maxUnit bounds what is normalised at once: a thousand accents on one letter are nobody's spelling.
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
	if len(c.word) < mostTerm {
		c.word = append(c.word, b)
	}
}

// rune takes one normalised rune that comes from text[start:end].
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
		} else if len(c.word)+utf8.RuneLen(i.fold) <= mostTerm {
			c.word = utf8.AppendRune(c.word, i.fold)
		}
	}
}

// letter makes sure that a word is under way in which a letter at start belongs.
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
	if len(c.word)+len(s) <= mostTerm {
		c.word = append(c.word, s...)
	}
}

// mark takes a combining mark, which belongs to the letter before it, whatever the script.
func (c *cutter) mark(r rune, end int) {
	switch {
	case c.now.end > 0:
		c.now.grow(r, end)
	case len(c.word) == 0:
	case c.script != other:
		c.until = end
	case len(c.word)+utf8.RuneLen(r) <= mostTerm:
		c.until = end
		c.word = utf8.AppendRune(c.word, r) // in Devanagari and its kin the marks are the vowels
	}
}

// character takes a letter of a script without spaces.
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

// pair yields what the last two characters make, once there are two.
func (c *cutter) pair() {
	if c.before.end > 0 {
		pair := append(append(make([]byte, 0, mostTerm), c.before.bytes[:c.before.n]...), c.now.bytes[:c.now.n]...)
		c.emit(string(pair), c.before.start, c.now.end)
		c.paired = true
	}
	c.before = c.now
}

// end yields what is under way.
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
