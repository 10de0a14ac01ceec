package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/bench/page"
)

// A table is printed and written in the same form: Markdown with aligned columns.
type table struct {
	title string
	head  []string
	rows  [][]string
	note  string // below the table, if not empty
}

func (t table) String() string { return page.Table(t.head, t.rows) }

// String returns all tables, as in the documents.
func (r *results) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", r.machine)
	tables := []table{r.own()}
	for _, l := range []language{golang, javascript, php} {
		tables = append(tables, r.others(l))
	}
	for _, t := range append(tables, r.cost(), r.aims()) {
		if len(t.rows) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n%s", t.title, t)
		}
		if len(t.rows) > 0 && t.note != "" {
			fmt.Fprintf(&b, "\n%s\n", t.note)
		}
	}
	for _, f := range r.found {
		if f.problem != "" || ours(f.who) && (f.Failed > 0 || f.Unshared > 0) {
			fmt.Fprintf(&b, "\nWrong with %s: %d calls failed, the first with %q; the shared view failed %d times. %s\n", f.name, f.Failed, f.First, f.Unshared, f.problem)
		}
	}
	return b.String()
}

// own returns the table of the pacer in every case.
func (r *results) own() table {
	t := table{head: []string{"", "limit", "served", "exactly once", "refused", "after the first window", "windows opened", "on the clock", "most spent in one", "usable", "used", "took", "longest call"},
		title: fmt.Sprintf("The pacers, one credential, windows of %v: as many requests as %d of them have usable budget", r.plan.per, r.plan.windows), note: formula}
	for _, f := range r.found {
		if ours(f.who) {
			t.rows = append(t.rows, f.row())
		}
	}
	return t
}

func (f figures) row() []string {
	return []string{f.name, fmt.Sprint(f.limit), fmt.Sprintf("%d of %d", f.Served, f.requests), f.once(), fmt.Sprint(f.Refused), fmt.Sprint(f.afterFirst), fmt.Sprint(f.opened),
		fmt.Sprintf("%.2f", f.windows), fmt.Sprint(f.maxSpent), fmt.Sprintf("%.0f", f.budget), fmt.Sprintf("%.1f %%", f.used()), seconds(f.took()), seconds(f.Longest)}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// others returns the table of a language: the pacer, and other clients with the same work.
func (r *results) others(in language) table {
	t := table{head: []string{"", "served", "exactly once", "sent", "refused", "refused for each served", "left unused", "took", "longest call", ""},
		title: fmt.Sprintf("The same requests from %s, with other clients, limit 60, windows of %v", in.callers(), r.plan.per)}
	for _, f := range r.found {
		if !f.beside || f.language != in {
			continue
		}
		name := f.name
		if ours(f.who) {
			name = "**" + f.who + "**"
		}
		t.rows = append(t.rows, []string{name, fmt.Sprintf("%d of %d", f.Served, f.requests), f.once(), fmt.Sprint(f.Sent), fmt.Sprint(f.Refused),
			fmt.Sprintf("%.2f", float64(f.Refused)/float64(max(f.Served, 1))), fmt.Sprintf("%.1f %%", max(100-f.used(), 0)), seconds(f.took()), seconds(f.Longest), notes[f.who]})
	}
	return t
}

// cost returns the table of the overhead while there is budget.
func (r *results) cost() table {
	t := table{head: []string{"", "ns a request", "allocations", "bytes", ""}, title: "Cost of a request while there is budget, with a base transport in memory that does nothing"}
	for _, o := range r.overheads {
		ns, allocations := o.with.ns-o.without.ns, o.with.allocations-o.without.allocations
		var over judgement
		over.is(fmt.Sprintf("%d, aim under 2,000", ns), ns < 2000)
		over.is(fmt.Sprintf("%d, aim at most 3", allocations), allocations <= 3)
		over.is(fmt.Sprint(o.with.bytes-o.without.bytes), true)
		t.rows = append(t.rows,
			[]string{o.name + ", the base transport alone", fmt.Sprint(o.without.ns), fmt.Sprint(o.without.allocations), fmt.Sprint(o.without.bytes), ""},
			[]string{"**" + o.name + ", over the base transport**", over.cells[0], over.cells[1], over.cells[2], over.verdict()})
	}
	return t
}

// aims returns the table of aims and results.
func (r *results) aims() table {
	t := table{head: []string{"", "refused", "used", "most spent of a window", "exactly once", "refusals seen", ""}, title: "Targets and results"}
	for _, f := range r.found {
		if !ours(f.who) {
			continue
		}
		var j judgement
		j.is(f.refusals())
		if f.mustUse > 0 && r.plan.long() {
			j.is(fmt.Sprintf("%.1f %%, aim over %.0f %%", f.used(), f.mustUse), f.used() > f.mustUse)
		} else {
			j.is(fmt.Sprintf("%.1f %%", f.used()), true)
		}
		if f.processes == 1 {
			j.is(fmt.Sprintf("%d, aim at most %d", f.maxSpent, f.usable()), int64(f.maxSpent) <= f.usable())
		} else {
			j.is(fmt.Sprint(f.maxSpent), true)
		}
		j.is(f.once(), f.problem == "" && f.once() == "all")
		if f.language == php { // it has no event for that
			j.is("", true)
		} else {
			j.is(fmt.Sprintf("%d of %d", f.Told, f.Refused), f.Told == f.Refused)
		}
		t.rows = append(t.rows, append(append([]string{f.name}, j.cells...), j.verdict()))
	}
	return t
}

// refusals describes the aim for refusals, and reports whether it was met.
func (f figures) refusals() (text string, met bool) {
	if f.mayRefuse > 0 {
		part := float64(f.Refused) / float64(max(f.Sent, 1))
		return fmt.Sprintf("%.2f %%, aim under %.0f %%", 100*part, 100*f.mayRefuse), part < f.mayRefuse
	}
	if f.notFirst {
		return fmt.Sprintf("%d after the first window, aim 0", f.afterFirst), f.afterFirst == 0
	}
	return fmt.Sprintf("%d, aim 0", f.Refused), f.Refused == 0
}

// A judgement is a row of results and their aims.
type judgement struct {
	cells  []string
	missed bool
}

// is adds a result, in bold if it misses its aim.
func (j *judgement) is(reached string, met bool) {
	if !met {
		reached, j.missed = "**"+reached+"**", true
	}
	j.cells = append(j.cells, reached)
}

func (j *judgement) verdict() string {
	if j.missed {
		return "**missed**"
	}
	return "met"
}
