package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/plaintext"
	"github.com/weirlimit/weir/internal/verify"
)

// A paint colours a verdict's mark.
type paint func(mark string, v verify.Verdict) string

func painter(colour bool) paint {
	if !colour {
		return func(mark string, _ verify.Verdict) string { return mark }
	}
	return func(mark string, v verify.Verdict) string {
		switch v {
		case verify.Kept:
			return "\x1b[32m" + mark + "\x1b[0m"
		case verify.Broken:
			return "\x1b[1;31m" + mark + "\x1b[0m"
		}
		return "\x1b[2m" + mark + "\x1b[0m"
	}
}

var marks = map[verify.Verdict]string{verify.Kept: "✓", verify.Broken: "✗", verify.Untested: "–"}

// everyLimiter is the column of results about no single limiter.
const everyLimiter = "all of it"

// Print prints a report for people, with colours if wanted.
func Print(w io.Writer, r *verify.Report, colour bool) error {
	p := printer{out: w, paint: painter(colour)}
	return p.print(r)
}

type printer struct {
	out   io.Writer
	paint paint
	err   error // the first of printing

	limiters []string // the columns, in order
}

func (p *printer) print(r *verify.Report) error {
	for _, x := range r.Results {
		if name := limiterOf(x); !slices.Contains(p.limiters, name) {
			p.limiters = append(p.limiters, name)
		}
	}
	p.tables(r)
	p.broken(r)
	p.untested(r)
	for _, note := range r.Notes {
		p.line("", "\nnote: %s", plaintext.Line(note, 1000))
	}
	took := r.Ended.Sub(r.Started)
	p.line("", "\n%s; %s of at most %d, in %s", TallyOf(r), cli.Count(r.Sent, "request"), r.Planned, cli.TimeLeft(max(took, time.Second)))
	return p.err
}

func limiterOf(x verify.Result) string {
	if x.Limiter == "" {
		return everyLimiter
	}
	return x.Limiter
}

// write prints text unchanged.
func (p *printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

// line prints a paragraph, each line after an indent.
func (p *printer) line(indent, format string, args ...any) {
	for _, part := range wrap(fmt.Sprintf(format, args...), Width-runewidth.StringWidth(indent)) {
		p.write(strings.TrimRight(indent+part, " ") + "\n")
	}
}

// clauseWidth is the width of the first column.
func clauseWidth() (n int) {
	for _, c := range verify.Clauses {
		n = max(n, len(c.ID))
	}
	return n
}

// tables prints a row for each clause and a column for each limiter. If the columns exceed the
// width, it prints several tables.
func (p *printer) tables(r *verify.Report) {
	const column = 3
	fit := (Width - clauseWidth()) / column
	for from := 0; from < len(p.limiters); from += fit {
		if from > 0 {
			p.write("\n")
		}
		shown := p.limiters[from:min(from+fit, len(p.limiters))]
		head := fmt.Sprintf("%-*s", clauseWidth(), "clause")
		for i := range shown {
			head += fmt.Sprintf("%*d", column, from+i+1)
		}
		p.write(head + "\n")
		for _, c := range verify.Clauses {
			p.row(r, c, shown)
		}
		var legend []string
		for i, name := range shown {
			legend = append(legend, strconv.Itoa(from+i+1)+"\u00a0"+plaintext.Line(name, 60))
		}
		p.line("", "\n%s", strings.Join(legend, ", "))
	}
	p.write("✓ kept, ✗ broken, – not testable\n")
}

func (p *printer) row(r *verify.Report, c verify.Clause, limiters []string) {
	text := fmt.Sprintf("%-*s", clauseWidth(), c.ID)
	found := false
	for _, name := range limiters {
		v, ok := verdictOf(r, c.ID, name)
		found = found || ok
		mark := " "
		if ok {
			mark = p.paint(marks[v], v)
		}
		text += "  " + mark
	}
	if found {
		p.write(strings.TrimRight(text, " ") + "\n")
	}
}

// verdictOf returns the verdict on a clause for a limiter: the gravest if there are several.
func verdictOf(r *verify.Report, clause, limiter string) (v verify.Verdict, ok bool) {
	weight := map[verify.Verdict]int{verify.Untested: 0, verify.Kept: 1, verify.Broken: 2}
	for _, x := range r.Results {
		if x.Clause != clause || limiterOf(x) != limiter {
			continue
		}
		if !ok || weight[x.Verdict] > weight[v] {
			v, ok = x.Verdict, true
		}
	}
	return v, ok
}

// broken prints what was seen of each broken clause. If it is the same for several limiters, it is
// printed once, with the exchange of the first.
func (p *printer) broken(r *verify.Report) {
	for i, x := range r.Results {
		same := func(o verify.Result) bool {
			return o.Verdict == verify.Broken && o.Clause == x.Clause && o.Detail == x.Detail
		}
		if x.Verdict != verify.Broken || slices.ContainsFunc(r.Results[:i], same) {
			continue
		}
		var limiters []string
		for _, o := range r.Results[i:] {
			if same(o) {
				limiters = append(limiters, limiterOf(o))
			}
		}
		says, source := clauseText(x.Clause)
		p.line("", "\n%s %s, %s", marks[verify.Broken], plaintext.Line(x.Clause, 60), p.where(limiters))
		p.line("  ", "%s (%s)", says, source)
		p.line("  ", "seen: %s", plaintext.Line(x.Detail, 2000))
		if x.Exchange == nil {
			continue
		}
		p.exchange("> ", x.Exchange.Request)
		p.exchange("< ", x.Exchange.Response)
		if x.Exchange.At != "" {
			p.line("  ", "at %s", plaintext.Line(x.Exchange.At, 60))
		}
	}
}

// where lists limiters.
func (p *printer) where(limiters []string) string {
	if len(limiters) == len(p.limiters) && len(limiters) > 1 {
		return "every limiter"
	}
	return plaintext.Line(strings.Join(limiters, ", "), 2000)
}

// maxLines is how many lines of a message are printed. JSON has all of them.
const maxLines = 40

// exchange prints a message line by line, each after a mark.
func (p *printer) exchange(mark, text string) {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	for i, line := range lines {
		if i == maxLines {
			p.line("  "+mark, "… and %s more; --json has them", cli.Count(len(lines)-i, "line"))
			return
		}
		for n, part := range wrap(plaintext.Line(line, 1000), Width-len(mark)-6) {
			if n > 0 {
				part = "    " + part // continues the line above
			}
			p.write(strings.TrimRight("  "+mark+part, " ") + "\n")
		}
	}
}

func clauseText(id string) (says, source string) {
	for _, c := range verify.Clauses {
		if c.ID == id {
			return c.Says, c.Source
		}
	}
	return "a clause that is not listed", "?"
}

// A gap is what could not be tested for one reason.
type gap struct {
	reason   verify.Reason
	why      string
	limiters []string
	clauses  []string
}

// untested prints why clauses could not be tested, each reason once.
func (p *printer) untested(r *verify.Report) {
	for _, g := range p.gaps(r) {
		clauses := plaintext.Line(strings.Join(g.clauses, ", "), 2000)
		if len(g.clauses) == len(verify.Clauses) {
			clauses = "every clause"
		}
		p.line("", "\n%s %s (%s)", marks[verify.Untested], clauses, p.where(g.limiters))
		why := plaintext.Line(g.why, 2000)
		if g.reason != "" {
			why = string(g.reason) + ": " + why
		}
		p.line("  ", "%s", why)
	}
}

// gaps groups what could not be tested: first the limiters of each clause and reason, then the
// clauses with the same limiters and reason.
func (p *printer) gaps(r *verify.Report) (all []gap) {
	var single []gap
	for _, x := range r.Results {
		if x.Verdict != verify.Untested {
			continue
		}
		same := func(g gap) bool { return g.why == x.Detail && g.clauses[0] == x.Clause }
		i := slices.IndexFunc(single, same)
		if i < 0 {
			i = len(single)
			single = append(single, gap{reason: x.Reason, why: x.Detail, clauses: []string{x.Clause}})
		}
		single[i].limiters = append(single[i].limiters, limiterOf(x))
	}
	for _, g := range single {
		same := func(o gap) bool { return o.why == g.why && slices.Equal(o.limiters, g.limiters) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].clauses = append(all[i].clauses, g.clauses...)
			continue
		}
		all = append(all, g)
	}
	return all
}

// wrap breaks text into lines of at most width columns, at spaces if possible.
func wrap(text string, width int) (lines []string) {
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.SplitSeq(paragraph, " ") {
			switch {
			case line == "":
				line = word
			case runewidth.StringWidth(line)+1+runewidth.StringWidth(word) <= width:
				line += " " + word
			default:
				lines, line = append(lines, line), word
			}
			for runewidth.StringWidth(line) > width {
				head := runewidth.Truncate(line, width, "")
				if head == "" {
					break // one letter is wider
				}
				lines, line = append(lines, head), line[len(head):]
			}
		}
		lines = append(lines, line)
	}
	return lines
}
