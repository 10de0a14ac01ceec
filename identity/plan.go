package identity

import (
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// Plan implements weir.Planner. It reads the caller's plan from weir.Plans.By: "claim:NAME" is
// what the key source of that name counts by, a text or an integer in the verified session. "token"
// is the plan of the verified API token. "header:NAME" is an HTTP field of which a trusted proxy,
// the peer of the connection, sent exactly one line. From any other peer that field does not exist,
// because a caller must not choose its plan. plan is empty if the caller has none, or if its
// credential is not verified; known is always true. For a credential that has been seen before,
// Plan allocates nothing but an integer over 99 in a second claim.
func (c *Caller) Plan(by string) (plan string, known bool) {
	const claim, header = "claim:", Header + ":"
	switch { // every request asks: strings.Cut takes longer
	case len(by) > len(claim) && by[:len(claim)] == claim:
		if s, _ := c.verifiedSession(); s != nil {
			var ok bool
			if plan, ok = s.plan.find(by); !ok {
				plan = planOf(s.Claims, by[len(claim):])
				if s.plan.isFree(0) { // the text is the session's own
					s.plan.remember(by, plan)
				}
			}
		}
	case by == Token:
		if t, _ := c.tokenClaims(); t != nil {
			plan = t.Plan
		}
	case len(by) > len(header) && by[:len(header)] == header:
		if c.fromProxy() {
			plan = oneLine(c.request, by[len(header):])
		}
	}
	return plan, true
}

var _ weir.Planner = (*Caller)(nil)

// fromProxy reports whether the peer of the connection is a trusted proxy.
func (c *Caller) fromProxy() bool {
	return len(c.resolver.options.TrustedProxies) > 0 && c.resolver.trusts(c.request.Peer())
}

// oneLine returns the value of a field without the blanks around it, or "" if the request has no
// line of the field or several.
func oneLine(r Request, field string) string {
	lines := r.Header(field)
	if len(lines) != 1 {
		return ""
	}
	return trimBlanks(lines[0])
}

// trimBlanks removes the blanks around the value of a field. Nearly every value has none, since
// HTTP servers remove them.
func trimBlanks(value string) string {
	isBlank := func(c byte) bool { return c == ' ' || c == '\t' }
	if value != "" && (isBlank(value[0]) || isBlank(value[len(value)-1])) {
		return strings.Trim(value, " \t")
	}
	return value
}

// planOf returns the plan that a claim names, or "".
func planOf(claims map[string]any, name string) string {
	text, integer, ok := claimOf(claims, name)
	if ok && text == "" {
		return strconv.FormatInt(integer, 10)
	}
	return text
}

// PlanProblem returns why no caller of this Resolver can have a plan by that, in words, and "" if
// callers can: no key verifies such a credential, or no proxy is trusted to write the field.
func (r *Resolver) PlanProblem(by string) string {
	switch name, _, _ := strings.Cut(by, ":"); {
	case name == "claim" && !r.Verifies(Session):
		return "no sessions are verified"
	case name == Token && !r.Verifies(Token):
		return "no API tokens are verified"
	case name == Header && len(r.options.TrustedProxies) == 0:
		return "no proxy is trusted to write the field"
	}
	return ""
}
