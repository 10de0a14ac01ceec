package admin

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// Plan implements weir.Planner as far as what an operator has named tells the plan. A caller with a
// certain token has that token's plan, and no claim, because a request carries one credential. A
// caller with a certain session has no token. Nothing else tells a plan: a session's id does not
// have its claims, and which field a proxy writes for an address is not known.
func (c *partialCaller) Plan(by string) (plan string, known bool) {
	token, session := c.values[identity.Token], c.values[identity.Session]
	switch source, _ := weir.SplitSource(by); {
	case by == identity.Token && token != "":
		if c.tokens == nil {
			return "", false
		}
		t, err := c.tokens.Lookup(token)
		return t.Plan, err == nil
	case by == identity.Token:
		return "", session != ""
	case source == "claim":
		return "", token != "" && session == ""
	}
	return "", false
}

// byPlan reports whether the plan of a caller that is not known would matter for its limits.
func byPlan(windows []CallerWindow) bool {
	return slices.ContainsFunc(windows, func(w CallerWindow) bool { return w.Lacks == "" && w.PlanUnknown })
}

// unlisted returns the caller's plan if plans change a window, and not that one; else "".
func (n *named) unlisted(h *weir.WindowState) string {
	plans := &h.Limiter.Plans
	who, ok := n.callers[0].(weir.Planner) // possible callers do not differ in their token
	if !ok || !plans.Changes(h.Window) {
		return ""
	}
	if plan, _ := who.Plan(plans.By); plans.Find(plan) == nil {
		return plan
	}
	return ""
}
