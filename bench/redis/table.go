package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// A table is printed and written in the same form: Markdown with aligned columns.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t table) String() string { return page.Table(t.head, t.rows) }

func (r *results) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s%s", r, r.everyoneText(), r.tripsText())
}

// String returns all tables, as in the documents.
func (r *results) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", r.machine)
	for _, t := range []table{r.oneTable(), r.weirTable(), r.aims()} {
		if len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n%s", t.title, t)
		}
	}
	for _, c := range append(contestants(), more()...) {
		if text, ok := r.problems[c.name]; ok {
			fmt.Fprintf(&b, "\nNot measured: %s: %s\n", c.name, text)
		}
	}
	return b.String()
}

// oneTable returns the table of all contestants with one window.
func (r *results) oneTable() table {
	t := table{head: []string{""}, title: fmt.Sprintf("One window, nothing refused, %d keys of %d bytes at random, turns of %v: medians; times the bare script in the same round",
		r.keys, len(name(0)), r.length)}
	for i, callers := range r.callers {
		t.head = append(t.head, fmt.Sprintf("%d callers, decisions/s", callers), "p50, µs", "p99, µs", "server CPU, µs a decision")
		if i == 0 {
			t.head = append(t.head, "client CPU, µs")
		}
	}
	t.head = append(t.head, "")
	for _, c := range contestants() {
		if len(r.of(caseName("open", r.callers[0]), "rate", c.name)) == 0 {
			continue
		}
		row := []string{bold(c.name)}
		for i, callers := range r.callers {
			name := caseName("open", callers)
			row = append(row, r.beside(name, "rate", c.name, bareName), r.one(name, "p50", c.name), r.beside(name, "p99", c.name, bareName), r.beside(name, "server", c.name, bareName))
			if i == 0 {
				row = append(row, r.one(name, "client", c.name))
			}
		}
		note := c.note
		if c.pooled {
			var sizes []string
			for _, callers := range r.callers {
				sizes = append(sizes, fmt.Sprint(r.Pools[sizeName(c, callers)]))
			}
			note += "; connections: " + strings.Join(sizes, ", ")
		}
		t.rows = append(t.rows, append(row, note))
	}
	return t
}

// weirTable returns the table of what only Weir does, beside one open window.
func (r *results) weirTable() table {
	t := table{title: "Other cases, medians; times the same contestant at one open window",
		head: []string{"", "callers", "decisions/s", "p50, µs", "p99, µs", "server CPU, µs a decision", "client CPU, µs", "scripts a second"}}
	add := func(what, name, who, one string, callers int) {
		open := caseName("open", callers)
		rate := r.of(name, "rate", who)
		if len(rate) == 0 {
			return
		}
		text := digits(median(rate))
		if times, ok := ratio(rate, r.of(open, "rate", one)); ok {
			text += fmt.Sprintf(", %.2f×", times)
		}
		t.rows = append(t.rows, []string{what, fmt.Sprint(callers), text, r.one(name, "p50", who), r.one(name, "p99", who), r.one(name, "server", who), r.one(name, "client", who), r.one(name, "asked", who)})
	}
	for _, callers := range r.callers {
		for _, c := range more() {
			add(bold(c.name), caseName("open", callers), c.name, ofOne(c), callers)
		}
	}
	for _, callers := range r.callers {
		for _, who := range []string{takeName, decideName} {
			add(bold(who)+", one key that is refused", caseName("refused", callers), who, who, callers)
		}
	}
	for _, who := range []string{bareName, correctName, takeName, decideName} {
		add(bold(who)+", every key new", caseName("opening", r.callers[0]), who, who, r.callers[0])
	}
	return t
}

// aims returns the table of Weir's aims and results.
func (r *results) aims() table {
	t := table{title: "Targets and results", head: []string{"", "aim", weirShort(takeName), weirShort(decideName)}}
	line := func(what, aim, form string, reached func(who string) (float64, bool)) {
		row := []string{what, aim}
		for _, who := range []string{takeName, decideName} {
			cell := none
			if v, ok := reached(who); ok {
				cell = fmt.Sprintf(form, v)
			}
			row = append(row, cell)
		}
		if row[2] != none || row[3] != none {
			t.rows = append(t.rows, row)
		}
	}
	for _, callers := range r.callers {
		open := caseName("open", callers)
		beside := func(figure, peer string) func(string) (float64, bool) {
			return func(who string) (float64, bool) { return ratio(r.of(open, figure, who), r.of(open, figure, peer)) }
		}
		at := fmt.Sprintf(", %d callers", callers)
		line("decisions/s relative to the shortest correct script"+at, "at least 0.9×", "%.2f×", beside("rate", correctName))
		line("decisions/s relative to the bare script"+at, "", "%.2f×", beside("rate", bareName))
		for _, p := range []struct{ name, aim string }{{rateName, "2.7×"}, {throttleName, "4×"}, {ululeName, "1.6×"}, {rueidisName, "1.6×"}} {
			line("decisions/s relative to "+p.name+at, "at least "+p.aim, "%.2f×", beside("rate", p.name))
		}
		line("p99 relative to the bare script"+at, map[bool]string{true: "at most 1.5×"}[callers == 64], "%.2f×", beside("p99", bareName))
		line("server CPU a decision relative to the bare script"+at, "at most 1.15×", "%.2f×", beside("server", bareName))
		line("two windows relative to one"+at, "at least 0.7×", "%.2f×", func(who string) (float64, bool) {
			return ratio(r.of(open, "rate", twoOf(who)), r.of(open, "rate", who))
		})
		line("server CPU of a take and its settlement relative to a take"+at, "at most 1.8×", "%.2f×", func(who string) (float64, bool) {
			if who != takeName {
				return 0, false
			}
			return ratio(r.of(open, "server", settledName), r.of(open, "server", takeName))
		})
		line("the same by the scripts alone (INFO commandstats)"+at, "at most 1.8×", "%.2f×", func(who string) (float64, bool) {
			if who != takeName {
				return 0, false
			}
			return ratio(r.of(open, "ran", settledName), r.of(open, "ran", takeName))
		})
		line("a refused key relative to an admitted one"+at, "at least 20×", "%.1f×", func(who string) (float64, bool) {
			return ratio(r.of(caseName("refused", callers), "rate", who), r.of(open, "rate", who))
		})
		line(fmt.Sprintf("scripts that one refused key costs in %v", r.length)+at, fmt.Sprintf("at most %d", int(r.length.Seconds())+1), "%.0f", func(who string) (float64, bool) {
			xs := r.of(caseName("refused", callers), "asked", who)
			if len(xs) == 0 {
				return 0, false
			}
			return median(xs) * r.length.Seconds(), true
		})
	}
	return t
}

// twoOf returns the contestant that charges two windows if name charges one.
func twoOf(name string) string {
	if name == takeName {
		return twoTakeName
	}
	return twoName
}

func weirShort(name string) string { return strings.TrimPrefix(name, "weir, ") }

const none = "–"

func bold(name string) string {
	if strings.HasPrefix(name, "weir, ") {
		return "**" + name + "**"
	}
	return name
}

func (r *results) one(name, figure, contestant string) string {
	xs := r.of(name, figure, contestant)
	if len(xs) == 0 {
		return none
	}
	return digits(median(xs))
}

// beside formats a figure, and its ratio to another contestant's.
func (r *results) beside(name, figure, contestant, other string) string {
	times, ok := ratio(r.of(name, figure, contestant), r.of(name, figure, other))
	if !ok || contestant == other {
		return r.one(name, figure, contestant)
	}
	return fmt.Sprintf("%s, %.2f×", r.one(name, figure, contestant), times)
}

// digits formats a figure with three significant digits.
func digits(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	step := math.Pow(10, math.Floor(math.Log10(v))-2)
	whole := fmt.Sprintf("%.0f", math.Round(v/step)*step)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole
}

// writeDocs writes the tables to dir/scale.md, between their two comments.
func (r *results) writeDocs(dir string) error {
	if err := r.writeEveryone(dir); err != nil {
		return err
	}
	return page.Fill(filepath.Join(dir, "scale.md"), "redis", r.String())
}
