package main

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

// reportWidth is how many columns a report uses at most.
const reportWidth = 80

// A tally counts verdicts.
type tally struct{ kept, broken, untested int }

func tallyOf(r *verify.Report) (t tally) {
	for _, x := range r.Results {
		switch x.Verdict {
		case verify.Kept:
			t.kept++
		case verify.Broken:
			t.broken++
		default:
			t.untested++
		}
	}
	return t
}

func (t tally) String() string {
	return fmt.Sprintf("%d kept, %d broken, %d not testable", t.kept, t.broken, t.untested)
}

// A verifyJSON is what weir verify --json prints.
type verifyJSON struct {
	*verify.Report
	Kept     int          `json:"kept"`
	Broken   int          `json:"broken"`
	Untested int          `json:"untested"`
	Done     bool         `json:"done"`            // something is kept, and nothing broken
	Error    string       `json:"error,omitempty"` // why it is not
	Clauses  []clauseJSON `json:"clauses"`         // that results name
}

// A clauseJSON is a clause with its text.
type clauseJSON struct {
	ID     string `json:"id"`
	Says   string `json:"says"`
	Source string `json:"source"`
}

func newVerifyJSON(r *verify.Report, outcome error) verifyJSON {
	if r.Results == nil {
		r.Results = []verify.Result{}
	}
	t := tallyOf(r)
	v := verifyJSON{Report: r, Kept: t.kept, Broken: t.broken, Untested: t.untested, Done: outcome == nil}
	if outcome != nil {
		v.Error = outcome.Error()
	}
	for _, c := range verify.Clauses {
		v.Clauses = append(v.Clauses, clauseJSON{c.ID, c.Says, c.Source})
	}
	return v
}

// A paint colours a verdict's mark.
type paint func(mark string, v verify.Verdict) string

// painter returns what colours on w: nothing, where it is no terminal or its user wants no colours.
func painter(w io.Writer, env cli.Environment) paint {
	if cli.Terminal(w) == nil || env["NO_COLOR"] != "" || env["TERM"] == "dumb" {
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

// everyLimiter is what a result about no single limiter is listed under.
const everyLimiter = "all of it"

// A reportPrinter prints a report for people. Whatever came from a server is quoted, so that a terminal does nothing it says.
type reportPrinter struct {
	out   io.Writer
	paint paint
	err   error // the first of printing

	limiters []string // the columns, in order
}

func (p *reportPrinter) print(r *verify.Report) error {
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
	p.line("", "\n%s; %s of at most %d, in %s", tallyOf(r), cli.Count(r.Sent, "request"), r.Planned, cli.TimeLeft(max(took, time.Second)))
	return p.err
}

func limiterOf(x verify.Result) string {
	if x.Limiter == "" {
		return everyLimiter
	}
	return x.Limiter
}

// write prints text as it is.
func (p *reportPrinter) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

// line prints a paragraph, its lines behind an indent.
func (p *reportPrinter) line(indent, format string, args ...any) {
	for _, part := range wrap(fmt.Sprintf(format, args...), reportWidth-runewidth.StringWidth(indent)) {
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

// tables prints a row for each clause and a column for each limiter, in as many tables as fit the width.
func (p *reportPrinter) tables(r *verify.Report) {
	const column = 3
	fit := (reportWidth - clauseWidth()) / column
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

func (p *reportPrinter) row(r *verify.Report, c verify.Clause, limiters []string) {
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

// verdictOf is the verdict on a clause for a limiter: where there are several, the one that matters most.
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

// broken prints what was seen of each clause that is broken: once, where it is the same for several limiters, as the first of them shows it.
func (p *reportPrinter) broken(r *verify.Report) {
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

// where names limiters.
func (p *reportPrinter) where(limiters []string) string {
	if len(limiters) == len(p.limiters) && len(limiters) > 1 {
		return "every limiter"
	}
	return plaintext.Line(strings.Join(limiters, ", "), 2000)
}

// mostLines of a message are printed; JSON has all of them.
const mostLines = 40

// exchange prints a message line by line, each behind a mark.
func (p *reportPrinter) exchange(mark, text string) {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	for i, line := range lines {
		if i == mostLines {
			p.line("  "+mark, "… and %s more; --json has them", cli.Count(len(lines)-i, "line"))
			return
		}
		for n, part := range wrap(plaintext.Line(line, 1000), reportWidth-len(mark)-6) {
			if n > 0 {
				part = "    " + part // what goes on from the line above
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
func (p *reportPrinter) untested(r *verify.Report) {
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

// gaps puts what could not be tested together: first by limiter for each clause and reason, then the clauses that are alike.
func (p *reportPrinter) gaps(r *verify.Report) (all []gap) {
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

// wrap breaks text into lines of at most width columns, at blanks where there are any.
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
					break // narrower than one letter
				}
				lines, line = append(lines, head), line[len(head):]
			}
		}
		lines = append(lines, line)
	}
	return lines
}
