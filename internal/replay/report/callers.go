package report

import (
	"slices"

	"github.com/weirlimit/weir/internal/replay"
)

func (t *table) worst(o *replay.Outcome) {
	for i := range o.Limiters {
		l := &o.Limiters[i]
		t.callers("Refused most by "+limiterName(l), "REFUSED", l.Worst, l.Doubt)
	}
}

// callers lists the callers with the most refusals, if there are any.
func (t *table) callers(title, refused string, worst []replay.Caller, doubt replay.Doubt) {
	if len(worst) == 0 {
		return
	}
	g := &grid{left: "rrrll"}
	g.row(refused, "OF", "MOST", "FIRST", "CALLER")
	for _, c := range worst {
		g.row(least(c.Refused, doubt.Refused || doubt.Unknown), least(c.Requests, doubt.Requests), peak(c), moment(c.First), Shown(c.Name, 300))
	}
	if !peaks(worst) {
		g.drop(2)
	}
	t.b.WriteString("\n" + title + ":\n" + t.fitCallers(g).String())
	if why := doubts(doubt); why != "" {
		t.line("", "~ %s", why)
	}
}

// doubts explains how a list of callers may be wrong, or returns "".
func doubts(d replay.Doubt) string {
	switch {
	case d.Refused:
		return "at least: the memory was full, callers were forgotten with what they were refused, and others may be missing here; give more --memory"
	case d.Requests:
		return "at least: the memory was full, and callers were forgotten between their requests"
	case d.Unknown:
		return "by the known windows only: another window is unknown"
	}
	return ""
}

// peak formats the maximum that a caller asked for in one window, if it is known.
func peak(c replay.Caller) string {
	if c.Peak == 0 {
		return ""
	}
	return thousands(c.Peak)
}

// peaks reports whether any peak is known.
func peaks(all []replay.Caller) bool {
	return slices.ContainsFunc(all, func(c replay.Caller) bool { return c.Peak > 0 })
}

// fitCallers cuts the names of callers, the last column, to the width of the line.
func (t *table) fitCallers(g *grid) *grid {
	last := len(g.left) - 1
	names := make([]string, len(g.rows))
	for i, row := range g.rows {
		names[i], row[last] = row[last], ""
	}
	room := max(g.room(t.width)+2, 16)
	for i, row := range g.rows {
		row[last] = Shown(names[i], room)
	}
	return g
}
