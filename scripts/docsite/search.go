package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// An entry is a place that the search can find: the text from one heading to the next.
type entry struct {
	Page  string `json:"p"` // and its part, for a heading within one
	Title string `json:"t"`
	URL   string `json:"u"`
	Begin string `json:"b"` // the first words, to show
	Words string `json:"w"` // each word once
}

// index returns a script with every place of the site, so that the search also works from a
// directory, where a page cannot read files.
func (s *site) index() ([]byte, error) {
	var all []entry
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		all = append(all, s.pages[name].entries()...)
	}
	var b bytes.Buffer
	b.WriteString("window.places = ")
	if err := json.NewEncoder(&b).Encode(all); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// entries returns the places of a page. Its own words are without the page's title, which the
// search adds.
func (p *page) entries() (all []entry) {
	var text strings.Builder
	at, part := 0, ""
	end := func() {
		if at > 0 {
			h := p.headings[at-1]
			page := p.title
			switch {
			case h.Level <= 2:
				part = h.Text
			case strings.HasPrefix(part, page): // a command of a command
				page = part
			default:
				page += " › " + part
			}
			e := entry{Page: page, Title: h.Text, URL: p.url, Begin: cut(text.String(), 120), Words: words(text.String())}
			if h.Level > 1 {
				e.URL += "#" + h.ID
			}
			all = append(all, e)
		}
		text.Reset()
	}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if _, ok := n.(*ast.Heading); ok {
			end()
			at++
			continue
		}
		text.WriteString(searched(n, p.source) + " ")
	}
	end()
	return all
}

// searched returns the text of a block, code included.
func searched(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns no error
		if !entering || n.Type() != ast.TypeBlock {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindFencedCodeBlock, ast.KindCodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(src))
			}
		default:
			if c := n.FirstChild(); c != nil && c.Type() == ast.TypeInline {
				b.WriteString(plain(n, src) + " ")
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// words returns each word of a text once, in lower case, sorted. A word has two letters or more; a
// dash or a dot in it does not end it.
func words(text string) string {
	seen := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:", r)
	}) {
		if w = strings.Trim(w, "-_.:"); len(w) > 1 && len(w) < 32 {
			seen[w] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}
