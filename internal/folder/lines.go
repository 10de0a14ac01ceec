package folder

import (
	"strings"
	"unicode"
)

// lines builds plain text. White space is written only when a character follows it, so the text
// neither begins nor ends with it. Text beyond max bytes is counted but not kept.
type lines struct {
	b         strings.Builder
	size, max int
	newlines  int    // to write before the next character
	blank     string // to write after the newlines
}

func newLines(max int) *lines { return &lines{max: max} }

func (l *lines) String() string { return l.b.String() }

// words adds running text: any white space becomes a single space.
func (l *lines) words(s string) {
	for _, r := range s {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			if !l.begun() {
				continue
			}
			if l.blank == "" {
				l.blank = " "
			}
		case r != '\u00ad': // drop soft hyphens
			l.put(r)
		}
	}
}

// verbatim adds text whose lines and indentation matter. Consecutive empty lines become one.
func (l *lines) verbatim(s string) {
	const maxBlank = 256 // bytes of indentation
	for _, r := range s {
		switch {
		case r == '\n':
			l.newlines, l.blank = min(l.newlines+1, 2), ""
		case unicode.IsControl(r) && r != '\t' || r == ' ':
			r = ' '
			fallthrough
		case r == '\t':
			if len(l.blank) < maxBlank {
				l.blank += string(r)
			}
		default:
			l.put(r)
		}
	}
}

// end ends the current line, if it is not empty.
func (l *lines) end() {
	if l.begun() {
		l.newlines = 1
	}
	l.blank = ""
}

// cell begins the next cell of a table row.
func (l *lines) cell() {
	if l.begun() {
		l.blank = "\t"
	}
}

// begun reports whether the current line is not empty.
func (l *lines) begun() bool { return l.size > 0 && l.newlines == 0 }

func (l *lines) put(r rune) {
	if l.size > 0 {
		for range l.newlines {
			l.write('\n')
		}
	}
	for _, b := range l.blank {
		l.write(b)
	}
	l.newlines, l.blank = 0, ""
	l.write(r)
}

func (l *lines) write(r rune) {
	n := len(string(r))
	if l.size += n; l.size <= l.max {
		l.b.WriteRune(r)
	}
}

// since returns the text added since String had the given length, on one line.
func (l *lines) since(length int) string {
	return strings.Join(strings.Fields(l.b.String()[length:]), " ")
}
