// Package page writes the results of the benchmarks as Markdown, also into the documents that show
// them.
package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Table returns a Markdown table with aligned columns, which is also readable in a terminal. Rows
// are as long as head.
func Table(head []string, rows [][]string) string {
	widths := make([]int, len(head))
	all := append([][]string{head}, rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range all {
		for i, cell := range row {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		if n == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
		}
	}
	return b.String()
}

// Fill replaces the part of a document between the comments NAME:begin and NAME:end. A document
// without them is an error, and is not changed.
func Fill(path, name, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	begin, end := "<!-- "+name+":begin -->", "<!-- "+name+":end -->"
	form := regexp.MustCompile(`(?s)(` + regexp.QuoteMeta(begin) + `\n).*?(` + regexp.QuoteMeta(end) + `)`)
	if !form.Match(b) {
		return fmt.Errorf("write the page: %s has no place for the tables: %s and %s", path, begin, end)
	}
	filled := form.ReplaceAllString(string(b), "${1}"+strings.ReplaceAll(text, "$", "$$")+"${2}")
	if err := os.WriteFile(path, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
