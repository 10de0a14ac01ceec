package policyfile

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// These bounds keep the cost of a hostile file proportional to its size. Without them, YAML parsers
// take quadratic time or worse for some input.
const (
	maxMarks  = 100_000 // characters that can begin a token: 100 for each of MaxLimiters
	maxNested = 16      // depth of nested brackets; a policy needs 3
	maxIndent = 64      // column in which a field or a list item begins; a policy needs 6
	maxFields = 1001    // fields in one mapping: by and weir.MaxPlans plans; a limiter has 11
)

// scan splits the source into tokens. It is false if the source is not fit for the parser.
func (d *reading) scan(source []byte) (token.Tokens, bool) {
	if len(source) > MaxSize {
		d.report(place{}, "", "", d.kind.smaller,
			"the file is too large: at most %d bytes (1 MiB) are allowed", MaxSize)
		return nil, false
	}
	text, ok := d.decode(source)
	if !ok || !d.scanLines(text) {
		return nil, false
	}
	return d.scanTokens(text)
}

// binaryWithin is how many bytes are looked at for NULs. Text has none; one alone is a slip, and is
// reported at its place.
const binaryWithin = 1024

var byteOrderMark = []byte("\xEF\xBB\xBF")

// decode checks that the source is UTF-8 without hidden characters, and returns it with LF line
// endings.
func (d *reading) decode(source []byte) (text string, ok bool) {
	if bytes.HasPrefix(source, []byte("\xFF\xFE")) || bytes.HasPrefix(source, []byte("\xFE\xFF")) {
		d.report(place{1, 1, ""}, "", "", "save it as UTF-8", "the file is UTF-16: a %s file must be UTF-8", d.kind.name)
		return "", false
	}
	if bytes.Count(source[:min(len(source), binaryWithin)], []byte{0}) > 1 {
		d.report(place{}, "", "", d.kind.start, "the file is not a text file: expected a %s in YAML", d.kind.name)
		return "", false
	}
	if bytes.HasPrefix(source, byteOrderMark) {
		d.report(place{1, 1, ""}, "", "", "save it as \"UTF-8\", not as \"UTF-8 with BOM\"",
			"the file begins with a byte order mark: a %s file is UTF-8 without one", d.kind.name)
		source = source[len(byteOrderMark):]
	}
	line, column := 1, 1
	for i := 0; i < len(source); {
		r, size := utf8.DecodeRune(source[i:])
		if r == utf8.RuneError && size == 1 {
			d.report(place{line, column, ""}, "", "", "save the file as UTF-8", "the byte 0x%02x is not UTF-8", source[i])
			return "", false
		}
		crlf := r == '\r' && i+1 < len(source) && source[i+1] == '\n'
		if r != '\n' && r != '\t' && !crlf && isHidden(r) {
			d.hidden(place{line, column, ""}, r)
			return "", false
		}
		i, column = i+size, column+1
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	// The scanner counts the line of a comment that ends in CR LF twice.
	return strings.ReplaceAll(string(source), "\r\n", "\n"), true
}

// isHidden reports whether r is invisible, or makes text display in another order than it is read.
func isHidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

func (d *reading) hidden(at place, r rune) {
	switch {
	case r == '\r':
		d.report(at, "", "", "save the file with LF or CR LF line endings", "a carriage return without a line feed: lines end in LF or CR LF")
	case unicode.IsControl(r):
		d.report(at, "", "", "remove it", "the control character %U: only visible characters are allowed", r)
	default:
		d.report(at, "", "", fmt.Sprintf("remove it; if a path needs it, put the path in double quotes and write \\u%04x", r),
			"the invisible character %U: only visible characters are allowed", r)
	}
}

// scanLines rejects input that would make the scanner slow, before the scanner runs, and common
// mistakes in indentation.
func (d *reading) scanLines(text string) bool {
	var tab place
	tabs, marks, number := 0, 0, 0
	before := len(d.problems)
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		code, comment, _ := strings.Cut(line, "#")
		if i := strings.IndexByte(code, '\t'); i >= 0 {
			if tabs++; tabs == 1 {
				tab = place{number, columnOf(line, i), ""}
			}
		}
		for _, c := range []byte(line) {
			if strings.IndexByte(",[]{}:-?\"'#&*!%", c) >= 0 {
				marks++
			}
		}
		marks++
		if strings.Trim(code, " \t") == "" && !strings.ContainsAny(comment, `"'`) {
			continue // a comment, and not the end of a quoted text
		}
		if i := blockText(line); i >= 0 {
			d.report(place{number, columnOf(line, i), ""}, "", line[i:i+1], "write the text on the same line; move a comment that ends like this to a line of its own",
				"%q at the end of a line begins a text of several lines: every text of a %s is on one line", line[i:i+1], d.kind.name)
		}
	}
	if tabs > 0 {
		d.report(tab, "", "\t", "replace it with spaces", "a tab: YAML is indented with spaces (%s)", countLines(tabs))
	}
	if marks > maxMarks {
		d.report(place{}, "", "", d.kind.smaller, "%s", d.kind.tooMany)
	}
	return len(d.problems) == before
}

// blockText returns the index of a "|" or ">" at the end of a line that can begin a text of several
// lines, in quotes or not, or -1 if there is none. It ignores one that ends a word or an arrow.
func blockText(line string) int {
	for i, c := range []byte(line) {
		if c != '|' && c != '>' || i > 0 && isWord(line[i-1]) {
			continue
		}
		rest := strings.TrimLeft(strings.TrimLeft(line[i+1:], "-+0123456789"), " \t\r")
		if rest == "" || rest[0] == '#' {
			return i
		}
	}
	return -1
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_/|>-", c) >= 0
}

func columnOf(line string, index int) int { return 1 + utf8.RuneCountInString(line[:index]) }
