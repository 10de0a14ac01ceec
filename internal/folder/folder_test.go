package folder

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// made makes a document of a file's bytes, with links below https://example.org/help.
func made(t testing.TB, name, source string) (Document, error) {
	t.Helper()
	base, err := url.Parse("https://example.org/help/")
	if err != nil {
		t.Fatal(err)
	}
	return document(name, []byte(source), kindOf(name), &Folder{base: base})
}

func TestADocumentIsWhatAReaderSees(t *testing.T) {
	for _, c := range []struct{ what, name, source, title, text string }{
		{"Markdown", "a.md", "# Delivery\n\nIt takes *two* to\nthree **days**.\n\n- one\n- [two](https://x.example/y)\n", "Delivery", "Delivery\nIt takes two to three days.\none\ntwo"},
		{"its first heading, of any level", "a.md", "text\n\n### Costs &amp; `more`\n\n# Other\n", "Costs & more", "text\nCosts & more\nOther"},
		{"an underlined heading", "a.md", "Costs\n=====\nfive\n", "Costs", "Costs\nfive"},
		{"no heading", "way to us.md", "We are *here*.\n", "way to us", "We are here."},
		{"an empty heading", "a.md", "#\n\n# Real\n", "Real", "Real"},
		{"code", "a.md", "Run:\n\n```go\nfunc main() {\n\tx := 1 < 2\n}\n```\n\nor `a  *b*`.\n", "a", "Run:\nfunc main() {\n\tx := 1 < 2\n}\nor a *b*."},
		{"indented code", "a.md", "Run:\n\n    a\n      b\n", "a", "Run:\na\n  b"},
		{"a table", "a.md", "| size | price |\n|---|---|\n| S | 5 |\n| L | *7* |\n", "a", "size\tprice\nS\t5\nL\t7"},
		{"a task", "a.md", "- [x] done\n- [ ] ~~not~~\n", "a", "done\nnot"},
		{"escapes", "a.md", "5 \\* 6 \\&amp; &lt;b&gt; &#65;\n", "a", "5 * 6 &amp; <b> A"},
		{"an image", "a.md", "![a red hat](hat.png \"hat\")\n", "a", "a red hat"},
		{"a bare address", "a.md", "<https://example.org/x>\n", "a", "https://example.org/x"},
		{"a line's end", "a.md", "one  \ntwo\nthree\\\nfour\n", "a", "one\ntwo three\nfour"},
		{"HTML in Markdown", "a.md", "<h1 align=\"center\">Weir</h1>\n\na <b>bold</b><br>claim<!-- no --> <script>x()</script>here\n\n<script>\ny()\n</script>\n", "Weir", "Weir\na bold\nclaim here"},
		{"a tag that is only named", "a.md", "Put it in a <script> tag.\n\nThen go on.\n", "a", "Put it in a tag.\nThen go on."},
		{"CRLF and a byte order mark", "a.md", "\ufeff---\r\ntitle: T\r\n---\r\n\r\none\r\ntwo\r\n", "T", "one two"},

		{"HTML", "a.html", "<!doctype html><html><head><title>All &amp; more</title><style>p{}</style></head><body><h1>Hi</h1><p>one\n two</p><p>three<script>x</script></body></html>", "All & more", "Hi\none two\nthree"},
		{"its first heading", "a.html", "<h2>Hi <em>you</em></h2>there", "Hi you", "Hi you\nthere"},
		{"no title", "sub/page.htm", "there", "page", "there"},
		{"nothing is closed", "a.html", "<title>T</title><ul><li>one<li>two<p>three<b>four", "T", "one\ntwo\nthreefour"},
		{"comments", "a.html", "a<!-- b --><![CDATA[c]]>d<?php e ?>f", "a", "adf"},
		{"preformatted", "a.html", "<p>x</p><pre>\n  a\n\n\n    b  \n</pre>y", "a", "x\n  a\n\n    b\ny"},
		{"what is drawn or run", "a.html", "a<svg><title>no</title><text>no</text></svg><noscript>no</noscript><template>no</template><iframe>no</iframe>b", "a", "ab"},
		{"a title in a drawing", "a.html", "<svg><title>no</title></svg><title>yes</title>a", "yes", "a"},
		{"a table", "a.html", "<table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>", "a", "a\tb\n1\t2"},
		{"entities", "a.html", "&lt;b&gt;&nbsp;&shy;&#0;&#7;x", "a", "<b> \ufffd x"},
		{"front matter", "a.html", "---\ntitle: Mine\n---\n<title>Other</title>x", "Mine", "x"},

		{"text", "notes.txt", "# one\r\n\r\n\r\n\r\n  two\t*x*  \r\n", "notes", "# one\n\n  two\t*x*"},
		{"text has no front matter", "notes.txt", "---\ntitle: x\n---\n", "notes", "---\ntitle: x\n---"},
		{"nothing", "notes.txt", "", "notes", ""},
		{"control characters", "notes.txt", "a\x0cb\x1b[31mc\u0085d", "notes", "a b [31mc d"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, err := made(t, c.name, c.source)
			if err != nil || d.Title != c.title || d.Text != c.text {
				t.Errorf("%s: %v\n got %q: %q\nwant %q: %q", c.what, err, d.Title, d.Text, c.title, c.text)
			}
		})
	}
}

func TestFrontMatterNamesADocument(t *testing.T) {
	for _, c := range []struct{ matter, title, link, problem string }{
		{"title: Delivery and return", "Delivery and return", "", ""},
		{"title: 'It''s: here' # really\ndraft: [a, {b: c}]\n", "It's: here", "", ""},
		{"title: 2026", "2026", "", ""},
		{"title: |\n  two\n  lines", "two lines", "", ""},
		{"title:\nurl: ~", "Heading", "", ""},
		{"", "Heading", "", ""},
		{"# only a comment", "Heading", "", ""},
		{"title: " + strings.Repeat("é", 300), strings.Repeat("é", 248) + "…", "", ""},
		{"url: https://shop.example/x", "Heading", "https://shop.example/x", ""},
		{"url: x/y", "", "", `url of its front matter, "x/y", is neither an absolute`},
		{"url: /%zz", "", "", "neither an absolute"},
		{"url: //u:p@x/", "", "", "neither an absolute"},
		{"url: /" + strings.Repeat("x", MaxURL), "", "", "at most 2048"},
		{"url: javascript:alert(1)", "", "", "neither an absolute http or https URL"},
		{"url: https://u:p@shop.example/", "", "", "neither an absolute"},
		{"url: https://shop.example/" + strings.Repeat("x", MaxURL), "", "", "at most 2048"},
		{"title: [a, b]", "", "", "line 2: title is not text"},
		{"x: 1\ntitle: {a: b}", "", "", "line 3: title is not text"},
		{"title: a: b", "", "", "not YAML: line 2"},
		{"title: \"a", "", "", "not YAML"},
		{"just words", "", "", "not a list of fields"},
		{"- a", "", "", "not a list of fields"},
	} {
		t.Run(c.title, func(t *testing.T) {
			d, err := made(t, "a.md", "---\n"+c.matter+"\n---\n# Heading\n")
			link := c.link
			if link == "" {
				link = "https://example.org/help/a"
			}
			switch {
			case c.problem == "" && (err != nil || d.Title != c.title || d.URL != link || d.Own != (c.link != "") || d.Text != "Heading"):
				t.Errorf("%q is %+v, %v; want title %q and url %s", c.matter, d, err, c.title, link)
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
				t.Errorf("%q: problem %v, want %q", c.matter, err, c.problem)
			}
		})
	}
	for own, want := range map[string]string{"/about/": "https://example.org/about/", "/a b?c#d": "https://example.org/a%20b?c#d", "/..": "https://example.org/"} {
		if d, err := made(t, "a.md", "---\nurl: "+own+"\n---\n"); err != nil || d.URL != want || d.Own {
			t.Errorf("url %s is %+v, %v; want %s, made from the base", own, d, err, want)
		}
	}
	for _, line := range []string{"---", "..."} {
		_, err := made(t, "a.md", "---\n"+strings.Repeat("# x\n", maxMatter/4+1)+line+"\ntext")
		if err == nil || !strings.Contains(err.Error(), "front matter has 16388 bytes: at most 16384") {
			t.Errorf("long front matter that ends with %s: %v", line, err)
		}
	}
	for _, source := range []string{"---\n\ntext that begins with a rule", "---\nx: y\n" + strings.Repeat("z\n", maxMatter)} {
		if d, err := made(t, "a.md", source); err != nil || d.Text == "" {
			t.Errorf("what begins with a rule is no front matter: %v, %q", err, d.Text)
		}
	}
}

func TestALinkIsThePathWithoutItsExtension(t *testing.T) {
	for name, want := range map[string]string{
		"a.md":                  "https://example.org/help/a",
		"b/c d.html":            "https://example.org/help/b/c%20d",
		"index.html":            "https://example.org/help/",
		"b/Index.md":            "https://example.org/help/b/",
		"b/index.2.md":          "https://example.org/help/b/index.2",
		"ü?#%41/x;y.txt":        "https://example.org/help/%C3%BC%3F%23%2541/x;y",
		"right\u202eto.left.md": "https://example.org/help/right%E2%80%AEto.left",
	} {
		t.Run(name, func(t *testing.T) {
			d, err := made(t, name, "x")
			if err != nil || d.URL != want || !linkable(d.URL) {
				t.Errorf("%s is linked as %q, %v; want %s", name, d.URL, err, want)
			}
		})
	}
}

func TestWhatIsNoTextIsAProblem(t *testing.T) {
	for source, want := range map[string]string{
		"abc\xffd":                     "not UTF-8 at byte 3",
		"\xff\xfea\x00":                "UTF-16",
		"a\x00b":                       "zero byte, at byte 1",
		strings.Repeat("x", MaxText+1): "its text has 262145 bytes: at most 262144",
		"# a\n" + strings.Repeat("é\n\n", MaxText): "at most 262144",
	} {
		_, err := made(t, "a.md", source)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: problem %v, want %q", source, err, want)
		}
	}
	if d, err := made(t, "a.txt", strings.Repeat("x", MaxText)+"\n\n"); err != nil || len(d.Text) != MaxText {
		t.Errorf("a text of just the length that is allowed: %d bytes, %v", len(d.Text), err)
	}
}

// write creates files in a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t *testing.T, dir string) *Folder {
	t.Helper()
	base, err := url.Parse("https://example.org")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(dir, Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAFolderIsWalkedOverWhatIsNoDocument(t *testing.T) {
	long := strings.Repeat("x", 100) + "/" + strings.Repeat("y", 100) + ".md"
	dir := write(t, map[string]string{
		"b.md": "b", "a/z.HTML": "z", "a/.git/c.md": "", ".weir-sync": "", "pic.png": "", "Makefile": "", "e.txt": "e", long: "",
	})
	for old, link := range map[string]string{"b.md": "link.md", "a": "folder"} {
		if err := os.Symlink(old, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dir)
	var good, bad []string
	tally, err := f.Walk(context.Background(), func(path string, p *Problem) {
		if p != nil {
			bad = append(bad, p.Error())
			return
		}
		if _, err := f.Read(context.Background(), path); err != nil {
			t.Error(err)
		}
		good = append(good, path)
	})
	if want := (Tally{Ignored: 2, Hidden: 2, Links: 2, Linked: []string{"folder", "link.md"}}); err != nil || !reflect.DeepEqual(tally, want) {
		t.Errorf("passed over %+v, %v; want %+v", tally, err, want)
	}
	if want := []string{"a/z.HTML", "b.md", "e.txt"}; !slices.Equal(good, want) {
		t.Errorf("found %q, want %q", good, want)
	}
	if len(bad) != 1 || !strings.Contains(bad[0], "its path has 204 bytes: an id has at most 200") {
		t.Errorf("problems: %q", bad)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Walk(ctx, func(string, *Problem) {}); err != context.Canceled {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "b.md"), Options{}); err == nil {
		t.Error("a file was opened as a folder")
	}
	for path, want := range map[string]string{"link.md": "symbolic link", "gone.md": "it cannot be read", "../x.md": "it cannot be read", "a": "its extension"} {
		t.Run(path, func(t *testing.T) {
			if _, err := f.Read(context.Background(), path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("read %s: %v, want %q", path, err, want)
			}
		})
	}
}

// A file of 100 MB is not read, whatever its name.
func TestALargeFileIsNotRead(t *testing.T) {
	dir := write(t, map[string]string{"a.md": "", "a.html": "", "a.txt": ""})
	f := open(t, dir)
	for _, name := range []string{"a.md", "a.html", "a.txt"} {
		if err := os.Truncate(filepath.Join(dir, name), 100_000_000); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := f.Read(context.Background(), name)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "it has 100000000 bytes: at most") {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: %d bytes were allocated to say so", name, used)
		}
	}
}

// Every file yields a document that the bulk-sync API accepts, or a problem.
func FuzzDocument(f *testing.F) {
	for _, name := range []string{"a.md", "a.html", "a.txt"} {
		f.Add(name, []byte("---\ntitle: x\n---\n# a\n\n<p>b &amp; c\n\n```\nd\n```\n"))
		f.Add(name, []byte("<title>a</title><pre>\n b</pre><svg>c"))
		f.Add(name, []byte("> - [a](b \"c\")\n\n|d|\n|-|\n|`e`|\n"))
	}
	f.Fuzz(func(t *testing.T, name string, source []byte) {
		if kindOf(name) == nil || misnamed(name) != nil || len(source) > 1<<20 {
			return
		}
		d, err := made(t, name, string(source))
		if err != nil {
			return
		}
		bad := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }
		for what, s := range map[string]string{"title": d.Title, "url": d.URL, "text": d.Text} {
			if !utf8.ValidString(s) || strings.ContainsFunc(s, bad) || what != "text" && (strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\n\r\t\u2028\u2029")) {
				t.Errorf("%s %q", what, s)
			}
		}
		if len(d.Title) > MaxTitle || len(d.URL) > MaxURL || len(d.Text) > MaxText || !linkable(d.URL) {
			t.Errorf("%d bytes of title, %d of text, url %q", len(d.Title), len(d.Text), d.URL)
		}
		if again, err := made(t, name, string(bytes.Clone(source))); err != nil || again != d {
			t.Errorf("made again it is another: %v", err)
		}
	})
}
