package main

import (
	"bytes"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/html"
)

// built returns the site of the repository's docs.
func built(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := build(os.DirFS("../../docs"), "/")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// An element is a start tag of a page.
type element struct {
	tag        string
	attributes map[string]string
}

func elements(t *testing.T, page []byte) (all []element) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			e := element{n.Data, map[string]string{}}
			for _, a := range n.Attr {
				e.attributes[a.Key] = a.Val
			}
			all = append(all, e)
		}
	}
	return all
}

// pagesOf returns the pages by their path, with their elements.
func pagesOf(t *testing.T, files map[string][]byte) map[string][]element {
	t.Helper()
	all := map[string][]element{}
	for name, content := range files {
		if strings.HasSuffix(name, ".html") {
			all[name] = elements(t, content)
		}
	}
	if len(all) < 60 {
		t.Fatalf("the site has %d pages", len(all))
	}
	return all
}

func TestEveryLinkOfTheSiteLeadsSomewhere(t *testing.T) {
	files := built(t)
	pages := pagesOf(t, files)
	places := map[string]bool{}
	for name, all := range pages {
		places[name+"#"] = true
		for _, e := range all {
			if id := e.attributes["id"]; id != "" {
				if places[name+"#"+id] {
					t.Errorf("%s has two elements %q", name, id)
				}
				places[name+"#"+id] = true
			}
		}
	}
	links := 0
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, e := range pages[name] {
			link := e.attributes["href"] + e.attributes["src"]
			if link == "" || strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(link, "#")
			target := name
			if strings.HasPrefix(file, "/") {
				target = strings.TrimPrefix(file, "/") // of 404.html
			} else if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if files[target] == nil || strings.HasSuffix(target, ".html") && !places[target+"#"+anchor] {
				t.Errorf("%s links to %s, which is not there", name, link)
			}
		}
	}
	if links < 3000 {
		t.Errorf("only %d links were followed", links)
	}
}

// A link to a file outside of docs leads to the repository, and that file exists.
func TestLinksOutOfTheDocsLeadToFilesOfTheRepository(t *testing.T) {
	found := 0
	for name, all := range pagesOf(t, built(t)) {
		for _, e := range all {
			file, ok := strings.CutPrefix(e.attributes["href"], source+"blob/main/")
			if !ok {
				continue
			}
			found++
			file, _, _ = strings.Cut(file, "#")
			if _, err := os.Stat("../../" + file); err != nil {
				t.Errorf("%s links to %s: %v", name, file, err)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links to the repository were found", found)
	}
}

// A page has no script and no style in its text, and its policy lets the browser load the site's
// own alone.
func TestThePagesLoadNothingFromElsewhere(t *testing.T) {
	for name, all := range pagesOf(t, built(t)) {
		policy := false
		for _, e := range all {
			for attribute := range e.attributes {
				if attribute == "style" || strings.HasPrefix(attribute, "on") {
					t.Errorf("%s: <%s %s=…> is inline", name, e.tag, attribute)
				}
			}
			loads := e.attributes["src"]
			if e.tag == "link" {
				loads = e.attributes["href"]
			}
			if strings.Contains(loads, "//") {
				t.Errorf("%s loads %s", name, loads)
			}
			if (e.tag == "script" && loads == "") || e.tag == "style" {
				t.Errorf("%s has an inline <%s>", name, e.tag)
			}
			policy = policy || e.attributes["http-equiv"] == "Content-Security-Policy" && strings.HasPrefix(e.attributes["content"], "default-src 'none'; ")
		}
		if !policy {
			t.Errorf("%s has no policy", name)
		}
	}
}

func TestAPageThatTheNavigationLacksIsAnError(t *testing.T) {
	docs := fstest.MapFS{
		"README.md": {Data: []byte("# Weir\n\nText.\n\n## Start\n\n- [One](one.md)\n")},
		"one.md":    {Data: []byte("# One\n")},
	}
	if _, err := build(docs, "/"); err != nil {
		t.Errorf("a whole site: %v", err)
	}
	docs["two.md"] = &fstest.MapFile{Data: []byte("# Two\n")}
	if _, err := build(docs, "/"); err == nil || !strings.Contains(err.Error(), "two.md") {
		t.Errorf("a page without a link: %v", err)
	}
	docs["two.md"] = &fstest.MapFile{Data: []byte("Two\n")}
	if _, err := build(docs, "/"); err == nil || !strings.Contains(err.Error(), "# Title") {
		t.Errorf("a page without a title: %v", err)
	}
}

func TestTheSearchFindsEveryHeading(t *testing.T) {
	index := string(built(t)["search-index.js"])
	for _, place := range []string{`"u":"quickstart.html"`, `"u":"commands/serve.html#--upstream"`, `"u":"questions/why-401.html"`, `"u":"answers.html#answers-of-the-gateway"`,
		`"p":"weir key grant","t":"--ip"`, `"p":"The policy file › Fields","t":"Counting by a claim"`} {
		if !strings.Contains(index, place) {
			t.Errorf("the index lacks %s", place)
		}
	}
	if len(index) > 600_000 {
		t.Errorf("the index has %d bytes", len(index))
	}
}

func TestTextIsWrittenAsText(t *testing.T) {
	docs := fstest.MapFS{"README.md": {Data: []byte("# A <b> & `<i>`\n\n<script>x</script>\n\n```sh\n$ echo '<u>' |\n    cat\n<u>\n```\n\n```yaml\na: \"<u>\" # <u>\n```\n")}}
	files, err := build(docs, "/")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range elements(t, files["index.html"]) {
		if e.tag == "u" || e.tag == "script" && e.attributes["src"] == "" {
			t.Errorf("a page's text became <%s>", e.tag)
		}
	}
	for _, want := range []string{
		`<span class="prompt">$ </span><b>echo &#39;&lt;u&gt;&#39; |</b>` + "\n<b>    cat</b>\n" + `<span class="out">&lt;u&gt;</span>`,
	} {
		if !bytes.Contains(files["index.html"], []byte(want)) {
			t.Errorf("the page lacks %s:\n%s", want, files["index.html"])
		}
	}
}
