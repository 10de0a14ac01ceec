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
// digit alone, or a pair with Chinese or Japanese grammar in it: all Hiragana, or a character
// that makes questions.
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
