package folder

import (
	"bytes"
	"strings"
)

// affordable refuses Markdown that the parser would take minutes or all memory for: its time grows with the square of what is
// left open, and its tables with what no line holds. No text that anybody wrote to be read comes near.
func affordable(src []byte) error {
	const (
		mostNested = 100
		mostCells  = 1 << 19 // of all tables together, those that the parser adds to short rows, too
		mostWork   = 1 << 30 // bytes looked at again for each unfinished link, or pairs of signs; a second for 300 million
	)
	work, cells := 0, 0
	var p part
	for at := 0; at < len(src); {
		here, _, _ := bytes.Cut(src[at:], []byte("\n"))
		if n := nested(here); n > mostNested {
			return problem("take these signs away", "a line begins with %d signs of quotations or lists, more than %d, or as far indented as so many", n, mostNested)
		}
		p.add(here)
		if at += len(here) + 1; !blank(here) && at < len(src) {
			continue
		}
		if work += p.work(at); work > mostWork {
			return problem("put empty lines between its parts",
				"a part of it without an empty line has too many links (%d), brackets (%d) or signs *, _ and ~ (%d)", p.links+p.names, p.opened+p.closed, p.signs)
		}
		if cells += p.columns * p.rows; cells > mostCells {
			return problem("make the head of the table narrower, or split the table", "a table with %d signs | in a line has too many rows (%d)", p.columns-1, p.rows)
		}
		p = part{begin: at}
	}
	return nil
}

// A part is what stands between empty lines.
type part struct {
	begin          int
	links, names   int // what may link, and where to
	signs          int // that may be emphasis
	opened, closed int // brackets
	columns, rows  int // that the widest line may have that may stand below a table's head; lines since the first such
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

// work is what the part costs, where it ends at a byte of the file.
func (p *part) work(end int) int {
	return (p.links+p.names/16)*(end-p.begin) + p.signs*p.signs + p.opened*p.closed
}

// delimiter says whether a line, maybe of a quotation or a list, may make a table of the line above it.
func delimiter(line []byte) bool {
	return bytes.IndexByte(line, '-') >= 0 && len(bytes.Trim(line, "|:- \t\f>+*.)0123456789")) == 0
}

// nested returns how many quotations and items of lists may be open at the beginning of a line: those that begin there, and,
// where any does, those that it is indented for.
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
		case c == ' ' && i > 0 && line[i-1] != ' ' && n > 0: // it belongs to a sign
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

// blank says whether the parser takes a line for empty.
func blank(line []byte) bool { return len(bytes.Trim(line, " \t")) == 0 }

// squeezed makes several empty lines in a row one: they mean the same, but the parser remembers each of them for each list that
// is open.
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
