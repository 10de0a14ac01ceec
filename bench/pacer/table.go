package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A table is printed and written in the same form, Markdown's, its columns aligned.
type table struct {
	title string
	head  []string
	rows  [][]string
	note  string // stands below, where there is one
}

func (t table) String() string {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range all {
		for i, cell := range row {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		if n == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(t.head)) + "\n")
		}
	}
	return b.String()
}

// String is everything that was found, as it stands in the documents too.
func (r *results) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", r.machine)
	for _, t := range []table{r.own(), r.others(), r.cost(), r.aims()} {
		if len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n%s", t.title, t)
		}
		if len(t.rows) > 0 && t.note != "" {
			fmt.Fprintf(&b, "\n%s\n", t.note)
		}
	}
	for _, f := range r.found {
		if f.problem != "" || f.Failed > 0 || f.Unshared > 0 {
			fmt.Fprintf(&b, "\nWrong with %s: %d calls failed, the first with %q; the shared view failed %d times. %s\n", f.name, f.Failed, f.First, f.Unshared, f.problem)
		}
	}
	return b.String()
}

// own is the pacer in every case.
func (r *results) own() table {
	t := table{head: []string{"", "limit", "served", "exactly once", "refused", "after the first window", "windows opened", "on the clock", "most spent in one", "usable", "used", "took", "longest call"},
		title: fmt.Sprintf("The pacer, one credential, windows of %v: as many requests as %d of them have usable budget", r.plan.per, r.plan.windows), note: formula}
	for _, f := range r.found {
		if f.who == pacerName {
			t.rows = append(t.rows, f.row())
		}
	}
	return t
}

func (f figures) row() []string {
	return []string{f.name, fmt.Sprint(f.limit), fmt.Sprintf("%d of %d", f.Served, f.requests), f.once(), fmt.Sprint(f.Refused), fmt.Sprint(f.afterFirst), fmt.Sprint(f.opened),
		fmt.Sprintf("%.2f", f.windows), fmt.Sprint(f.most), fmt.Sprintf("%.0f", f.budget), fmt.Sprintf("%.1f %%", f.used()), seconds(f.took()), seconds(f.Longest)}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// others are those that do the same work in other ways, beside the pacer.
func (r *results) others() table {
	t := table{head: []string{"", "served", "exactly once", "sent", "refused", "refused for each served", "took", "longest call", ""},
		title: fmt.Sprintf("The same requests from 64 goroutines of one process with other clients, limit 60, windows of %v", r.plan.per)}
	for _, f := range r.found {
		if !f.beside {
			continue
		}
		name := f.name
		if f.who == pacerName {
			name = "**" + f.who + "**"
		}
		t.rows = append(t.rows, []string{name, fmt.Sprintf("%d of %d", f.Served, f.requests), f.once(), fmt.Sprint(f.Sent), fmt.Sprint(f.Refused),
			fmt.Sprintf("%.2f", float64(f.Refused)/float64(max(f.Served, 1))), seconds(f.took()), seconds(f.Longest), notes[f.who]})
	}
	return t
}

// cost is the overhead where there is budget.
func (r *results) cost() table {
	t := table{head: []string{"", "ns a request", "allocations", "bytes"}, title: "What a request costs while there is budget, with a base transport in memory that does nothing"}
	for _, o := range r.overheads {
		t.rows = append(t.rows, []string{o.name, fmt.Sprint(o.with.ns), fmt.Sprint(o.with.allocations), fmt.Sprint(o.with.bytes)},
			[]string{o.name + ", the base transport alone", fmt.Sprint(o.without.ns), fmt.Sprint(o.without.allocations), fmt.Sprint(o.without.bytes)})
	}
	return t
}

// aims are what is wanted, beside what was reached.
func (r *results) aims() table {
	t := table{head: []string{"", "aim", "reached", ""}, title: "What is aimed at, and what was reached"}
	add := func(what, aim, reached string, met bool) {
		t.rows = append(t.rows, []string{what, aim, reached, map[bool]string{true: "met", false: "**missed**"}[met]})
	}
	for _, f := range r.found {
		if f.who != pacerName {
			continue
		}
		add(f.name+": served exactly once", "all", f.once(), f.problem == "" && f.once() == "all")
		refused, when := f.Refused, ""
		if f.notFirst {
			refused, when = f.afterFirst, " after the first window"
		}
		if f.mayRefuse > 0 {
			part := float64(refused) / float64(max(f.Sent, 1))
			add(f.name+": refused"+when, fmt.Sprintf("under %.0f %%", 100*f.mayRefuse), fmt.Sprintf("%.2f %%", 100*part), part < f.mayRefuse)
		} else {
			add(f.name+": refused"+when, "0", fmt.Sprint(refused), refused == 0)
		}
		if f.processes == 1 {
			add(f.name+": most spent of a window", fmt.Sprintf("at most %d", f.usable()), fmt.Sprint(f.most), int64(f.most) <= f.usable())
		}
		if f.mustUse > 0 && r.plan.long() {
			add(f.name+": of the usable budget", fmt.Sprintf("over %.0f %%", f.mustUse), fmt.Sprintf("%.1f %%", f.used()), f.used() > f.mustUse)
		}
		add(f.name+": refusals by the pacer's own word", "those on the wire", fmt.Sprintf("%d of %d", f.Told, f.Refused), f.Told == f.Refused)
	}
	for _, o := range r.overheads {
		ns, allocations := o.with.ns-o.without.ns, o.with.allocations-o.without.allocations
		add(o.name+": over the base transport", "under 2,000 ns", fmt.Sprintf("%d ns", ns), ns < 2000)
		add(o.name+": over the base transport", "at most 3 allocations", fmt.Sprint(allocations), allocations <= 3)
	}
	return t
}
