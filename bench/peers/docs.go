package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// writeDocs writes the charts into dir, and the tables into dir/performance.md, each between its
// own two comments. A table without figures is not changed.
func (r *results) writeDocs(dir string) error {
	path := filepath.Join(dir, "performance.md")
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	page := string(b)
	for _, t := range r.tables() {
		if len(t.rows) > 0 {
			page = between(page, t.name, t.title+":\n\n"+t.String())
		}
	}
	page = between(page, "machine", r.Machine.String()+".\n")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	for _, c := range r.charts() {
		if err := c.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// between replaces the part between the comments of a name.
func between(page, name, content string) string {
	form := regexp.MustCompile(`(?s)(<!-- figures: ` + regexp.QuoteMeta(name) + ` -->\n).*?(<!-- end -->)`)
	return form.ReplaceAllString(page, "${1}"+strings.ReplaceAll(content, "$", "$$")+"${2}")
}
