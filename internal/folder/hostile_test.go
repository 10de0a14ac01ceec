//go:build !race

// One goroutine reads each file, which the race detector would only slow down.

package folder

import (
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark"
	source "github.com/yuin/goldmark/text"
)

// Some of these would take a parser minutes, although the file is small enough to be read.
func TestHostileFilesCostLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	for _, c := range []struct{ name, unit string }{
		{"a.md", "> "}, {"a.md", ">"}, {"a.md", "["}, {"a.md", "[a]("}, {"a.md", "[a]((\n"}, {"a.md", "![a]("}, {"a.md", "*a "}, {"a.md", "**a*b "},
		{"a.md", "_a*"}, {"a.md", "`a"}, {"a.md", "`` ` "}, {"a.md", "- "}, {"a.md", "<"}, {"a.md", "<a"}, {"a.md", "<!--"}, {"a.md", "<div>\n"},
		{"a.md", "a|b\n-|-\n"}, {"a.md", "|"}, {"a.md", "[a]: b\n"}, {"a.md", "[a][b]"}, {"a.md", "~~a"}, {"a.md", "\\"}, {"a.md", "&"}, {"a.md", "* a\n "},
		{"a.md", "1. "}, {"a.md", "+ "}, {"a.md", "1) "}, {"a.md", "1. a\n"}, {"a.md", " 1.\n "}, {"a.md", "[a]"}, {"a.md", "[^a]"}, {"a.md", "!["}, {"a.md", "](a)"}, {"a.md", "a\n\n"}, {"a.md", "a ~b~ "}, {"a.md", "- - - - a\n"}, {"a.md", strings.Repeat("> ", 100) + "a\n"}, {"a.md", "- > "}, {"a.md", "\t"}, {"a.md", "<script>"},
		{"a.html", "<div>"}, {"a.html", "<"}, {"a.html", "<!--"}, {"a.html", "<a b="}, {"a.html", "<svg>"}, {"a.html", "<pre>"}, {"a.html", "<script>"},
		{"a.html", "</p>"}, {"a.html", "<h1>"}, {"a.html", "&lt"}, {"a.html", "<textarea>"}, {"a.html", "<title>"}, {"a.html", "<![CDATA["}, {"a.html", "<p \x22"},
		{"a.txt", " "}, {"a.txt", "\n"}, {"a.txt", "\t\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := int(kindOf(c.name).max) / 4
			start := time.Now()
			_, _ = made(t, c.name, strings.Repeat(c.unit, n/len(c.unit)))
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("%d bytes of %.10q took %v", n, c.unit, took)
			}
		})
	}
	for _, unit := range []string{"[", "{", "- ", "a: ", "? ", "&a ", "*a ", "!!x ", "\"", "'", "- - ", "a:\n ", "[a,", "<<: "} {
		start := time.Now()
		_, _ = made(t, "a.md", "---\n"+strings.Repeat(unit, maxMatter/len(unit))+"\n---\n")
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("front matter of %q took %v", unit, took)
		}
	}
}

// Each sibling is examined once per element name.
func TestATagThatIsNeverClosedIsLookedForOnce(t *testing.T) {
	const n = 10_000
	for _, unit := range []string{"x<video> ", "a<svg>", "a<svg><video> ", "x<video></video> "} {
		src := []byte(strings.Repeat(unit, n))
		w := walker{lines: newLines(MaxText), src: src}
		w.walk(goldmark.DefaultParser().Parse(source.NewReader(src)))
		if most := n * 8; w.looked > most {
			t.Errorf("%q: looked at %d siblings, want at most %d", unit, w.looked, most)
		}
	}
}
