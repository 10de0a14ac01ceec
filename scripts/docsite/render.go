package main

import (
	"bytes"
	"fmt"
	"html"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// render writes a page's HTML.
func (s *site) render(p *page) error {
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering {
			l.Destination = []byte(s.target(p, string(l.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.source, p.tree); err != nil {
		return err
	}
	p.html = b.String()
	return nil
}

// target returns where a link of a page leads in the site. A file outside of docs is linked in the
// repository.
func (s *site) target(p *page, link string) string {
	if link == "" || link[0] == '#' || strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	file, anchor, found := strings.Cut(link, "#")
	if found {
		anchor = "#" + anchor
	}
	name := path.Join(path.Dir(p.name), file)
	if strings.HasPrefix(name, "../") {
		return source + "blob/main/" + strings.TrimPrefix(name, "../") + anchor
	}
	if s.pages[name] == nil {
		return link // a file that is copied
	}
	up := strings.Repeat("../", strings.Count(p.url, "/"))
	return up + s.pages[name].url + anchor
}

// nodes renders headings that link to themselves, tables that scroll, and blocks of code.
type nodes struct{}

// RegisterFuncs registers what is rendered in a way of the site's own.
func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, writeHeading)
	r.Register(tables.KindTable, writeTable)
	r.Register(ast.KindFencedCodeBlock, writeCode)
	r.Register(ast.KindCodeBlock, writeCode)
	r.Register(ast.KindCodeSpan, writeCodeSpan)
}

func writeHeading(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Heading)
	id, _ := n.AttributeString("id")
	switch {
	case entering:
		fmt.Fprintf(w, `<h%d id="%s">`, n.Level, html.EscapeString(string(id.([]byte))))
	case n.Level == 1:
		fmt.Fprintf(w, "</h1>\n")
	default:
		fmt.Fprintf(w, ` <a class="here" href="#%s" aria-label="Link to “%s”">#</a></h%d>`+"\n", html.EscapeString(string(id.([]byte))), html.EscapeString(plain(n, src)), n.Level)
	}
	return ast.WalkContinue, nil
}

// writeTable makes a table that is wider than a phone scroll by itself, by touch and by keys.
func writeTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="wide" role="region" aria-label="Table" tabindex="0"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func writeCode(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	kind, file := "", ""
	if f, ok := n.(*ast.FencedCodeBlock); ok && f.Info != nil {
		kind, file, _ = strings.Cut(string(f.Info.Segment.Value(src)), " ")
	}
	var text strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		text.Write(line.Value(src))
	}
	if strings.Contains(file, ".") {
		fmt.Fprintf(w, `<p class="file">%s</p>`+"\n", html.EscapeString(file))
	}
	fmt.Fprintf(w, `<pre tabindex="0"><code class="%s">`, html.EscapeString(kind))
	switch kind {
	case "sh", "console":
		_, _ = w.WriteString(session(text.String()))
	case "yaml":
		_, _ = w.WriteString(yaml(text.String()))
	default:
		_, _ = w.WriteString(html.EscapeString(text.String()))
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkContinue, nil
}

// unbroken is the length up to which code in a text is not broken into two lines: it fits a phone.
const unbroken = 34

func writeCodeSpan(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var text strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			text.WriteString(strings.ReplaceAll(string(t.Segment.Value(src)), "\n", " "))
		}
	}
	class := ""
	if text.Len() > unbroken {
		class = ` class="long"`
	}
	fmt.Fprintf(w, "<code%s>%s</code>", class, html.EscapeString(text.String()))
	return ast.WalkSkipChildren, nil
}

// session marks the commands of a shell, their prompts and what they print. A line that ends with a
// backslash or a pipe continues in the next one.
func session(text string) string {
	if !strings.HasPrefix(text, "$ ") {
		return html.EscapeString(text)
	}
	var b strings.Builder
	continued := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		command, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case prompt:
			b.WriteString(`<span class="prompt">$ </span><b>` + html.EscapeString(command) + "</b>\n")
		case continued:
			b.WriteString("<b>" + html.EscapeString(line) + "</b>\n")
		default:
			b.WriteString(`<span class="out">` + html.EscapeString(line) + "</span>\n")
		}
		continued = (prompt || continued) && (strings.HasSuffix(line, `\`) || strings.HasSuffix(line, " |"))
	}
	return b.String()
}

var (
	yamlKey     = regexp.MustCompile(`^(\s*(?:- )?)([\w.-]+)(:)`)
	yamlComment = regexp.MustCompile(`(^|\s)(#.*)$`)
)

// yaml marks the keys and the comments of a policy.
func yaml(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = html.EscapeString(strings.TrimSuffix(line, "\n"))
		if !strings.Contains(line, "&#34;") { // a # in a text is no comment
			line = yamlComment.ReplaceAllString(line, `$1<i>$2</i>`)
		}
		b.WriteString(yamlKey.ReplaceAllString(line, `$1<em>$2</em>$3`) + "\n")
	}
	return b.String()
}
