package terms

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

//go:embed stop.txt
var stopList string

// stops returns the terms of the stop list.
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

// Stop reports whether a term is too common in questions to search for: it is in the stop list, is
// a single letter or ASCII digit, or is a pair with Chinese or Japanese grammar in it (all
// Hiragana, or a character that forms questions).
func Stop(term string) bool {
	if stops()[term] {
		return true
	}
	if strings.ContainsAny(term, "的了吗嗎呢吧么麼怎们們您你我是") {
		return true
	}
	if strings.IndexFunc(term, func(r rune) bool { return !unicode.Is(unicode.Hiragana, r) && !unicode.IsMark(r) }) < 0 {
		return true
	}
	r, size := utf8.DecodeRuneInString(term)
	return size == len(term) && (r < 0x250 || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Arabic, unicode.Hebrew))
}
