package folder

import (
	"bytes"
	"strings"
)

// affordable rejects Markdown that the parser would need minutes or all memory for: its time grows
// with the square of the number of unclosed constructs, and its tables with cells that no line
// contains. Text written for people does not come near these limits.
func affordable(src []byte) error {
	const (
		maxNested = 100
		maxCells  = 1 << 19 // in all tables, including cells that the parser adds to short rows
		// bytes rescanned for each unfinished link, or pairs of signs; one second for 300 million
		maxWork = 1 << 30
	)
	work, cells := 0, 0
	var p part
	for at := 0; at < len(src); {
		here, _, _ := bytes.Cut(src[at:], []byte("\n"))
		if n := nested(here); n > maxNested {
			return problem("remove these characters", "a line begins with %d markers of quotations or lists, more than %d, or with as much indentation", n, maxNested)
		}
		p.add(here)
		if at += len(here) + 1; !blank(here) && at < len(src) {
			continue
		}
		if work += p.work(at); work > maxWork {
			return problem("put empty lines between its parts",
				"a part of it without an empty line has too many links (%d), brackets (%d) or characters *, _ and ~ (%d)", p.links+p.names, p.opened+p.closed, p.signs)
		}
		if cells += p.columns * p.rows; cells > maxCells {
			return problem("make the head of the table narrower, or split the table", "a table with %d characters | in a line has too many rows (%d)", p.columns-1, p.rows)
		}
		p = part{begin: at}
	}
	return nil
}

// A part is the text between two empty lines.
type part struct {
	begin          int
	links, names   int // signs that may begin links, and link definitions
	signs          int // signs that may be emphasis
	opened, closed int // brackets
	columns, rows  int // max columns of a table; lines since the first table head
}

func (p *part) add(line []byte) {
	count := func(sign string) int { return bytes.Count(line, []byte(sign)) }
	p.links += count("](")
	p.names += count("]:")
	p.signs += count("*") + count("_") + count("~")
	p.opened += count("[")
	p.closed += count("]")
	if delimiter(line) {
		p.columns = max(p.columns, count("|")+1)
	}
	if p.columns > 0 {
		p.rows++
	}
}

// work returns the estimated cost of the part if it ends at offset end of the file.
func (p *part) work(end int) int {
	return (p.links+p.names/16)*(end-p.begin) + p.signs*p.signs + p.opened*p.closed
}

// delimiter reports whether a line, maybe in a quotation or list, may turn the line above it into a
// table head.
func delimiter(line []byte) bool {
	return bytes.IndexByte(line, '-') >= 0 && len(bytes.Trim(line, "|:- \t\f>+*.)0123456789")) == 0
}

// nested returns the max number of quotations and list items that may be open at the beginning of a
// line: those that begin there, and, if any do, those that its indentation may continue.
func nested(line []byte) (n int) {
	columns := 0
	defer func() {
		if n > 0 {
			n += columns / 2
		}
	}()
	for i, c := range line {
		switch {
		case c == '>':
			n++
		case c == ' ' && i > 0 && line[i-1] != ' ' && n > 0: // part of the sign before it
		case c == ' ':
			columns++
		case c == '\t':
			columns += 4
		case c >= '0' && c <= '9':
		case strings.IndexByte("-+*.)", c) >= 0:
			if i+1 == len(line) || line[i+1] == ' ' || line[i+1] == '\t' {
				n++
			}
		default:
			return n
		}
	}
	return n
}

// blank reports whether the parser treats a line as empty.
func blank(line []byte) bool { return len(bytes.Trim(line, " \t")) == 0 }

// squeezed replaces consecutive empty lines by one. They mean the same, but the parser records each
// of them for every open list.
func squeezed(src []byte) []byte {
	kept := make([]byte, 0, len(src))
	before := false
	for at := 0; at < len(src); {
		here, _, _ := bytes.Cut(src[at:], []byte("\n"))
		end := min(at+len(here)+1, len(src))
		empty := blank(here)
		if !empty || !before {
			kept = append(kept, src[at:end]...)
		}
		before, at = empty, end
	}
	return kept
}
