package policyfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Problem is one thing wrong with a policy file, or surprising about it, and where it stands.
type Problem struct {
	File    string // as it was given
	Line    int    // from 1; 0 where the file as a whole is meant
	Column  int    // from 1, in characters
	Path    string // the place in the document, such as "limiters[0].windows[1]"; empty: the document itself
	Value   string // the offending value, cut where it is long; may be empty
	Message string // what is wrong, and what is allowed
	Hint    string // what to do; may be empty
}

// String returns the problem on one line, without the hint: file:line:column: message.
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// An Error holds every problem of a policy file in the file's order, at most MaxProblems and a last one that counts the
// rest.
type Error struct {
	Problems []Problem
}

// MaxProblems is how many problems of one file are told.
const MaxProblems = 100

// Error returns every problem on a line of its own, with its hint.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		if p.Hint != "" {
			lines[i] += " (" + p.Hint + ")"
		}
	}
	return strings.Join(lines, "\n")
}

// A place is where something stands in the file.
type place struct {
	line, column int
	text         string // a scalar's text where it stands in the file just so; otherwise empty
}

// of returns the place of the first part of p's text that is value, or p itself.
func (p place) of(value string) place {
	if i := strings.Index(p.text, value); i > 0 && value != "" {
		p.column += utf8.RuneCountInString(p.text[:i])
	}
	return p
}

// A reading is one Parse under way.
type reading struct {
	reader     Reader
	name       string
	problems   []Problem
	more       int              // problems that were counted and not kept
	at         map[string]place // of everything in the document, by its path
	failed     map[string]bool  // paths whose value is missing or unusable, which has been told
	routes     int              // how many were read
	exceptions int              // likewise
	policyAt   indexes
}

func newReading(r Reader, name string) *reading {
	return &reading{reader: r, name: name, at: make(map[string]place), failed: make(map[string]bool)}
}

// tell adds a problem. Of a file that is wrong throughout only the first are kept.
func (d *reading) tell(at place, path, value, hint, format string, args ...any) {
	if d.full() {
		d.more++
		return
	}
	d.problems = append(d.problems, d.problem(at, path, value, hint, fmt.Sprintf(format, args...)))
}

// full reports whether more problems are only counted.
func (d *reading) full() bool { return len(d.problems) == 10*MaxProblems }

func (d *reading) problem(at place, path, value, hint, message string) Problem {
	return Problem{d.name, at.line, at.column, path, excerpt(value), message, hint}
}

// fail adds a problem with the value at path, which is then unusable.
func (d *reading) fail(path, value, hint, format string, args ...any) {
	d.failed[path] = true
	d.tell(d.at[path], path, value, hint, format, args...)
}

// sorted returns the problems in the file's order, bounded.
func (d *reading) sorted() []Problem {
	all := d.problems
	sortProblems(all)
	if more := len(all) + d.more - MaxProblems; more > 0 {
		all = append(all[:MaxProblems:MaxProblems], Problem{File: d.name, Message: fmt.Sprintf("%d problems more are not shown", more)})
	}
	return all
}

func sortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// excerpt returns s, cut to what a person wants to see of a bad value.
func excerpt(s string) string {
	const most = 80
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
