package terms

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Stemming is light: it strips endings as long as enough of the word is left. A script has one list
// of endings for all its languages, because the language of a text is unknown. "deliveries" is
// found by "delivery", "Bestellungen" by "Bestellung" and "siparişimi" by "sipariş". Changes inside
// a word ("ran", "mice") are not recognized. Stripping too much joins different words ("customer"
// and "customs"), as Porter's stemmer does too. Ranking tolerates that better than words that do
// not match. Endings are stripped repeatedly until none is left, so that all forms of a word have
// the same stem.

// An ending is stripped if at least keep letters remain.
type ending struct {
	text string
	keep int
}

// endings are the endings of each script, longest first.
var endings = [...][]ending{
	latin: {
		{"ation", 4}, {"ments", 4}, {"iendo", 4},
		{"ment", 4}, {"ions", 4}, {"ando", 4}, {"ungs", 4}, {"ings", 4}, {"lari", 4}, {"leri", 4},
		{"ing", 4}, {"ies", 4}, {"ion", 4}, {"ung", 4}, {"lar", 4}, {"ler", 4}, {"dan", 4}, {"den", 4}, {"nin", 4}, {"nun", 4},
		{"ed", 4}, {"es", 4}, {"en", 4}, {"er", 4}, {"em", 4}, {"ar", 4}, {"ir", 4}, {"im", 4}, {"in", 4}, {"um", 4}, {"un", 4},
		{"da", 4}, {"de", 4}, {"ya", 4}, {"ye", 4}, {"yi", 4},
		{"s", 3}, {"e", 4}, {"y", 4}, {"a", 4}, {"o", 4}, {"i", 4}, {"u", 4},
	},
	cyrillic: { // й is и here: its breve is a diacritic
		{"иями", 4}, {"ами", 4}, {"ями", 4}, {"ого", 4}, {"его", 4}, {"ому", 4}, {"ему", 4}, {"ыми", 4}, {"ими", 4}, {"ешь", 4}, {"ишь", 4},
		{"ов", 4}, {"ев", 4}, {"еи", 4}, {"ом", 4}, {"ем", 4}, {"ам", 4}, {"ям", 4}, {"ах", 4}, {"ях", 4}, {"ые", 4}, {"ие", 4}, {"ым", 4}, {"им", 4},
		{"ых", 4}, {"их", 4}, {"ть", 4}, {"ти", 4}, {"ет", 4}, {"ит", 4}, {"ут", 4}, {"ют", 4}, {"ат", 4}, {"ят", 4}, {"ся", 4}, {"сь", 4}, {"ли", 4}, {"ла", 4}, {"ло", 4},
		{"а", 4}, {"я", 4}, {"ы", 4}, {"и", 4}, {"у", 4}, {"ю", 4}, {"о", 4}, {"е", 4}, {"ь", 4}, {"і", 4}, {"л", 5},
	},
	greek: {
		{"ους", 4}, {"εων", 4}, {"οσ", 4}, {"ου", 4}, {"ον", 4}, {"οι", 4}, {"ων", 4}, {"ασ", 4}, {"εσ", 4}, {"ησ", 4}, {"ισ", 4},
		{"α", 4}, {"η", 4}, {"ι", 4}, {"ο", 4}, {"υ", 4}, {"ε", 4},
	},
	arabic: {
		{"ها", 3}, {"ان", 3}, {"ات", 3}, {"ون", 3}, {"ين", 3}, {"يه", 3}, {"كم", 3}, {"ه", 3}, {"ي", 3}, {"ك", 4},
	},
}

// beginnings are the prefixes that Arabic writes together with the next word: the article, "and",
// "with", "for".
var beginnings = []string{"وال", "بال", "كال", "فال", "لل", "ال"}

// stem returns the form that the inflections of a folded word share.
func stem(word string, k script) string {
	if k == arabic {
		for _, b := range beginnings {
			if rest, ok := strings.CutPrefix(word, b); ok && utf8.RuneCountInString(rest) >= 3 {
				word = rest
				break
			}
		}
	}
	if k == other {
		return stripVowelSigns(word)
	}
	for {
		shorter := shorten(word, k)
		if k == latin {
			shorter = undouble(shorter)
		}
		if len(shorter) == len(word) {
			return word
		}
		word = shorter
	}
}

// byLast returns the endings by their last byte, so that most words need no comparison.
var byLast = sync.OnceValue(func() *[len(endings)][256][]ending {
	all := new([len(endings)][256][]ending)
	for k, list := range endings {
		for _, e := range list {
			last := e.text[len(e.text)-1]
			all[k][last] = append(all[k][last], e)
		}
	}
	return all
})

func shorten(word string, k script) string {
	if len(word) < 4 || int(k) >= len(endings) {
		return word
	}
	for _, e := range byLast()[k][word[len(word)-1]] {
		if rest, ok := strings.CutSuffix(word, e.text); ok && (len(rest) >= 8 || utf8.RuneCountInString(rest) >= e.keep) {
			return rest
		}
	}
	return word
}

// undouble reduces a double consonant at the end of a word to one: shipp(ing), cancell(ed),
// bestell(en).
func undouble(word string) string {
	if n := len(word); n > 4 && word[n-1] == word[n-2] && word[n-1] > 'b' && word[n-1] <= 'z' && !strings.ContainsRune("eiou", rune(word[n-1])) {
		return word[:n-1]
	}
	return word
}

// stripVowelSigns drops the vowel signs and nasals at the end of a word of Devanagari or a related
// script, which are its inflections. It keeps at least two letters.
func stripVowelSigns(word string) string {
	for {
		r, size := utf8.DecodeLastRuneInString(word)
		rest := word[:len(word)-size]
		if r < 0x900 || r > 0xdff || kindOf(r) != mark || r == virama(r) || len(rest) < 6 {
			return word
		}
		word = rest
	}
}

// virama returns the sign of r's script that removes the vowel of the consonant before it.
func virama(r rune) rune { return r&^0x7f | 0x4d }
