package policyfile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Problem is one mistake in a policy file, or one surprise, with its position.
type Problem struct {
	File    string // the path or name that the caller gave
	Line    int    // from 1; 0 if the problem is about the whole file
	Column  int    // from 1, in characters
	Path    string // in the document, such as "limiters[0].windows[1]"; empty: the document itself
	Value   string // the offending value, truncated if it is long; may be empty
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

// An Error holds the problems of a policy file, in the order of the file. After MaxProblems of
// them, one more states how many were left out.
type Error struct {
	Problems []Problem
}

// MaxProblems is the maximum number of problems that an Error lists for one file.
const MaxProblems = 100

// Error returns the problems, one a line, each with its hint in parentheses.
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

// A place is a position in the file.
type place struct {
	line, column int
	text         string // a scalar's text if the file has it unescaped; otherwise empty
}

// of returns the place of the first occurrence of value in p's text, or p if there is none.
func (p place) of(value string) place {
	if i := strings.Index(p.text, value); i > 0 && value != "" {
		p.column += utf8.RuneCountInString(p.text[:i])
	}
	return p
}

// spelled returns the value as the file has it, in its own case of letters.
func (p place) spelled(value string) string {
	text := strings.ToLower(p.text)
	i := strings.Index(text, strings.ToLower(value))
	if i < 0 || len(text) != len(p.text) || strings.Contains(p.text, value) {
		return value
	}
	return p.text[i : i+len(value)]
}

// A reading is the state of one Parse.
type reading struct {
	reader     Reader
	name       string
	kind       *kind // what the file is
	problems   []Problem
	more       int              // problems that are counted but not kept
	at         map[string]place // the place of each value in the document, by its path
	failed     map[string]bool  // paths whose value is missing or unusable, and was reported
	routes     int              // number of routes read so far
	exceptions int              // number of exempt callers and overrides read so far
	policyAt   indexes
	messages   []string  // the names that a message may have; nil: any
	elsewhere  []Problem // in the files of networks
}

func newReading(r Reader, name string) *reading {
	return &reading{reader: r, name: name, kind: &aPolicy, at: make(map[string]place), failed: make(map[string]bool)}
}

// report adds a problem. Beyond 10*MaxProblems it only counts them.
func (d *reading) report(at place, path, value, hint, format string, args ...any) {
	if d.full() {
		d.more++
		return
	}
	d.problems = append(d.problems, d.problem(at, path, value, hint, fmt.Sprintf(format, args...)))
}

// full reports whether further problems are only counted.
func (d *reading) full() bool { return len(d.problems) == 10*MaxProblems }

// reported returns the number of problems so far.
func (d *reading) reported() int { return len(d.problems) + d.more }

func (d *reading) problem(at place, path, value, hint, message string) Problem {
	return Problem{d.name, at.line, at.column, withoutPasswords(path), excerpt(value), message, hint}
}

// fail reports a problem with the value at path and marks that value as unusable.
func (d *reading) fail(path, value, hint, format string, args ...any) {
	d.failed[path] = true
	d.report(d.at[path], path, value, hint, format, args...)
}

// sorted returns at most MaxProblems problems in the order of the file, and a last one that counts
// the rest.
func (d *reading) sorted() []Problem {
	all := d.problems
	sortProblems(all)
	all = append(all, d.elsewhere...)
	if more := len(all) + d.more - MaxProblems; more > 0 {
		all = append(all[:MaxProblems:MaxProblems], Problem{File: d.name, Message: fmt.Sprintf("%d more problems are not shown", more)})
	}
	return all
}

func sortProblems(all []Problem) {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// userOfURL matches the user and password of a URL, and the password of a Sentinel. It matches too
// much rather than too little: a password that is not escaped may hold spaces, quotes and slashes.
var userOfURL = regexp.MustCompile(`(?s)://.*@|password=[^\s"&]+`)

// withoutPasswords returns s without the users and passwords of URLs in it.
func withoutPasswords(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return userOfURL.ReplaceAllStringFunc(s, func(found string) string {
		if strings.HasPrefix(found, "://") {
			return "://…@"
		}
		return "password=…"
	})
}

// excerpt returns s without passwords in URLs, truncated to 80 characters.
func excerpt(s string) string {
	s = withoutPasswords(s)
	const maxRunes = 80
	n := 0
	for i := range s {
		if n == maxRunes {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
