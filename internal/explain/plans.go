package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// SetPlan sets the caller's plan, as the limiter reads it. An empty one sets none.
func (c *Caller) SetPlan(name string) { c.plan = name }

// explainPlans adds which limits the caller's plan has.
func (e *Explanation) explainPlans(l *weir.Limiter, who Caller) {
	plans := &l.Plans
	switch plan := plans.Find(who.plan); {
	case len(plans.List) == 0 && who.plan != "":
		e.because("the limiter has no plans: plan %s changes nothing", who.plan)
	case len(plans.List) == 0:
	case who.plan == "":
		e.because("the limits depend on the caller's plan, which is read from %s; no plan is given, so they are the windows' own", readFrom(plans.By))
	case plan == nil:
		e.because("the limiter has no plan %s, so the limits are the windows' own; it has %s", who.plan, planNames(plans))
	default:
		var rates []string
		for _, r := range plan.Rates {
			rates = append(rates, r.String())
		}
		e.because("plan %s has %s, if %s says so", plan.Name, strings.Join(rates, " and "), readFrom(plans.By))
	}
}

// readFrom returns in words where a plan is read.
func readFrom(by string) string {
	switch source, name := weir.SplitSource(by); source {
	case identity.Token:
		return "the verified API token"
	case identity.Header:
		return "the field " + name + " of a trusted proxy"
	default:
		_, claim, _ := strings.Cut(by, ":")
		return "the claim " + claim + " of the verified session"
	}
}

// planNames lists plans, at most ten.
func planNames(p *weir.Plans) string {
	const most = 10
	var names []string
	for i := range min(len(p.List), most) {
		names = append(names, p.List[i].Name)
	}
	if more := len(p.List) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// highest returns the highest limit that an override or a plan gives callers of the party in a
// window, and which one it is; 0 if there is none.
func highest(l *weir.Limiter, p Party, w weir.Window) (limit int64, by string) {
	for _, o := range l.Overrides {
		if o.Changes(&w) && o.Limit > limit {
			limit, by = o.Limit, "override "+o.String()
		}
	}
	if !p.mayHavePlan(l.Plans.By) {
		return limit, by
	}
	for i := range l.Plans.List {
		if plan := &l.Plans.List[i]; plan.Of(&w) > limit {
			limit, by = plan.Of(&w), "plan "+plan.Name
		}
	}
	return limit, by
}

// mayHavePlan reports whether requests of the party can have a plan that is read so. A request
// carries one credential: one with an API token has no claims, and one with a session no token.
func (p Party) mayHavePlan(by string) bool {
	switch source, _ := weir.SplitSource(by); {
	case source == "claim":
		return p.Source != identity.Token
	case by == identity.Token:
		return p.Source != identity.Session
	}
	return true
}

// Highest lists the plans of a limiter for people: those with the highest limits first, as many as
// most, and how many there are besides.
func Highest(l *weir.Limiter, most int) (lines []string) {
	all := slices.Clone(l.Plans.List)
	top := func(p *weir.Plan) (limit int64) {
		for _, r := range p.Rates {
			limit = max(limit, r.Limit)
		}
		return limit
	}
	slices.SortStableFunc(all, func(a, b weir.Plan) int { return cmp.Compare(top(&b), top(&a)) })
	for i := range min(len(all), most) {
		var rates []string
		for _, r := range all[i].Rates {
			rates = append(rates, r.String())
		}
		lines = append(lines, fmt.Sprintf("plan %s: %s", all[i].Name, strings.Join(rates, ", ")))
	}
	if more := len(all) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more plans with lower limits", more))
	}
	return lines
}
