package folder

import (
	"strings"
	"unicode"
)

// lines is plain text in the making. White space is only written when something follows it, so that text neither begins nor
// ends with it. Beyond max nothing is kept, but counted on.
type lines struct {
	b         strings.Builder
	size, max int
	newlines  int    // owed before the next character
	blank     string // owed behind them
}

func newLines(max int) *lines { return &lines{max: max} }

func (l *lines) String() string { return l.b.String() }

// words adds running text: white space of any kind becomes a single space.
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
		case r != '\u00ad': // a soft hyphen is no letter
			l.put(r)
		}
	}
}

// verbatim adds text whose lines and indentation matter. More than one empty line in a row becomes one.
func (l *lines) verbatim(s string) {
	const mostBlank = 256 // bytes of indentation
	for _, r := range s {
		switch {
		case r == '\n':
			l.newlines, l.blank = min(l.newlines+1, 2), ""
		case unicode.IsControl(r) && r != '\t' || r == ' ':
			r = ' '
			fallthrough
		case r == '\t':
			if len(l.blank) < mostBlank {
				l.blank += string(r)
			}
		default:
			l.put(r)
		}
	}
}

// end ends the line, where one has begun.
func (l *lines) end() {
	if l.begun() {
		l.newlines = 1
	}
	l.blank = ""
}

// cell begins the next cell of a row.
func (l *lines) cell() {
	if l.begun() {
		l.blank = "\t"
	}
}

// begun says whether the line has anything in it.
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

// since returns what was added since String had a length, in one line.
func (l *lines) since(length int) string {
	return strings.Join(strings.Fields(l.b.String()[length:]), " ")
}
