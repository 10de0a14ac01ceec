// Package report presents the result of a replay: as a table for a terminal (Table), as one HTML
// document with charts (HTML), and as the verdict on a condition that must not hold (Condition).
//
// All text from a log was written by strangers. It is shown as text only: it can neither move a
// cursor nor become markup.
package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/weirlimit/weir/internal/replay"
)

// Table writes r for a terminal with a number of columns; 0 means 80, and the minimum is 60.
func Table(w io.Writer, r *replay.Report, width int) error {
	if width == 0 {
		width = 80
	}
	t := &table{width: max(width, 60)}
	t.line("", "%s", Sentence(r))
	t.b.WriteString("\n")
	t.log(&r.Log)
	t.outcome(&r.Policy)
	if r.Against != nil {
		t.outcome(r.Against)
	}
	if r.Difference != nil && r.Against != nil {
		t.difference(r)
	}
	t.legend()
	t.malformed(&r.Log)
	_, err := io.WriteString(w, t.b.String())
	return err
}

// A table is a table that is being written.
type table struct {
	b     strings.Builder
	width int

	most, lowest, unknown, penalized bool // whether it has such columns
	settles                          bool // whether it has limiters that settle
}

// legend explains columns whose heads do not.
func (t *table) legend() {
	if t.most {
		t.b.WriteString("\n")
		most := "MOST: units that one caller asked for in one window."
		if t.settles {
			most = "MOST: units that one caller asked for in one window; if they are settled, the highest count of one caller when a request of it came; in flight, its requests at the same time."
		}
		t.line("", "%s", most)
	}
	if t.penalized {
		t.line("", "PENALIZED: of REFUSED, what the limiter's penalty refused, with the refusals that began it.")
	}
	if t.lowest {
		t.line("", "LOWEST: the lowest limit that touches no larger share of the window's callers than --touch, if the limiter had no other window; STILL: the callers that it touches.")
	}
	if t.unknown {
		t.line("", "UNKNOWN: the window counts by agent, and the log lacks the agent of so many requests. It has refused none of these here, and other windows may have counted too many.")
	}
}

// line writes a line, broken between words if it is too long.
func (t *table) line(indent, format string, args ...any) {
	line := indent
	for _, word := range strings.Fields(strings.ReplaceAll(fmt.Sprintf(format, args...), " %", "\x00%")) {
		word = strings.ReplaceAll(word, "\x00", " ") // a number stays with its sign
		if len(line)+1+len(word) > t.width && strings.TrimSpace(line) != "" {
			t.b.WriteString(line + "\n")
			line = indent + "  "
		}
		if strings.TrimSpace(line) != "" {
			line += " "
		}
		line += word
	}
	t.b.WriteString(line + "\n")
}

// grid writes the rows after an empty line, if there are any besides the head.
func (t *table) grid(g *grid) {
	if len(g.rows) > 1 {
		t.b.WriteString("\n" + g.String())
	}
}

func (t *table) log(l *replay.Log) {
	var from []string
	for i, name := range l.Files {
		if i == 3 && len(l.Files) > 4 {
			from = append(from, fmt.Sprintf("%d more", len(l.Files)-i))
			break
		}
		format := ""
		if i < len(l.Formats) && l.Formats[i] != "" {
			format = " (" + Shown(l.Formats[i], 60) + ")"
		}
		from = append(from, Shown(FileName(name), 60)+format)
	}
	t.line("", "%s in %s of %s", many(l.Requests, "request"), many(l.Lines, "line"), strings.Join(from, ", "))
	if l.Requests > 0 {
		t.line("", "%s UTC, %s", between(l.From, l.To), lasting(float64(l.To-l.From)))
	}
	for _, note := range Notes(l) {
		t.line("", "%s", note)
	}
}

// FileName returns a file's name for people: standard input has a name, too.
func FileName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// Notes returns what a reader must know of a log before its figures, a sentence each.
func Notes(l *replay.Log) (all []string) {
	if l.Malformed > 0 {
		all = append(all, fmt.Sprintf("%s malformed (%s), and not counted", many(l.Malformed, "line"), share(l.Malformed, l.Lines)))
	}
	if l.Timeless > 0 {
		all = append(all, fmt.Sprintf("%s with a time before 1970 or after 2104, and not counted", many(l.Timeless, "line")))
	}
	if l.Without > 0 {
		all = append(all, fmt.Sprintf("%s without a request that a server would have taken: a handshake, a time-out", many(l.Without, "line")))
	}
	if l.OutOfOrder > 0 {
		all = append(all, fmt.Sprintf("%s out of order, by %s at most: counted later than they came", many(l.OutOfOrder, "request"), lasting(float64(l.Disorder))))
	}
	if no := l.NoAddress; no.Requests > 0 {
		what := "nothing"
		if no.Example != "" {
			what = `"` + Shown(no.Example, 60) + `"`
		}
		all = append(all, fmt.Sprintf("no address in %s, but %s, for instance: by address, all of them are one caller", many(no.Requests, "request"), what))
	}
	if l.Dropped > 0 {
		all = append(all, fmt.Sprintf("the log itself reports that %s missing: the server could not write them in time", are(l.Dropped, "request")))
	}
	for _, lack := range l.Lacks {
		if lack.Routes {
			all = append(all, fmt.Sprintf("no host in the log for %s, and routes of %s name hosts: only routes for all hosts were compared; --key host=FIELD names the field that has it",
				many(lack.Requests, "request"), Names(lack.Limiters)))
			continue
		}
		if lack.Required && lack.Instead == "" {
			all = append(all, fmt.Sprintf("no %s in the log for %s of %s: none is known to be answered 401; --key %s=FIELD names the field that has it",
				Shown(lack.Source, 80), many(lack.Requests, "request"), Names(lack.Limiters), Shown(lack.Source, 80)))
			continue
		}
		if lack.Instead == "" {
			all = append(all, fmt.Sprintf("no %s in the log for %s of %s: windows that count by it are unknown; --key %s=FIELD names the field that has it",
				Shown(lack.Source, 80), many(lack.Requests, "request"), Names(lack.Limiters), Shown(lack.Source, 80)))
			continue
		}
		known := ""
		if lack.Required {
			known = ", and none is known to be answered 401"
		}
		all = append(all, fmt.Sprintf("no %s in the log for %s of %s: counted by %s%s; --key %s=FIELD names the field that has it",
			Shown(lack.Source, 80), many(lack.Requests, "request"), Names(lack.Limiters), Shown(lack.Instead, 80), known, Shown(lack.Source, 80)))
	}
	return all
}

// Names lists a few names, and how many more there are.
func Names(names []string) string {
	const maxNames = 3
	var all []string
	for i, name := range names {
		if i == maxNames && len(names) > maxNames+1 {
			all = append(all, fmt.Sprintf("%d more", len(names)-maxNames))
			break
		}
		all = append(all, Shown(name, 40))
	}
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

func (t *table) outcome(o *replay.Outcome) {
	t.b.WriteString("\n")
	for _, warning := range Warnings(o) { // before the figures that they are about
		t.line("", "warning: %s", warning)
	}
	t.line("", "%s", headline(o))
	for _, beside := range besides(o) {
		t.line("", "%s", beside)
	}
	t.limiters(o)
	t.windows(o)
	t.settled(o)
	t.delays(o)
	t.worst(o)
}

// besides returns what an outcome's sums leave out, a sentence each: requests that nothing could
// refuse, and refusals without an effect.
func besides(o *replay.Outcome) (all []string) {
	switch {
	case o.Unlimited > 0 && o.Shadow.Alone > 0:
		all = append(all, fmt.Sprintf("%s under no limiter that is enforced, %s of them under one in shadow", many(o.Unlimited, "request"), thousands(o.Shadow.Alone)))
	case o.Unlimited > 0:
		all = append(all, many(o.Unlimited, "request")+" under no limiter")
	}
	if o.Denied > 0 {
		all = append(all, fmt.Sprintf("%s of the refused are denied (403), and counted by no window", thousands(o.Denied)))
	}
	if o.Unauthenticated > 0 {
		all = append(all, fmt.Sprintf("%s of the refused are answered 401, because they lack the credential that their limiter requires", thousands(o.Unauthenticated)))
	}
	if s := o.Shadow; s.Requests > 0 {
		all = append(all, fmt.Sprintf("in shadow: %s of %s would be refused (%s), and are not%s", thousands(s.Refused), many(s.Requests, "request"), share(s.Refused, s.Requests), more(s.Unknown)))
	}
	return append(all, lacking(o)...)
}

// headline summarizes an outcome in a sentence.
func headline(o *replay.Outcome) string {
	refused := "refused"
	if o.Delay != nil {
		refused = "refused at first"
	}
	return fmt.Sprintf("Under %s (%s): %s of %s %s (%s)%s; %s of %s touched (%s)", Shown(o.Name, 60), Shown(o.Version, 40),
		thousands(o.Refused), many(o.Requests, "request"), refused, share(o.Refused, o.Requests), more(o.Unknown),
		counted(o.Touched), ofCallers(o.Callers), part(o.Touched, o.Callers))
}

// more describes how many further requests are unknown.
func more(unknown int64) string {
	if unknown == 0 {
		return ""
	}
	return ", " + thousands(unknown) + " more unknown"
}

// ofCallers formats a number of callers.
func ofCallers(c replay.Count) string {
	if c.Estimated {
		return "~" + many(c.N, "caller")
	}
	return many(c.N, "caller")
}

// Warnings returns why figures of an outcome may be wrong because of too little memory, a sentence
// each.
func Warnings(o *replay.Outcome) (all []string) {
	const more = "give more --memory"
	if o.Shared > 0 {
		all = append(all, fmt.Sprintf("the memory was full, and %s counted in budgets that callers share: the figures are WRONG, more is refused than would be; %s", many(o.Shared, "charge"), more))
	}
	forgotten := int64(0)
	for i := range o.Limiters {
		for _, w := range o.Limiters[i].Windows {
			forgotten += w.Forgotten
		}
	}
	if forgotten > 0 {
		all = append(all, fmt.Sprintf("%s forgotten before their window had ended: the highest demand may be more than reported, and no limit is recommended; %s", many(forgotten, "caller"), more))
	}
	if o.EndedEarly > 0 {
		all = append(all, fmt.Sprintf("too many requests were in flight to remember, and %s taken to have ended early: more may be refused than reported; %s", are(o.EndedEarly, "request"), more))
	}
	if o.Delay != nil && o.Delay.NoRoom > 0 {
		all = append(all, fmt.Sprintf("%s that would have waited were left out, since too many did; %s", many(o.Delay.NoRoom, "request"), more))
	}
	return all
}

func (t *table) limiters(o *replay.Outcome) {
	g := &grid{left: "lrrrrrl"}
	head := "WHEN REFUSED"
	g.row("LIMITER", "REQUESTS", "REFUSED", "SHARE", "PENALIZED", "UNKNOWN", "")
	anyPenalized, anyUnknown := false, false
	var met []*replay.Limiter
	var idle []string
	for i := range o.Limiters {
		l := &o.Limiters[i]
		if l.Requests == 0 {
			idle = append(idle, limiterName(l))
			continue
		}
		met = append(met, l)
		g.row(limiterName(l), thousands(l.Requests), thousands(l.Refused), share(l.Refused, l.Requests), thousands(l.Penalized), thousands(l.Unknown), "")
		anyPenalized, anyUnknown = anyPenalized || l.Penalized > 0, anyUnknown || l.Unknown > 0
	}
	if !anyUnknown {
		g.drop(5)
	}
	if !anyPenalized {
		g.drop(4)
	}
	t.penalized = t.penalized || anyPenalized
	last := len(g.rows[0]) - 1
	room := g.room(t.width)
	each := 0
	for i, l := range met {
		if l.Refused > 0 && room >= 8 {
			g.rows[i+1][last] = "|" + sparkline(l.Series.Refused, room-2) + "|"
			each = max(each, (len(l.Series.Refused)+room-3)/(room-2)*int(l.Series.Step))
		}
	}
	if each > 0 {
		g.rows[0][last] = head
		if full := head + ", " + lasting(float64(each)) + " a bar"; len(full) <= room {
			g.rows[0][last] = full
		}
	}
	t.grid(g)
	if len(idle) > 0 {
		t.line("", "No request met %s.", strings.Join(idle, ", "))
	}
}

// limiterName returns a limiter's name, with its mode if it is in shadow.
func limiterName(l *replay.Limiter) string {
	if l.Mode == "shadow" {
		return Shown(l.Name, 32) + " (shadow)"
	}
	return Shown(l.Name, 40)
}

// windows writes the results of each window with requests, and its recommended limit.
func (t *table) windows(o *replay.Outcome) {
	g := &grid{left: "lrrrrrr"}
	g.row("WINDOW", "CALLERS", "TOUCHED", "SHARE", "MOST", "LOWEST", "STILL")
	recommended := false
	for i := range o.Limiters {
		l := &o.Limiters[i]
		if l.Requests == 0 {
			continue
		}
		g.row(limiterName(l), "", "", "", "", "", "")
		for _, w := range l.Windows {
			if w.Unknown > 0 {
				t.unknown = true
				g.row("  "+Shown(w.Window, 60), "unknown", "", "", "", "", "")
				continue
			}
			lowest, touches := "", ""
			if w.Recommend != nil {
				recommended = true
				lowest, touches = thousands(w.Recommend.Limit), counted(w.Recommend.Touches)
			}
			g.row("  "+Shown(w.Window, 60), counted(w.Callers), counted(w.Touched), part(w.Touched, w.Callers), thousands(w.Peak), lowest, touches)
		}
	}
	if !recommended {
		g.left = g.left[:5]
		for i := range g.rows {
			g.rows[i] = g.rows[i][:5]
		}
	}
	t.grid(g)
	t.narrow(g)
	t.lowest = t.lowest || recommended
	t.most = t.most || len(g.rows) > 1
}

// narrow makes the windows fit the line: it drops the share, which follows from the other columns,
// and then cuts names.
func (t *table) narrow(g *grid) {
	if g.room(t.width) < -2 {
		g.drop(3)
	}
	if over := -2 - g.room(t.width); over > 0 {
		width := max(g.widths()[0]-over, 16)
		for _, row := range g.rows {
			row[0] = runewidth.Truncate(row[0], width, "…")
		}
	}
}

func (t *table) delays(o *replay.Outcome) {
	if o.Delay == nil {
		return
	}
	g := &grid{left: "lrrrrrrr"}
	g.row("WAITING", "DELAYED", "GAVE UP", "MEAN", "HALF", "95 %", "99 %", "MOST")
	row := func(name string, d *replay.Delay) {
		if d != nil && d.Delayed+d.GaveUp > 0 {
			g.row(name, thousands(d.Delayed), thousands(d.GaveUp), lasting(d.Mean), lasting(d.P50), lasting(d.P95), lasting(d.P99), lasting(d.Max))
		}
	}
	for i := range o.Limiters {
		row(limiterName(&o.Limiters[i]), o.Limiters[i].Delay)
	}
	row("all", o.Delay)
	if len(g.rows) == 1 {
		t.line("", "No request had to wait.")
		return
	}
	t.grid(g)
}

func (t *table) difference(r *replay.Report) {
	d := r.Difference
	t.b.WriteString("\n")
	t.line("", "%s", changes(r))
	g := &grid{left: "lrr"}
	g.row("LIMITER", "NEWLY REFUSED", "NEWLY ADMITTED")
	for _, l := range d.Limiters {
		if l.NewlyRefused+l.NewlyAdmitted > 0 {
			g.row(changedName(l), thousands(l.NewlyRefused), thousands(l.NewlyAdmitted))
		}
	}
	t.grid(g)
	if d.NewlyRefused > 0 {
		t.b.WriteString("\nNewly refused  |" + sparkline(d.Series.Refused, t.width-18) + "|\n")
	}
	t.callers("Newly refused most", "NEWLY", d.Worst, d.Doubt)
}

// changedName returns the second policy's limiter of requests that changed.
func changedName(d replay.Differences) string {
	if d.Name == "" {
		return "(no limiter)"
	}
	return Shown(d.Name, 40)
}

// changes summarizes a difference in a sentence.
func changes(r *replay.Report) string {
	d := r.Difference
	return fmt.Sprintf("From %s to %s: %s of %s newly refused (%s), %s newly admitted (%s)%s; %s of %s newly touched (%s); %s of %s freed (%s)",
		Shown(r.Policy.Name, 60), Shown(r.Against.Name, 60), thousands(d.NewlyRefused), many(r.Against.Requests, "request"),
		share(d.NewlyRefused, r.Against.Requests), thousands(d.NewlyAdmitted), share(d.NewlyAdmitted, r.Against.Requests), more(d.Unknown),
		counted(d.NewlyTouched), ofCallers(r.Against.Callers), part(d.NewlyTouched, r.Against.Callers),
		counted(d.Freed), ofCallers(r.Policy.Callers), part(d.Freed, r.Policy.Callers))
}

func (t *table) malformed(l *replay.Log) {
	if len(l.Examples) == 0 {
		return
	}
	t.b.WriteString("\nMalformed lines")
	if l.Malformed > int64(len(l.Examples)) {
		fmt.Fprintf(&t.b, ", the first %d of %s", len(l.Examples), thousands(l.Malformed))
	}
	t.b.WriteString(":\n")
	for _, bad := range l.Examples {
		t.line("  ", "%s:%d: %s", Shown(FileName(bad.File), 80), bad.Line, Shown(bad.Reason, 200))
		t.b.WriteString("    \"" + Shown(bad.Text, t.width-6) + "\"\n")
	}
}
