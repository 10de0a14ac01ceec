package folder

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	render "github.com/yuin/goldmark/renderer/html"
	source "github.com/yuin/goldmark/text"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// markdown reads CommonMark with tables, task lists and ~~strikethrough~~. The title is the first
// heading.
func markdown(l *lines, src []byte) (string, error) {
	src = squeezed(src)
	if err := affordable(src); err != nil {
		return "", err
	}
	parser := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList)).Parser()
	w := walker{lines: l, src: src}
	w.walk(parser.Parse(source.NewReader(src)))
	return w.heading, nil
}

// A walker extracts the text of a document tree without recursion, so that deep nesting needs no
// stack.
type walker struct {
	*lines
	src     []byte
	heading string // the first with any text
	from    int    // offset at which the current heading began

	unclosed map[unclosed]bool // elements known to have no end tag
	looked   int               // tags examined in the search for end tags
}

// An unclosed element has no end tag among the siblings after one of its start tags, so a later
// start tag has none either.
type unclosed struct {
	parent ast.Node
	name   atom.Atom
}

func (w *walker) walk(n ast.Node) {
	for n != nil {
		next := n.NextSibling()
		descend, after := w.enter(n)
		if after != nil {
			next = after
		}
		if child := n.FirstChild(); child != nil && descend {
			n = child
			continue
		}
		for {
			w.leave(n)
			if next != nil || n.Parent() == nil {
				break
			}
			n = n.Parent()
			next = n.NextSibling()
		}
		n = next
	}
}

// enter reads a node without its children. descend reports whether the children are to be read. If
// after is not nil, the walk continues after that sibling.
func (w *walker) enter(n ast.Node) (descend bool, after ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		w.end()
		w.from = w.b.Len()
	case *ast.Text:
		w.prose(n.Segment.Value(w.src), n.IsRaw())
		switch {
		case n.HardLineBreak():
			w.end()
		case n.SoftLineBreak():
			w.words(" ")
		}
	case *ast.String:
		w.prose(n.Value, n.IsRaw() || n.IsCode())
	case *ast.CodeSpan:
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			if t, ok := c.(*ast.Text); ok {
				w.words(string(t.Segment.Value(w.src)))
			}
		}
		return false, nil
	case *ast.CodeBlock:
		w.code(n.Lines())
	case *ast.FencedCodeBlock:
		w.code(n.Lines())
	case *ast.HTMLBlock:
		w.html(n)
	case *ast.RawHTML:
		return false, w.tag(n)
	case *ast.AutoLink:
		w.words(string(n.Label(w.src)))
	case *tables.TableCell:
		w.cell()
	default:
		if n.Type() == ast.TypeBlock {
			w.end()
		}
	}
	return true, nil
}

func (w *walker) leave(n ast.Node) {
	switch n.(type) {
	case *ast.Heading:
		if w.heading == "" {
			w.heading = w.since(w.from)
		}
		w.end()
	case *tables.TableCell:
	default:
		if n.Type() == ast.TypeBlock {
			w.end()
		}
	}
}

// prose adds text. Unless it is raw, \* becomes * and &amp; becomes &.
func (w *walker) prose(text []byte, raw bool) {
	if raw || !bytes.ContainsAny(text, `\&`) {
		w.words(string(text))
		return
	}
	var b bytes.Buffer
	escaped := bufio.NewWriter(&b)
	render.DefaultWriter.Write(escaped, text)
	_ = escaped.Flush() // a bytes.Buffer returns no errors
	w.words(html.UnescapeString(b.String()))
}

func (w *walker) code(segments *source.Segments) {
	w.end()
	for i := range segments.Len() {
		at := segments.At(i)
		w.verbatim(string(at.Value(w.src)))
	}
	w.end()
}

// html reads a block of HTML on its own: elements that it leaves open end with it.
func (w *walker) html(n *ast.HTMLBlock) {
	var b bytes.Buffer
	for i := range n.Lines().Len() {
		at := n.Lines().At(i)
		b.Write(at.Value(w.src))
	}
	if n.HasClosure() {
		b.Write(n.ClosureLine.Value(w.src))
	}
	w.end()
	p := reader{lines: w.lines}
	p.read(b.Bytes())
	if w.heading == "" {
		w.heading = p.heading
	}
	w.end()
}

// tag reads an inline tag. The content of an element such as script is not text, so tag returns its
// end tag, or nil if there is nothing to skip.
func (w *walker) tag(n *ast.RawHTML) (after ast.Node) {
	p := reader{lines: w.lines}
	p.read(raw(n, w.src))
	if p.without == 0 {
		return nil
	}
	this := unclosed{n.Parent(), p.without}
	if w.unclosed[this] {
		return nil
	}
	for s := n.NextSibling(); s != nil; s = s.NextSibling() {
		w.looked++
		if t, ok := s.(*ast.RawHTML); ok && closes(raw(t, w.src), p.without) {
			return s
		}
	}
	if w.unclosed == nil {
		w.unclosed = map[unclosed]bool{}
	}
	w.unclosed[this] = true
	return nil
}

func raw(n *ast.RawHTML, src []byte) []byte {
	var b bytes.Buffer
	for i := range n.Segments.Len() {
		at := n.Segments.At(i)
		b.Write(at.Value(src))
	}
	return b.Bytes()
}

func closes(tag []byte, name atom.Atom) bool {
	return strings.EqualFold(strings.Join(strings.Fields(string(tag)), ""), fmt.Sprintf("</%s>", name))
}
