package terms

import (
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A script is the part that a rune plays in words.
type script uint8

const (
	none      script = iota // separates words
	clear                   // is ignored inside words
	mark                    // belongs to the letter before it
	spaceless               // is a character of a script without spaces
	digit
	other // a letter whose marks are kept
	latin
	greek
	cyrillic
	arabic
	hebrew
	devanagari
)

// unspaced are the scripts whose words are indexed as pairs of characters.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Bopomofo,
}

// An info is what the cutter needs to know about a rune.
type info struct {
	kind    script
	alone   bool   // normalization changes the rune only together with what follows
	begins  bool   // normalization never combines the rune with the one before
	fold    rune   // the case-folded rune without its diacritic
	spelled string // replaces fold if it is not empty
}

// planes caches the infos of runes, in blocks of 256, because computing one takes half a
// microsecond. Concurrent writers of one block store equal values.
var planes [(unicode.MaxRune + 1) / 256]atomic.Pointer[[256]info]

func infoOf(r rune) *info {
	block := planes[r/256].Load()
	if block == nil {
		block = new([256]info)
		for i := range block {
			block[i] = lookUp(r&^0xff + rune(i))
		}
		planes[r/256].Store(block)
	}
	return &block[r%256]
}

func lookUp(r rune) info {
	properties := norm.NFKC.PropertiesString(string(r))
	i := info{kind: kindOf(r), begins: properties.BoundaryBefore(), fold: unicode.ToLower(r)}
	i.alone = r != utf8.RuneError && i.begins && norm.NFKC.IsNormalString(string(r))
	if d := norm.NFD.PropertiesString(string(i.fold)).Decomposition(); d != nil && i.kind > other {
		i.fold, _ = utf8.DecodeRune(d)
		i.fold = unicode.ToLower(i.fold)
	}
	if i.kind == digit {
		i.fold = digitOf(r)
	}
	i.spelled = spelled[i.fold]
	return i
}

func kindOf(r rune) script {
	switch {
	case r < 0x80: // normalization has produced it from another rune
		switch {
		case r >= '0' && r <= '9':
			return digit
		case r|0x20 >= 'a' && r|0x20 <= 'z':
			return latin
		}
		return none
	case r >= 0xc0 && r < 0x250 && r != 0xd7 && r != 0xf7:
		return latin
	case r == 0x640 || r == 0xad || r >= 0x200c && r <= 0x200f || r == 0x2060 || r == 0xfeff || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
		return clear // the tatweel too, which only stretches a word
	case r == 0x30fc || r == 0xff70:
		// The long vowel mark of Katakana, which has no script of its own.
		return spaceless
	case unicode.IsMark(r):
		return mark
	case unicode.IsNumber(r):
		return digit
	case !unicode.IsLetter(r):
		return none
	case r >= 0x400 && r < 0x530:
		return cyrillic
	case r >= 0x590 && r < 0x600:
		return hebrew
	case r >= 0x600 && r < 0x780:
		return arabic
	case r >= 0x370 && r < 0x400, r >= 0x1f00 && r < 0x2000:
		return greek
	case r >= 0x1e00 && r < 0x1f00:
		return latin
	case unicode.In(r, unspaced...):
		return spaceless
	}
	return other
}

// spelled maps letters that normalization does not change to their usual replacements.
var spelled = map[rune]string{
	'ß': "ss", 'ı': "i", 'ø': "o", 'đ': "d", 'ł': "l", 'æ': "ae", 'œ': "oe", 'þ': "th", 'ð': "d", 'ħ': "h", 'ŋ': "n",
	'ς': "σ",
	'ى': "ي", 'ة': "ه", 'ٱ': "ا", 'ک': "ك", 'ی': "ي", // Arabic, and what Persian keyboards type
}

// digitOf returns the ASCII digit of a digit in Arabic, Persian, Devanagari, Bengali or Thai, and
// any other rune unchanged.
func digitOf(r rune) rune {
	for _, zero := range [...]rune{'٠', '۰', '०', '০', '๐'} {
		if r >= zero && r <= zero+9 {
			return '0' + r - zero
		}
	}
	return r
}

// leadsItsConsonant reports whether r is a vowel of Thai or Lao that is written before the
// consonant and spoken after it.
func leadsItsConsonant(r rune) bool {
	return r >= 0xe40 && r <= 0xe44 || r >= 0xec0 && r <= 0xec4
}

// followsItsConsonant reports whether r is a letter of Thai or Lao that ends the vowel of a
// syllable.
func followsItsConsonant(r rune) bool {
	return r == 0xe30 || r == 0xe32 || r == 0xe33 || r == 0xe45 || r == 0xeb0 || r == 0xeb2 || r == 0xeb3
}
