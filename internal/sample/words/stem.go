package words

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Stemming here is light: it takes endings off while enough of the word is left, the same for every language of a
// script, since nobody says which one a text is in. So "deliveries" is found by "delivery", "Bestellungen" by
// "Bestellung", "siparişimi" by "sipariş"; what changes inside a word ("ran", "mice") is not. Taking off too much joins
// words that are not the same ("customer" and "customs"), as Porter's stemmer does too: ranking copes with that better
// than with words that miss each other. Endings are taken off again and again until none is left, so that every form of
// a word arrives at the same place whatever it passes on the way.

// An ending is taken off where at least as many letters stay as keep says.
type ending struct {
	text string
	keep int
}

// endings are each script's, longest first.
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

// beginnings are what Arabic writes together with the word after it: the article, "and", "with", "for".
var beginnings = []string{"وال", "بال", "كال", "فال", "لل", "ال"}

// stem is the form of a folded word that its inflections share.
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
		return vowelless(word)
	}
	for {
		shorter := shorten(word, k)
		if k == latin {
			shorter = single(shorter)
		}
		if len(shorter) == len(word) {
			return word
		}
		word = shorter
	}
}

// byLast are the endings by their last byte, which spares most words the comparison.
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

// single makes one of a double consonant at the end: shipp(ing), cancell(ed), bestell(en).
func single(word string) string {
	if n := len(word); n > 4 && word[n-1] == word[n-2] && word[n-1] > 'b' && word[n-1] <= 'z' && !strings.ContainsRune("eiou", rune(word[n-1])) {
		return word[:n-1]
	}
	return word
}

// vowelless drops the vowel signs and nasals at the end of a word of Devanagari or one of its kin, which is how those
// inflect, and keeps two letters at least.
func vowelless(word string) string {
	for {
		r, size := utf8.DecodeLastRuneInString(word)
		rest := word[:len(word)-size]
		if r < 0x900 || r > 0xdff || kindOf(r) != mark || r == virama(r) || len(rest) < 6 {
			return word
		}
		word = rest
	}
}

// virama is the sign of r's script that takes a vowel away: it belongs to the consonant before it.
func virama(r rune) rune { return r&^0x7f | 0x4d }
