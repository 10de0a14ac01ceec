package folder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// deep returns nested lists, one line each.
func deep(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s- a\n", strings.Repeat("  ", i))
	}
	return b.String()
}

func TestMarkdownThatDrownsItsParserIsBad(t *testing.T) {
	table := func(columns, rows int) string {
		return strings.Repeat("|a", columns) + "|\n" + strings.Repeat("|-", columns) + "|\n" + strings.Repeat("|b\n", rows)
	}
	for _, c := range []struct{ what, source, want string }{
		{"a wide table of short rows", table(1000, 5000), "has too many rows (5001)"},
		{"in a quotation", "> |a|a\n> :-|-\n" + strings.Repeat("> b\n>\n", 1<<17), "too many rows"},
		{"many tables", strings.Repeat(table(100, 100)+"\n", 100), "too many rows"},
		{"lists within each other", deep(700), "or with as much indentation"},
		{"by tabs", strings.Repeat("\t", 100) + "- a", "or with as much indentation"},
		{"brackets within each other", strings.Repeat("[", 1<<18) + strings.Repeat("]", 1<<18), "brackets (524288)"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if _, err := made(t, "a.md", c.source); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
		})
	}
	for _, source := range []string{
		table(20, 5000), deep(60), strings.Repeat("> ", 100) + "a", strings.Repeat(" ", 300) + "a", strings.Repeat("[a]: /b\n", 5000),
		strings.Repeat("a [b](c) | d\n", 5000),
	} {
		if err := affordable([]byte(source)); err != nil {
			t.Errorf("%.20q is refused: %v", source, err)
		}
	}
}

func TestEmptyLinesAreSqueezed(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "\n\n\na\n": "\na\n", "a\n\nb": "a\n\nb", "a\n \n\t\n\n  b\n\n\n": "a\n \n  b\n\n", "a\n\f\n\u00a0\nb": "a\n\f\n\u00a0\nb",
	} {
		t.Run(in, func(t *testing.T) {
			if got := string(squeezed([]byte(in))); got != want {
				t.Errorf("%q becomes %q, want %q", in, got, want)
			}
		})
	}
	d, err := made(t, "a.md", deep(40)+strings.Repeat("\n", 500_000)+"```\nx\n\n\n\ny\n```\n")
	if err != nil || !strings.HasSuffix(d.Text, "a\nx\n\ny") {
		t.Errorf("lists and empty lines: %v, %q", err, d.Text)
	}
}

// A parser that takes too long is abandoned when ctx ends.
func TestReadingIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	never := make(chan struct{})
	defer close(never)
	if _, err := abandoned(ctx, func() (Document, error) { cancel(); <-never; return Document{}, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	f := open(t, write(t, map[string]string{"a.md": "a"}))
	if _, err := f.Read(ctx, "a.md"); err != context.Canceled {
		t.Errorf("read after the end: %v", err)
	}
	if d, err := f.Read(context.Background(), "a.md"); err != nil || d.Text != "a" {
		t.Errorf("read: %+v, %v", d, err)
	}
}
