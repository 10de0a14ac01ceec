package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// source is where the files outside of docs are, to which pages link.
const source = "https://github.com/weirlimit/weir/"

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/page.html"))

// A site is the pages of docs while they are built.
type site struct {
	files    fs.FS
	pages    map[string]*page // by their path in docs
	sections []section
	order    []*page // as in the navigation
}

// build returns the files of the site by their path.
func build(files fs.FS, at string) (map[string][]byte, error) {
	s := &site{files: files, pages: map[string]*page{}}
	if err := s.read(); err != nil {
		return nil, err
	}
	if err := s.navigate(); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		p := s.pages[name]
		if err := s.render(p); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		html, err := s.view(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[p.url] = html
	}
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	out["search-index.js"] = index
	if out["404.html"], err = s.missing(at); err != nil {
		return nil, err
	}
	return out, s.copyFiles(out)
}

// read reads every page.
func (s *site) read() error {
	return fs.WalkDir(s.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".md") {
			return err
		}
		text, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		p, err := parse(name, text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.pages[name] = p
		return nil
	})
}

// copyFiles adds what is no page: pictures, schemas, style and scripts.
func (s *site) copyFiles(out map[string][]byte) error {
	for _, from := range []struct {
		files fs.FS
		kinds []string
	}{{s.files, []string{".png", ".svg", ".json"}}, {assets, []string{".css", ".js", ".svg"}}} {
		err := fs.WalkDir(from.files, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains(from.kinds, path.Ext(name)) {
				return err
			}
			b, err := fs.ReadFile(from.files, name)
			out[strings.TrimPrefix(name, "assets/")] = b
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A view is what the layout shows of a page.
type view struct {
	Title, Description string
	Root               string // the way to the site's root: "", "../", …
	Home               bool
	Body               template.HTML
	Contents           []heading
	Sections           []section
	Here               string // the page's address from the root
	Previous, Next     *link
	Source             string
}

// view returns a page in its layout.
func (s *site) view(p *page) ([]byte, error) {
	v := view{
		Title: p.title, Description: p.description, Root: strings.Repeat("../", strings.Count(p.url, "/")), Home: p.url == "index.html",
		Body: template.HTML(p.html), Sections: s.sections, Here: p.url, Source: source + "blob/main/docs/" + p.name,
	}
	for _, h := range p.headings {
		if h.Level > 1 && h.Level < 4 {
			v.Contents = append(v.Contents, h)
		}
	}
	if at := slices.Index(s.order, p); at >= 0 {
		if at > 0 {
			v.Previous = s.order[at-1].link()
		}
		if at+1 < len(s.order) {
			v.Next = s.order[at+1].link()
		}
	}
	return execute(v)
}

// missing returns the page for addresses that the site does not have. A server sends it at any
// depth, so its links begin at the root.
func (s *site) missing(at string) ([]byte, error) {
	return execute(view{
		Title: "Not found", Root: strings.TrimSuffix(at, "/") + "/", Sections: s.sections,
		Body: "<h1>This page is not here</h1><p>It may have moved. Search for it, or go on from the list of pages.</p>",
	})
}

func execute(v view) ([]byte, error) {
	var b bytes.Buffer
	err := layout.Execute(&b, v)
	return b.Bytes(), err
}
