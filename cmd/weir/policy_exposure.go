package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/explain"
)

const exposureLong = `With --exposure it is how many requests can pass: for each limiter the most in any 60 seconds and in any
3600 seconds, from one address, with one session, with one token, and from everybody together. The routes
of a limiter share its budgets, so the figures are for all of them together.

The figures are the worst case, over every way to time the requests. A window of 300 a minute lets 300 pass
in each minute that it counts, and up to 600 in 60 seconds around a reset: all of one window at its end, all
of the next at its beginning. In the long run it is 300 a minute. A cost divides: 600 units at a cost of 10
are 60 requests. Whoever calls is taken to invent any number of agents, and to have any number of addresses,
sessions and tokens beside the one thing that is said; an IPv6 /64 is one address. The figures hold where
sessions and tokens are verified, while one process counts, and under on_store_failure: allow only while the
store answers.`

// An exposureJSON is what a limiter lets pass. A span that nothing bounds is null.
type exposureJSON struct {
	Name    string              `json:"name"`
	Routes  []string            `json:"routes"` // they share the figures
	Windows []string            `json:"windows"`
	Cost    int64               `json:"cost"`
	Passes  map[string]passJSON `json:"passes"` // by party: one address, one session, one token, everybody
}

type passJSON struct {
	Served bool           `json:"served"` // false: answered 401, since the limiter asks for another credential
	Minute *explain.Bound `json:"minute"` // in any 60 s
	Hour   *explain.Bound `json:"hour"`   // in any 3600 s
}

func exposuresJSON(p weir.Policy) map[string]any {
	all := make([]exposureJSON, len(p.Limiters))
	for i, l := range limitersJSON(p) {
		e := exposureJSON{Name: l.Name, Routes: l.Routes, Cost: l.Cost, Passes: map[string]passJSON{}}
		for _, w := range l.Windows {
			e.Windows = append(e.Windows, w.Window)
		}
		for _, g := range explain.Parties() {
			limiter := &p.Limiters[i]
			e.Passes[g.Name] = passJSON{g.Served(limiter), explain.Exposure(limiter, g, 60), explain.Exposure(limiter, g, 3600)}
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

// A cell is what the table says of one party and limiter: two figures, or one word for both.
type cell struct{ minute, hour, word string }

func newCell(l *weir.Limiter, p explain.Party) cell {
	minute, hour := explain.Exposure(l, p, 60), explain.Exposure(l, p, 3600)
	switch {
	case !p.Served(l):
		return cell{word: "-"}
	case minute == nil || hour == nil: // the same windows bound both
		return cell{word: "unbounded"}
	}
	return cell{minute: minute.String(), hour: hour.String()}
}

// printExposure prints the table for people: a line of figures for each limiter, below it what they are made of.
func printExposure(out io.Writer, p weir.Policy) error {
	names := len("limiter")
	rows := make([][]cell, len(p.Limiters))
	for i := range p.Limiters {
		names = max(names, len(p.Limiters[i].Name))
		for _, g := range explain.Parties() {
			rows[i] = append(rows[i], newCell(&p.Limiters[i], g))
		}
	}
	widths := make([][2]int, len(explain.Parties()))
	for j := range explain.Parties() {
		for _, row := range append(rows, []cell{{"60 s", "3600 s", ""}, {"60 s", "3600 s", ""}, {"60 s", "3600 s", ""}, {"60 s", "3600 s", ""}}) {
			widths[j][0] = max(widths[j][0], utf8.RuneCountInString(row[j].minute))
			widths[j][1] = max(widths[j][1], utf8.RuneCountInString(row[j].hour))
		}
	}
	var b strings.Builder
	b.WriteString("The most requests that pass in any 60 s and any 3600 s, worst case. A limiter's routes share them.\n\n")
	fmt.Fprintf(&b, "%-*s", names, "")
	for j, g := range explain.Parties() {
		fmt.Fprintf(&b, "   %*s", widths[j][0]+2+widths[j][1], g.Name)
	}
	fmt.Fprintf(&b, "\n%-*s", names, "limiter")
	for j := range explain.Parties() {
		writeCell(&b, cell{"60 s", "3600 s", ""}, widths[j])
	}
	b.WriteByte('\n')
	for i := range p.Limiters {
		fmt.Fprintf(&b, "%-*s", names, p.Limiters[i].Name)
		for j, c := range rows[i] {
			writeCell(&b, c, widths[j])
		}
		b.WriteByte('\n')
		writeParts(&b, &p.Limiters[i])
	}
	if !coversAll(p) {
		b.WriteString("what no route covers passes unlimited\n")
	}
	writeLegend(&b, p, rows)
	_, err := io.WriteString(out, b.String())
	return err
}

func writeCell(b *strings.Builder, c cell, width [2]int) {
	if c.word != "" {
		fmt.Fprintf(b, "   %*s", width[0]+2+width[1], c.word)
		return
	}
	fmt.Fprintf(b, "   %*s  %*s", width[0], c.minute, width[1], c.hour)
}

// writeParts says what the figures of a limiter are made of, and what they are for.
func writeParts(b *strings.Builder, l *weir.Limiter) {
	for _, w := range l.Windows {
		fmt.Fprintf(b, "  %s", w)
		if l.Cost > 1 {
			fmt.Fprintf(b, ", %d a request", l.Cost)
		}
		b.WriteByte('\n')
	}
	for _, o := range l.Overrides {
		fmt.Fprintf(b, "  %s\n", o)
	}
	for _, w := range l.Exempt {
		fmt.Fprintf(b, "  exempt: %s\n", w)
	}
	if l.Mode == weir.Shadow {
		b.WriteString("  shadow: refuses nothing\n")
	}
	if len(l.Routes) == 0 {
		b.WriteString("    no routes: for code that names the limiter\n")
	}
	for _, r := range l.Routes {
		fmt.Fprintf(b, "    %s\n", r)
	}
}

// writeLegend explains the words that the table uses.
func writeLegend(b *strings.Builder, p weir.Policy, rows [][]cell) {
	b.WriteByte('\n')
	uses := func(hit func(cell) bool) bool {
		return slices.ContainsFunc(rows, func(row []cell) bool { return slices.ContainsFunc(row, hit) })
	}
	if uses(func(c cell) bool { return c.word == "unbounded" }) {
		b.WriteString("unbounded: no window counts all of them together; agents are free to invent, and addresses, sessions\n" +
			"           and tokens may be many. Another limiter may bound how fast sessions are begun.\n")
	}
	if slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool { return l.Mode == weir.Shadow || len(l.Exempt) > 0 }) {
		b.WriteString("           Whoever is exempt is never refused, and a limiter in mode shadow refuses nobody.\n")
	}
	if uses(func(c cell) bool { return c.word == "-" }) {
		b.WriteString("-: answered 401 where credentials are verified, since the limiter asks for another\n")
	}
	if uses(func(c cell) bool { return strings.HasPrefix(c.minute, "≤") || strings.HasPrefix(c.hour, "≤") }) {
		b.WriteString("≤: never more than the tightest window alone allows; several windows together may allow fewer\n")
	}
}
