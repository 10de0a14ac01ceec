package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/explain"
)

const exposureLong = `With --exposure it prints how many requests can pass: for each limiter the maximum in any 60 seconds and in any
3600 seconds, from one address, with one session, with one token, and from all callers together. The routes
of a limiter share its budgets, so the figures are for all of them together.

The figures are the worst case over all ways to time the requests. A window of 300 a minute admits 300 requests
in each minute that it counts, and up to 600 in 60 seconds around a reset: all of one window at its end, and all
of the next one at its beginning. On average it is 300 a minute. A cost reduces the figures: 600 units at a
cost of 10 are 60 requests. If responses tell the cost, a second line has the figures in units, without what a
request costs beyond its reservation. If a limiter counts by status, they are for the requests that are counted.

A caller is assumed to choose its agent and its HTTP fields freely, and to have any number of addresses, sessions and
tokens besides the one that is given. A claim that the policy counts by has figures too. An IPv6 /64 is one address.
The figures hold if sessions and tokens are verified, no request has both, and one process counts. Under --token-from
header:NAME or query:NAME a request can have both: then the columns of one session and one token hold only for limiters
that name one of the two. Under on_store_failure: allow the figures hold only while the store answers.`

// An exposureJSON is how many requests a limiter admits at most. A span without a bound is null.
type exposureJSON struct {
	Name    string   `json:"name"`
	Routes  []string `json:"routes"` // they share the figures
	Windows []string `json:"windows"`
	Cost    int64    `json:"cost"`
	// Reserve, CostFrom and Counts are as in an explanation.
	Reserve  string `json:"reserve,omitempty"`
	CostFrom string `json:"cost_from,omitempty"`
	Counts   string `json:"counts,omitempty"` // the figures are for the requests that are counted
	// Passes has an entry for each party: one address, one session, one token, each claim that the
	// policy counts by, everybody.
	Passes map[string]passJSON `json:"passes"`
}

type passJSON struct {
	// Served is false if the answer is 401, since the limiter requires another credential.
	Served bool           `json:"served"`
	Minute *explain.Bound `json:"minute"` // in any 60 s
	Hour   *explain.Bound `json:"hour"`   // in any 3600 s
	// Units are the bounds in units of a limiter whose cost responses tell; otherwise absent.
	Units *spansJSON `json:"units,omitempty"`
}

type spansJSON struct {
	Minute *explain.Bound `json:"minute"`
	Hour   *explain.Bound `json:"hour"`
}

func exposuresJSON(p weir.Policy) map[string]any {
	parties := explain.Parties(p)
	all := make([]exposureJSON, len(p.Limiters))
	for i, l := range limitersJSON(p) {
		limiter := &p.Limiters[i]
		e := exposureJSON{Name: l.Name, Routes: l.Routes, Windows: []string{}, Cost: l.Cost, Reserve: explain.Reserve(limiter), CostFrom: l.CostFrom,
			Counts: limiter.Count.String(), Passes: map[string]passJSON{}}
		for _, w := range l.Windows {
			e.Windows = append(e.Windows, w.Window)
		}
		for _, g := range parties {
			pass := passJSON{g.Served(limiter), explain.Exposure(limiter, g, 60), explain.Exposure(limiter, g, 3600), nil}
			if l.CostFrom != "" {
				pass.Units = &spansJSON{explain.ExposureInUnits(limiter, g, 60), explain.ExposureInUnits(limiter, g, 3600)}
			}
			e.Passes[g.Name] = pass
		}
		all[i] = e
	}
	return map[string]any{"limiters": all, "covers_every_path": coversAll(p)}
}

// coversAll reports whether no request escapes the policy's limiters.
func coversAll(p weir.Policy) bool {
	return slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool {
		return l.Mode == weir.Enforce && slices.Contains(l.Routes, weir.Route{Path: "/", Prefix: true})
	})
}

// A cell of the table is about one party and limiter: two figures, or one word for both.
type cell struct{ minute, hour, word string }

func newCell(l *weir.Limiter, p explain.Party, bound func(*weir.Limiter, explain.Party, int64) *explain.Bound) cell {
	minute, hour := bound(l, p, 60), bound(l, p, 3600)
	switch {
	case !p.Served(l):
		return cell{word: "-"}
	case minute == nil || hour == nil: // the same windows bound both
		return cell{word: "unbounded"}
	}
	return cell{minute: minute.String(), hour: hour.String()}
}

// printExposure prints the table for people: a line of figures for each limiter, and below it what
// they follow from.
func printExposure(out io.Writer, p weir.Policy) error {
	parties := explain.Parties(p)
	names := len("limiter")
	rows, units := make([][]cell, len(p.Limiters)), make([][]cell, len(p.Limiters))
	for i := range p.Limiters {
		l := &p.Limiters[i]
		names = max(names, len(l.Name))
		for _, g := range parties {
			rows[i] = append(rows[i], newCell(l, g, explain.Exposure))
			if l.Actual != (weir.Reading{}) {
				units[i] = append(units[i], newCell(l, g, explain.ExposureInUnits))
			}
		}
	}
	all := slices.DeleteFunc(slices.Concat(rows, units), func(row []cell) bool { return row == nil })
	widths := make([][2]int, len(parties))
	heads := slices.Repeat([]cell{{"60 s", "3600 s", ""}}, len(parties))
	for j := range parties {
		for _, row := range append(all, heads) {
			widths[j][0] = max(widths[j][0], utf8.RuneCountInString(row[j].minute))
			widths[j][1] = max(widths[j][1], utf8.RuneCountInString(row[j].hour))
		}
	}
	var b strings.Builder
	b.WriteString("The maximum of requests in any 60 s and any 3600 s. The routes of a limiter share it.\n\n")
	fmt.Fprintf(&b, "%-*s", names, "")
	for j, g := range parties {
		fmt.Fprintf(&b, "   %*s", widths[j][0]+2+widths[j][1], g.Name)
	}
	fmt.Fprintf(&b, "\n%-*s", names, "limiter")
	for j := range parties {
		writeCell(&b, cell{"60 s", "3600 s", ""}, widths[j])
	}
	b.WriteByte('\n')
	for i := range p.Limiters {
		writeRow(&b, names, p.Limiters[i].Name, rows[i], widths)
		if units[i] != nil {
			writeRow(&b, names, "in units", units[i], widths)
		}
		writeParts(&b, &p.Limiters[i])
	}
	if !coversAll(p) {
		b.WriteString("requests that no route covers are not limited\n")
	}
	writeLegend(&b, p, all)
	_, err := io.WriteString(out, b.String())
	return err
}

func writeRow(b *strings.Builder, names int, name string, row []cell, widths [][2]int) {
	fmt.Fprintf(b, "%-*s", names, name)
	for j, c := range row {
		writeCell(b, c, widths[j])
	}
	b.WriteByte('\n')
}

func writeCell(b *strings.Builder, c cell, width [2]int) {
	if c.word != "" {
		fmt.Fprintf(b, "   %*s", width[0]+2+width[1], c.word)
		return
	}
	fmt.Fprintf(b, "   %*s  %*s", width[0], c.minute, width[1], c.hour)
}

// maxPlansShown is how many plans of a limiter are listed.
const maxPlansShown = 5

// writeParts writes what the figures of a limiter follow from, and which routes they are for.
func writeParts(b *strings.Builder, l *weir.Limiter) {
	for _, w := range l.Rows() {
		fmt.Fprintf(b, "  %s", w)
		if l.Cost > 1 && !settlesCost(l) && !w.Requests && !w.InFlight {
			fmt.Fprintf(b, ", %d a request", l.Cost)
		}
		b.WriteByte('\n')
	}
	if settlesCost(l) {
		fmt.Fprintf(b, "  cost: a request reserves %s\n", cmp.Or(explain.Reserve(l), fmt.Sprint(max(l.Cost, 1))))
	}
	if l.Actual != (weir.Reading{}) {
		fmt.Fprintf(b, "  cost: then %v of the response\n", l.Actual)
	}
	if len(l.Count.Statuses) > 0 {
		fmt.Fprintf(b, "  count: %s; the figures are for the requests that are counted\n", &l.Count)
	}
	if l.Requires != "" {
		fmt.Fprintf(b, "  requires: %s\n", l.Requires)
	}
	if l.Answers != weir.AnswerBackend {
		fmt.Fprintf(b, "  answers: %s\n", l.Answers)
	}
	if l.Chosen {
		b.WriteString("  chosen: yes\n")
	}
	if l.Penalty != (weir.Penalty{}) {
		fmt.Fprintf(b, "  penalty: %s; the figures are without it\n", l.Penalty)
	}
	for _, o := range l.Overrides {
		fmt.Fprintf(b, "  %s\n", o)
	}
	if len(l.Plans.List) > 0 {
		fmt.Fprintf(b, "  plans by %s; the figures are for the highest limit of each window\n", l.Plans.By)
		for _, line := range explain.Highest(l, maxPlansShown) {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
	for _, w := range l.Exempt {
		fmt.Fprintf(b, "  exempt: %s\n", w)
	}
	for _, w := range l.Deny {
		fmt.Fprintf(b, "  deny: %s\n", w)
	}
	if l.Mode == weir.Shadow {
		b.WriteString("  shadow: refuses no request\n")
	}
	if len(l.Routes) == 0 {
		b.WriteString("    no routes: for code that names the limiter\n")
	}
	for _, r := range l.Routes {
		fmt.Fprintf(b, "    %s\n", r)
	}
}

// settlesCost reports whether requests of a limiter differ in what they cost.
func settlesCost(l *weir.Limiter) bool {
	return l.Actual != (weir.Reading{}) || l.Reserve.From != (weir.Reading{})
}

// writeLegend explains the words of the table.
func writeLegend(b *strings.Builder, p weir.Policy, rows [][]cell) {
	b.WriteByte('\n')
	uses := func(hit func(cell) bool) bool {
		return slices.ContainsFunc(rows, func(row []cell) bool { return slices.ContainsFunc(row, hit) })
	}
	if uses(func(c cell) bool { return c.word == "unbounded" }) {
		b.WriteString("unbounded: no window counts all of them together. A caller can choose its agent and HTTP fields,\n" +
			"           and have many addresses, sessions and tokens. Another limiter may bound how fast sessions\n" +
			"           begin.\n")
	}
	if slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool { return l.Actual != (weir.Reading{}) }) {
		b.WriteString("in units: what requests cost, as their responses tell, up to their reservations. What one costs\n" +
			"           beyond its reservation comes on top. Only a window of requests bounds their number.\n")
	}
	if slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool { return l.Mode == weir.Shadow || len(l.Exempt) > 0 }) {
		b.WriteString("           An exempt caller is never refused, and a limiter in mode shadow refuses no request.\n")
	}
	if uses(func(c cell) bool { return c.word == "-" }) {
		b.WriteString("-: answered 401 if credentials are verified, because the limiter requires another one\n")
	}
	if uses(func(c cell) bool { return strings.HasPrefix(c.minute, "≤") || strings.HasPrefix(c.hour, "≤") }) {
		b.WriteString("≤: the tightest window alone allows this many; several windows together may allow fewer\n")
	}
}
