package main

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A page is one file of docs.
type page struct {
	name, url   string // in docs, and in the site
	title       string
	description string // its first paragraph, cut
	source      []byte
	tree        ast.Node
	headings    []heading
	html        string
}

// A heading is a place of a page that can be linked.
type heading struct {
	Level    int
	ID, Text string
}

// A link leads to a page of the site.
type link struct{ URL, Title string }

func (p *page) link() *link { return &link{p.url, p.title} }

// markdown reads what GitHub shows of a page: CommonMark, with tables and ~~strikethrough~~.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1))),
)

// parse reads a page and finds its headings.
func parse(name string, src []byte) (*page, error) {
	p := &page{name: name, url: address(name), source: src}
	context := parser.NewContext(parser.WithIDs(&anchors{seen: map[string]int{}}))
	p.tree = markdown.Parser().Parse(text.NewReader(src), parser.WithContext(context))
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			written, _ := id.([]byte)
			p.headings = append(p.headings, heading{n.Level, string(written), plain(n, src)})
		case *ast.Paragraph:
			if p.description == "" {
				p.description = cut(plain(n, src), 200)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	if len(p.headings) == 0 || p.headings[0].Level != 1 {
		return nil, errors.New("the first heading must be the title, # Title")
	}
	p.title = p.headings[0].Text
	return p, nil
}

// address returns where the site has a page of docs.
func address(name string) string {
	if path.Base(name) == "README.md" {
		return path.Join(path.Dir(name), "index.html")
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// plain returns the text of a node without its markup.
func plain(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(src))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(src))
		}
		return ast.WalkContinue, nil
	})
	return string(util.UnescapePunctuations([]byte(b.String())))
}

// cut returns the first words of a text, at most n bytes and a dot.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:strings.LastIndexByte(s[:n], ' ')] + " …"
}

// anchors makes the names of headings as GitHub does.
type anchors struct{ seen map[string]int }

// Generate returns the name of a heading that is in no other heading of its page.
func (a *anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(title)))
	n := a.seen[id]
	a.seen[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

// Put does nothing: no page gives its headings names of their own.
func (a *anchors) Put([]byte) {}
