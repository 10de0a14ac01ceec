package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirlimit/weir/bench/page"
)

// A table is printed and written in the same form: Markdown with aligned columns.
type table struct {
	name, title string
	head        []string
	rows        [][]string
}

func (t table) String() string { return page.Table(t.head, t.rows) }

// print writes every table that has a row.
func (r *results) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n", r.Machine)
	for _, t := range r.tables() {
		if len(t.rows) > 0 {
			fmt.Fprintf(w, "\n%s\n\n%s", t.title, t)
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "\nnot measured: %s\n", p)
	}
}

func (r *results) tables() []table {
	return []table{
		r.decisions("one", "A decision on one core, ns: median (quartiles), times the floor",
			column{"hot key", "hot 1"}, column{"refused key", "refused 1"}, column{"a million keys at random", "million 1"}),
		r.decisions("two", "A decision on two cores, ns of elapsed time a decision: median (quartiles), times the floor",
			column{"hot key", "hot 2"}, column{"64 goroutines a core, one key", "herd 2"}, column{"refused key", "refused 2"}, column{"a million keys at random", "million 2"}),
		r.memoryTable(),
		r.worstTable(),
		r.oursTable(),
		r.targetsTable(),
	}
}

type column struct{ title, metric string }

// decisions returns a table of the times of decisions.
func (r *results) decisions(name, title string, columns ...column) table {
	t := table{name: name, title: title, head: []string{""}}
	for _, c := range columns {
		t.head = append(t.head, c.title)
	}
	t.head = append(t.head, "allocations")
	for _, c := range contestants() {
		row := []string{bold(c.name)}
		for _, col := range columns {
			cell := withRatio(r.of(col.metric, "ns", c.name), r.of(col.metric, "ns", floorName), c.name == floorName)
			if wrong := r.of(col.metric, "wrong", c.name); len(wrong) > 0 && page.Median(wrong) >= 0.01 {
				cell += fmt.Sprintf("; %.2g %% of answers wrong", page.Median(wrong))
			}
			row = append(row, cell)
		}
		row = append(row, one(r.of(columns[0].metric, "allocations", c.name), "%.0f"))
		t.add(row)
	}
	return t
}

// add appends a row that has a figure.
func (t *table) add(row []string) {
	if slices.ContainsFunc(row[1:], func(s string) bool { return s != page.None && s != "" }) {
		t.rows = append(t.rows, row)
	}
}

func (r *results) memoryTable() table {
	many := millions(r.Many)
	t := table{name: "memory", title: "Resident bytes a key: median; milliseconds of a full garbage collection: median (quartiles)",
		head: []string{"", "1M keys, steady", "while growing to it", many + " keys, steady", "at worst while growing to it", "full collection, " + many + " keys, ms"}}
	for _, c := range contestants() {
		t.add([]string{bold(c.name),
			one(r.of("memory 1M", "steady", c.name), "%.0f"), one(r.of("memory 1M", "peak", c.name), "%.0f"),
			one(r.of("memory "+many, "steady", c.name), "%.0f"), one(r.of("memory "+many, "peak", c.name), "%.0f"),
			page.Spread(r.of("memory "+many, "ms", c.name))})
	}
	return t
}

func (r *results) worstTable() table {
	t := table{name: "worst", title: "The worst single decision by the clock, ms: median of the rounds (least–most); the 99.99th percentile, µs; and what of the worst was the decision's own, ms",
		head: []string{"", r.whileExpiring() + ", ms", "p99.99, µs", "own, ms", r.whileGrowing() + ", ms", "p99.99, µs", "own, ms"}}
	for _, c := range append(contestants(), ourselves()[1:]...) {
		row := []string{bold(c.name)}
		if c.keepsAll {
			row[0] += " (forgets nothing)"
		}
		for _, metric := range []string{"expire", "grow"} {
			row = append(row, extremes(r.of(metric, "worst", c.name)), one(r.of(metric, "p99.99", c.name), "%.1f"), extremes(r.of(metric+" own", "own", c.name)))
		}
		t.add(row)
	}
	return t
}

func (r *results) whileExpiring() string { return "while " + millions(ending(r.Many)) + " keys expire" }

func (r *results) whileGrowing() string {
	return "while growing from 1k to " + millions(r.Many) + " keys"
}

// oursTable compares Weir with itself.
func (r *results) oursTable() table {
	t := table{name: "ours", title: "Weir's other ways, ns a decision on one core, times one window in memory",
		head: []string{"", "hot key", "refused key", "a million keys at random", "opened to first decision after kill -9, " + millions(r.Many) + " keys, ms"}}
	for _, name := range []string{weirName, twoName, shmName, diskName} {
		row := []string{bold(name)}
		for _, metric := range []string{"hot 1", "refused 1", "million 1"} {
			row = append(row, withRatio(r.of(metric, "ns", name), r.of(metric, "ns", weirName), name == weirName))
		}
		t.add(append(row, extremes(r.of("reopen", "ms", name))))
	}
	return t
}

func bold(name string) string {
	if strings.HasPrefix(name, weirName) {
		return "**" + name + "**"
	}
	return name
}

func one(xs []float64, form string) string {
	if len(xs) == 0 {
		return page.None
	}
	return fmt.Sprintf(form, page.Median(xs))
}

func extremes(xs []float64) string {
	if len(xs) == 0 {
		return page.None
	}
	return fmt.Sprintf("%s (%s–%s)", page.Digits(page.Median(xs)), page.Digits(slices.Min(xs)), page.Digits(slices.Max(xs)))
}

func withRatio(xs, base []float64, isBase bool) string {
	times, ok := ratio(xs, base)
	if isBase || !ok {
		return page.Spread(xs)
	}
	return fmt.Sprintf("%s, %.2f×", page.Spread(xs), times)
}
