package sample

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/weirlimit/weir/policyfile"
)

// docsOf parses /docs and calls visit for each of its elements, with their attributes.
func docsOf(t *testing.T, visit func(name string, attributes map[string]string)) (text string) {
	t.Helper()
	page := setUp(t).send("GET /docs", "", "").want(200).body
	root, err := html.Parse(strings.NewReader(string(page)))
	if err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
			words.WriteString(n.Data)
		case html.ElementNode:
			attributes := map[string]string{}
			for _, a := range n.Attr {
				attributes[a.Key] = a.Val
			}
			visit(n.Data, attributes)
		}
	}
	return words.String()
}

// Everything in the document is on the page: each operation with its limiter, each field, each
// status.
func TestTheDocsShowEverythingThatIsDescribed(t *testing.T) {
	ids := map[string]bool{}
	text := docsOf(t, func(_ string, a map[string]string) { ids[a["id"]] = true })
	d, err := described()
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range d.Spec.Paths.Map() {
		for method, o := range item.Operations() {
			if !ids[o.OperationID] || !strings.Contains(text, o.Summary) || !strings.Contains(text, path) {
				t.Errorf("%s %s is not on the page", method, path)
			}
		}
	}
	for name, schema := range d.Spec.Components.Schemas {
		for field := range schema.Value.Properties {
			if !regexp.MustCompile(`\b` + field + `\b`).MatchString(text) {
				t.Errorf("the field %s of %s is not on the page", field, name)
			}
		}
	}
	for _, l := range policyfile.Contract().Limiters {
		for _, w := range l.Windows {
			if l.Name != "widget-other" && !strings.Contains(text, w.String()) {
				t.Errorf("%s, %s, is not on the page", l.Name, w)
			}
		}
	}
	for _, said := range []string{
		"1 to 100", "at most 8000 characters", "one of visitor, assistant", "array of objects", "items[].title", "reply.sources[].url", "required, at most 64 KiB",
		"curl -X PUT 'http://localhost:8080/v1/wp/documents'", `-H "Authorization: Bearer $TOKEN"`, "Too many widget requests for this conversation",
		"conversation_id=cnv_K7XZQ2P4J5N6T3ROIYWLUVDAHE&after=2'", "string or null",
	} {
		if !strings.Contains(text, said) {
			t.Errorf("the page does not say %q", said)
		}
	}
	if marks := regexp.MustCompile("`|\\*\\*|<no value>|map\\[|%!").FindString(text); marks != "" {
		t.Errorf("the page has %q in it", marks)
	}
}

// The page can be read with a keyboard or a screen reader: it has landmarks, headings in order,
// links with targets, and scrolling boxes that can get the focus.
func TestTheDocsCanBeReadByAnybody(t *testing.T) {
	landmarks, ids, links := map[string]int{}, map[string]int{}, []string{}
	level := 0
	docsOf(t, func(name string, a map[string]string) {
		if a["id"] != "" {
			ids[a["id"]]++
		}
		switch name {
		case "main", "nav", "header", "h1", "title":
			landmarks[name]++
		case "html":
			if a["lang"] != "en" {
				t.Errorf("the language is %q", a["lang"])
			}
		case "a":
			links = append(links, a["href"])
		case "th":
			if a["scope"] == "" {
				t.Error("a table's heading does not say of what")
			}
		case "pre":
			if a["tabindex"] != "0" || a["aria-label"] == "" {
				t.Error("a box that scrolls cannot be reached by keyboard")
			}
		}
		if h := regexp.MustCompile(`^h([1-6])$`).FindStringSubmatch(name); h != nil {
			now := int(h[1][0] - '0')
			if now > level+1 {
				t.Errorf("a heading of level %d follows one of level %d", now, level)
			}
			level = now
		}
	})
	for _, name := range []string{"main", "nav", "header", "h1", "title"} {
		if landmarks[name] != 1 {
			t.Errorf("there are %d of %s, want one", landmarks[name], name)
		}
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("the id %s is there %d times", id, n)
		}
	}
	k := setUp(t)
	for _, href := range links {
		if target, ok := strings.CutPrefix(href, "#"); ok {
			if ids[target] == 0 {
				t.Errorf("the link %s leads nowhere", href)
			}
			continue
		}
		k.send("GET /"+href, "", "").want(http.StatusOK)
	}
}
