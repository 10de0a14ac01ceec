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

// markdown reads CommonMark with tables, task lists and ~~strikethrough~~. Its title is its first heading.
func markdown(l *lines, src []byte) (string, error) {
	if err := affordable(src); err != nil {
		return "", err
	}
	parser := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList)).Parser()
	w := walker{lines: l, src: src}
	w.walk(parser.Parse(source.NewReader(src)))
	return w.heading, nil
}

// affordable refuses what the parser would take minutes for: its time grows with the square of what is left open. No text
// that anybody wrote to be read comes near.
func affordable(src []byte) error {
	const (
		mostNested = 100
		mostWork   = 1 << 30 // bytes looked at again for each unfinished link, or pairs of signs; a second for 300 million
	)
	work, begin := 0, 0
	links, names, signs := 0, 0, 0 // of the part from begin: (what may link), (where to), what may be emphasis
	for at := 0; at < len(src); {
		here, _, _ := bytes.Cut(src[at:], []byte("\n"))
		if n := nested(here); n > mostNested {
			return problem("take these signs away", "a line begins with %d signs of quotations or lists, more than %d", n, mostNested)
		}
		links += bytes.Count(here, []byte("]("))
		names += bytes.Count(here, []byte("]:"))
		signs += bytes.Count(here, []byte("*")) + bytes.Count(here, []byte("_")) + bytes.Count(here, []byte("~"))
		if at += len(here) + 1; len(bytes.TrimSpace(here)) == 0 || at >= len(src) {
			if work += (links+names/16)*(at-begin) + signs*signs; work > mostWork {
				return problem("put empty lines between its parts",
					"a part of it without an empty line has too many links (%d) or signs *, _ and ~ (%d)", links+names, signs)
			}
			links, names, signs, begin = 0, 0, 0, at
		}
	}
	return nil
}

// nested returns how many quotations and items of lists may begin at the beginning of a line.
func nested(line []byte) (n int) {
	for i, c := range line {
		switch {
		case c == '>':
			n++
		case strings.IndexByte(" \t0123456789", c) >= 0:
		case strings.IndexByte("-+*.)", c) >= 0:
			if i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\t') {
				n++
			}
		default:
			return n
		}
	}
	return n
}

// A walker takes text out of a document's tree, without recursion: what is nested deep costs no stack.
type walker struct {
	*lines
	src     []byte
	heading string // the first that has any text
	from    int    // where the present heading began
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

// enter reads what is in a node, but for its children. It returns whether those are to be read, and after what sibling to
// go on where it is not the next.
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

// prose adds text in which \* is * and &amp; is &, unless it is raw.
func (w *walker) prose(text []byte, raw bool) {
	if raw || !bytes.ContainsAny(text, `\&`) {
		w.words(string(text))
		return
	}
	var b bytes.Buffer
	escaped := bufio.NewWriter(&b)
	render.DefaultWriter.Write(escaped, text)
	_ = escaped.Flush() // a buffer takes everything
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

// html reads a block of HTML by itself: what it leaves open ends with it.
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

// tag reads a tag among text. What follows an opening script, up to its end, is nothing to read: then the end is returned.
func (w *walker) tag(n *ast.RawHTML) (after ast.Node) {
	p := reader{lines: w.lines}
	p.read(raw(n, w.src))
	if p.without == 0 {
		return nil
	}
	for s := n.NextSibling(); s != nil; s = s.NextSibling() {
		if t, ok := s.(*ast.RawHTML); ok && closes(raw(t, w.src), p.without) {
			return s
		}
	}
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
