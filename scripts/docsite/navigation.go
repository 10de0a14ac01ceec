package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// contents is the page whose sections and lists are the navigation.
const contents = "README.md"

// A section is one of the navigation.
type section struct {
	Title string
	Links []link
}

// navigate reads the navigation, and fails if it lacks a page. A page that the README.md of its
// own directory links to need not be in it.
func (s *site) navigate() error {
	home := s.pages[contents]
	if home == nil {
		return fmt.Errorf("%s is missing: the navigation is made of it", contents)
	}
	s.order = []*page{home}
	reached := map[string]bool{contents: true}
	for n := home.tree.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				s.sections = append(s.sections, section{Title: plain(n, home.source)})
			}
		case *ast.List:
			if len(s.sections) == 0 {
				continue
			}
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				target := firstLink(item)
				p := s.pages[target]
				if p == nil {
					return fmt.Errorf("%s: an item of %q does not begin with a link to a page: %q", contents, s.sections[len(s.sections)-1].Title, target)
				}
				last := &s.sections[len(s.sections)-1]
				last.Links = append(last.Links, link{p.url, plain(linkOf(item), home.source)})
				s.order = append(s.order, p)
				reached[target] = true
			}
		}
	}
	for name := range reached {
		if path.Base(name) == "README.md" && name != contents {
			for target := range pageLinks(s.pages[name]) {
				reached[target] = true
			}
		}
	}
	for name := range s.pages {
		if !reached[name] {
			return fmt.Errorf("%s leads to no page %s: list it in a section", contents, name)
		}
	}
	return nil
}

// linkOf returns the link that an item of a list begins with, or nil.
func linkOf(item ast.Node) *ast.Link {
	block := item.FirstChild()
	if block == nil {
		return nil
	}
	l, _ := block.FirstChild().(*ast.Link)
	return l
}

func firstLink(item ast.Node) string {
	if l := linkOf(item); l != nil {
		return string(l.Destination)
	}
	return ""
}

// pageLinks returns the pages of docs that a page links to.
func pageLinks(p *page) map[string]bool {
	all := map[string]bool{}
	// The function returns no error.
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if l, ok := n.(*ast.Link); ok && entering {
			target, _, _ := strings.Cut(string(l.Destination), "#")
			all[path.Join(path.Dir(p.name), target)] = true
		}
		return ast.WalkContinue, nil
	})
	return all
}
