package words

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

//go:embed stop.txt
var stopList string

// stops are the terms of the stop list.
var stops = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(stopList) {
		if _, list, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
			for term := range Of(list) {
				all[term.Text] = true
			}
		}
	}
	return all
})

// Stop says whether a term says nothing of what a question is about: a word of the stop list, a letter or an ASCII
// digit alone, or a pair of Hiragana, which is grammar more often than not.
func Stop(term string) bool {
	if stops()[term] {
		return true
	}
	n := 0
	for _, r := range term {
		if n++; !unicode.Is(unicode.Hiragana, r) && !unicode.IsMark(r) {
			n = 1 << 20
		}
	}
	if n < 1<<20 {
		return true
	}
	r, size := utf8.DecodeRuneInString(term)
	return size == len(term) && (r < 0x250 || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Arabic, unicode.Hebrew))
}
