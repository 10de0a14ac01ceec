//go:build !race

// One goroutine reads files: the race detector would only make that slow.

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxCommentColumns = 100

// TestCommentsAreReadable checks the comments of every Go file, including bench/. A
// line with a comment has at most 100 columns. If a comment names a decision of the
// contract (D1 to D26), it first states the rule, and puts the number after it in
// parentheses.
func TestCommentsAreReadable(t *testing.T) {
	read := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "testdata" || e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") && e.Name() != "..") {
			return filepath.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		read++
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		problems, err := commentProblems(path, source)
		for _, p := range problems {
			t.Error(p)
		}
		return err
	})
	if err != nil || read < 100 {
		t.Errorf("read %d Go files: %v; it looked in the wrong place", read, err)
	}
}

// The check finds violations, and accepts the exceptions.
func TestUnreadableCommentsAreFound(t *testing.T) {
	long := strings.Repeat("word ", 20)
	for _, c := range []struct {
		source string
		want   int
	}{
		{"// A comment of " + long + "\n", 1},
		{"\tx := 1 // a comment of " + long + "\n", 1},
		{"// " + strings.Repeat("é", 97) + "\n", 0}, // columns, not bytes
		{"\t\t// " + strings.Repeat("x", 90) + "\n", 1},
		{"\tx := `// " + long + long + "`\n", 0},
		{"//go:generate " + long + "\n", 0},
		{"// https://example.com/" + strings.Repeat("x", 100) + "\n", 0},
		{"//\tfirst column   " + long + "\n", 0},
		{"// Output:\n// " + long + "\n", 0},
		{"//\t| a | row | of a table | " + long + "\n", 0},
		{"// D10\n", 1},
		{"// D10: a path has one reading.\n", 1},
		{"\tx := 1 // D4, D7.\n", 1},
		{"// A path has one reading\n// (D10).\n", 0},
		{"// A path has one reading (D10). A peek spends nothing (D4, D7).\n", 0},
		{"// A path has one reading, as D10 requires.\n", 0},
		{"// (D10) A path has one reading.\n", 1},
	} {
		source := "package p\n\nfunc f() {\n" + c.source + "}\n"
		got, err := commentProblems("p.go", []byte(source))
		if err != nil || len(got) != c.want {
			t.Errorf("%q: %q, %v, want %d problems", c.source, got, err, c.want)
		}
	}
}

var (
	startsWithDecision = regexp.MustCompile(`^\(?D\d+\b`)
	// Directives, tables, code and URLs may be wider.
	notProse = regexp.MustCompile(`^//(go:|\t|  )|://`)
)

// commentProblems returns the problems in the comments of a Go file. A paragraph of
// // lines is one comment.
func commentProblems(path string, source []byte) ([]string, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	var problems []string
	for _, group := range f.Comments {
		begins, output := true, false
		for _, c := range group.List {
			at := files.Position(c.Pos())
			line := lines[at.Line-1]
			columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			// An example's expected output may be wide.
			output = output || strings.HasPrefix(c.Text, "// Output:")
			if columns > maxCommentColumns && !output && !notProse.MatchString(c.Text) {
				problems = append(problems, fmt.Sprintf("%v: the line has %d columns, and a line with a comment at most %d: "+
					"wrap it, or move the comment to a line above", at, columns, maxCommentColumns))
			}
			text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			if begins && startsWithDecision.MatchString(text) {
				problems = append(problems, fmt.Sprintf("%v: %q: spell out the rule, and put the decision's number after it in parentheses", at, text))
			}
			begins = text == ""
		}
	}
	return problems, nil
}
