package replay

import (
	"slices"

	"github.com/weirlimit/weir"
)

// PlanKey is the name in Options.Keys of the field with the caller's plan, wherever the server
// reads plans. Without such a field no plan is known: the requests are counted by the windows' own
// limits, and the report has that as a Lack.
const PlanKey = "plan"

// Plan implements weir.Planner. It is not that of identity.Caller, since a log has no credentials.
func (c *caller) Plan(string) (plan string, known bool) {
	place := slices.Index(c.sources.all, PlanKey)
	if place < 0 {
		return "", false
	}
	if field := c.sources.mapped[place]; field >= 0 {
		if v := c.line.Field(field); len(v) > 0 {
			c.seen |= c.sources.alike[place]
			return text(v), true
		}
	}
	c.lacks |= 1 << place
	return "", false
}

// hasPlan reports whether the present caller's plan sets the limit of a window.
func (r *Replay) hasPlan(l *weir.Limiter, w *weir.Window) bool {
	if len(l.Plans.List) == 0 {
		return false
	}
	name, _ := r.caller.Plan(l.Plans.By)
	plan := l.Plans.Find(name)
	return plan != nil && plan.Of(w) > 0
}

// keptPlans returns the plans of a limiter without the rates that change none of its windows.
func keptPlans(p weir.Plans, windows []weir.Window) weir.Plans {
	out := weir.Plans{By: p.By}
	for _, plan := range p.List {
		plan.Rates = slices.DeleteFunc(slices.Clone(plan.Rates), func(r weir.Rate) bool {
			return !slices.ContainsFunc(windows, func(w weir.Window) bool { return r.Changes(&w) })
		})
		if len(plan.Rates) > 0 {
			out.List = append(out.List, plan)
		}
	}
	if len(out.List) == 0 {
		return weir.Plans{}
	}
	return out
}
