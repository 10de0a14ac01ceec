package folder

import (
	"bytes"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// page reads HTML. The title is that of the title element, or else the first heading.
func page(l *lines, source []byte) (string, error) {
	p := reader{lines: l}
	p.read(source)
	if title := line(p.title.String(), MaxTitle); title != "" {
		return title, nil
	}
	return p.heading, nil
}

// A reader extracts the text of HTML token by token. It builds no tree, so deep nesting does no
// harm.
type reader struct {
	*lines
	title   lines
	inTitle bool
	heading string // the first with any text
	from    int    // offset at which the heading began; used while level is not 0
	level   atom.Atom
	pre     int // open elements in which line breaks matter
	// whether a line break would be the first character of such an element, where it is ignored
	first bool

	without atom.Atom // the element whose content is being skipped; 0 if none
	depth   int       // nesting depth of that element
}

// unread are elements whose content is not text. The tokenizer returns most of them as raw text, up
// to their end tag.
var unread = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Iframe: true, atom.Noembed: true, atom.Noframes: true,
	atom.Template: true, atom.Svg: true, atom.Object: true, atom.Canvas: true, atom.Audio: true, atom.Video: true, atom.Datalist: true,
}

// blocks are elements that begin and end a line.
var blocks = map[atom.Atom]bool{
	atom.Address: true, atom.Article: true, atom.Aside: true, atom.Blockquote: true, atom.Body: true, atom.Br: true, atom.Caption: true,
	atom.Center: true, atom.Dd: true, atom.Details: true, atom.Dialog: true, atom.Div: true, atom.Dl: true, atom.Dt: true,
	atom.Fieldset: true, atom.Figcaption: true, atom.Figure: true, atom.Footer: true, atom.Form: true, atom.H1: true, atom.H2: true,
	atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true, atom.Head: true, atom.Header: true, atom.Hr: true, atom.Html: true,
	atom.Legend: true, atom.Li: true, atom.Main: true, atom.Menu: true, atom.Nav: true, atom.Ol: true, atom.Optgroup: true,
	atom.Option: true, atom.P: true, atom.Pre: true, atom.Section: true, atom.Select: true, atom.Summary: true, atom.Table: true,
	atom.Tbody: true, atom.Textarea: true, atom.Tfoot: true, atom.Thead: true, atom.Tr: true, atom.Ul: true, atom.Xmp: true,
	atom.Listing: true, atom.Plaintext: true,
}

func (p *reader) read(source []byte) {
	p.title.max = MaxTitle * 4
	z := html.NewTokenizer(bytes.NewReader(source))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken: // the end
			return
		case html.TextToken:
			if p.without == 0 {
				p.text(string(z.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, attributes := z.TagName()
			p.start(z, atom.Lookup(name), attributes, kind == html.SelfClosingTagToken)
		case html.EndTagToken:
			name, _ := z.TagName()
			p.end(atom.Lookup(name))
		}
	}
}

func (p *reader) text(s string) {
	switch {
	case p.inTitle:
		p.title.words(s)
	case p.pre > 0:
		if p.first && s != "" && s[0] == '\n' {
			s = s[1:]
		}
		p.first = false
		p.verbatim(s)
	default:
		p.words(s)
	}
}

func (p *reader) start(z *html.Tokenizer, name atom.Atom, attributes, closed bool) {
	switch {
	case p.without != 0:
		if name == p.without && !closed {
			p.depth++
		}
		return
	case unread[name]:
		if !closed || name == atom.Script || name == atom.Style {
			p.without, p.depth = name, 1
		}
		return
	case name == atom.Title:
		p.inTitle = true
		if p.title.size > 0 {
			p.without, p.depth, p.inTitle = name, 1, false
		}
		return
	case name == atom.Img:
		for more := attributes; more; {
			var key, value []byte
			if key, value, more = z.TagAttr(); string(key) == "alt" {
				p.words(" " + string(value) + " ")
			}
		}
	case name == atom.Td || name == atom.Th:
		p.cell()
	}
	if blocks[name] {
		p.lines.end()
	}
	switch name {
	case atom.Pre, atom.Textarea, atom.Xmp, atom.Listing:
		p.pre++
		p.first = true
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		p.level, p.from = name, p.b.Len()
	}
}

func (p *reader) end(name atom.Atom) {
	switch {
	case p.without != 0:
		if name == p.without {
			if p.depth--; p.depth == 0 {
				p.without = 0
			}
		}
		return
	case name == atom.Title:
		p.inTitle = false
	case name == p.level && name != 0:
		if p.heading == "" {
			p.heading = p.since(p.from)
		}
		p.level = 0
	}
	switch name {
	case atom.Pre, atom.Textarea, atom.Xmp, atom.Listing:
		p.pre = max(p.pre-1, 0)
	}
	if blocks[name] {
		p.lines.end()
	}
}
