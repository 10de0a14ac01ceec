package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Breaks says whether text may be cut before the byte at: beside white space, or between two characters of a script
// without spaces, and never between a character and what belongs to it (marks, joiners, the halves of a Hangul syllable,
// an emoji's skin). Both ends are breaks.
func Breaks(text string, at int) bool {
	if at <= 0 || at >= len(text) {
		return at == 0 || at == len(text)
	}
	if !utf8.RuneStart(text[at]) {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(text[:at])
	after, _ := utf8.DecodeRuneInString(text[at:])
	switch {
	case clings(after) || before == '\r' && after == '\n' || unicode.Is(unicode.Prepended_Concatenation_Mark, before):
		return false
	case unicode.IsSpace(before) || unicode.IsSpace(after):
		return true
	case about(after).kind != spaceless || followsItsConsonant(after):
		return false
	case about(before).kind == mark:
		return norm.NFC.PropertiesString(string(before)).CCC() != 9 // a virama: the next consonant is part of the character
	}
	return about(before).kind == spaceless && !leadsItsConsonant(before) || strings.ContainsRune("、。，．！？：；」』）】》", before)
}

// clings says whether r belongs to the character before it.
func clings(r rune) bool {
	switch {
	case r < 0x300:
		return false
	case r == 0x200c || r == 0x200d || r == 0xff9e || r == 0xff9f:
		return true
	case r >= 0x1100 && r < 0x1200 || r >= 0xa960 && r < 0xa980 || r >= 0xd7b0 && r < 0xd800: // jamo: never cut beside one
		return true
	case r >= 0x1f3fb && r <= 0x1f3ff || r >= 0xe0000 && r < 0xe1000:
		return true
	}
	return unicode.IsMark(r)
}

// Sentence says whether a sentence, or a line, ends right before the byte at. Both ends of a text count.
func Sentence(text string, at int) bool {
	if at <= 0 || at >= len(text) || !Breaks(text, at) {
		return at == 0 || at == len(text)
	}
	next, _ := utf8.DecodeRuneInString(text[at:])
	switch stop := stopOf(text[:at]); {
	case next == '\n' || text[at-1] == '\n':
		return true
	case strings.ContainsRune("。！？｡", stop): // after which nobody writes a space
		return true
	default:
		return stop != 0 && unicode.IsSpace(next)
	}
}

// Ends says whether text ends as a sentence does, and not as a heading.
func Ends(text string) bool { return stopOf(text) != 0 }

// stopOf is the mark that ends the last sentence of text, quotes and brackets after it aside; 0 where none does.
func stopOf(text string) rune {
	text = strings.TrimRight(text[max(0, len(text)-8):], `"')]}”’»」』）`)
	last, _ := utf8.DecodeLastRuneInString(text)
	if strings.ContainsRune(".!?…؟۔।॥።։。！？｡", last) {
		return last
	}
	return 0
}
