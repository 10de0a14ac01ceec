package terms

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Breaks reports whether text may be split before the byte at index at: next to white space, or
// between two characters of a script without spaces. It never splits a character from its marks,
// joiners, the jamo of a Hangul syllable or an emoji's skin tone. Both ends of a text are breaks.
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
	case extends(after) || before == '\r' && after == '\n' || unicode.Is(unicode.Prepended_Concatenation_Mark, before):
		return false
	case unicode.IsSpace(before) || unicode.IsSpace(after):
		return true
	case infoOf(after).kind != spaceless || followsItsConsonant(after):
		return false
	case infoOf(before).kind == mark:
		// A virama: the next consonant is part of the character.
		return norm.NFC.PropertiesString(string(before)).CCC() != 9
	}
	return infoOf(before).kind == spaceless && !leadsItsConsonant(before) || strings.ContainsRune("、。，．！？：；」』）】》", before)
}

// extends reports whether r belongs to the character before it.
func extends(r rune) bool {
	switch {
	case r < 0x300:
		return false
	case r == 0x200c || r == 0x200d || r == 0xff9e || r == 0xff9f:
		return true
	case r >= 0x1100 && r < 0x1200 || r >= 0xa960 && r < 0xa980 || r >= 0xd7b0 && r < 0xd800:
		// Jamo: never split next to one.
		return true
	case r >= 0x1f3fb && r <= 0x1f3ff || r >= 0xe0000 && r < 0xe1000:
		return true
	}
	return unicode.IsMark(r)
}

// Sentence reports whether a sentence or a line ends right before the byte at index at. Both ends
// of a text count.
func Sentence(text string, at int) bool {
	if at <= 0 || at >= len(text) || !Breaks(text, at) {
		return at == 0 || at == len(text)
	}
	next, _ := utf8.DecodeRuneInString(text[at:])
	switch stop := stopOf(text[:at]); {
	case next == '\n' || text[at-1] == '\n':
		return true
	case strings.ContainsRune("。！？｡", stop): // no space follows these marks
		return true
	default:
		return stop != 0 && unicode.IsSpace(next)
	}
}

// Ends reports whether text ends like a sentence, unlike a heading.
func Ends(text string) bool { return stopOf(text) != 0 }

// stopOf returns the mark that ends the last sentence of text, ignoring quotes and brackets after
// it, or 0 if there is no such mark.
func stopOf(text string) rune {
	text = strings.TrimRight(text[max(0, len(text)-8):], `"')]}”’»」』）`)
	last, _ := utf8.DecodeLastRuneInString(text)
	if strings.ContainsRune(".!?…؟۔।॥።։。！？｡", last) {
		return last
	}
	return 0
}
