package explain

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/weirlimit/weir"
)

// Reserve describes in words where a request tells what is reserved for it: "json:max_tokens, times
// 2, plus 500, at most 8000". It is empty if no request tells.
func Reserve(l *weir.Limiter) string {
	r := &l.Reserve
	if r.From == (weir.Reading{}) {
		return ""
	}
	s := r.From.String()
	if r.Times > 1 {
		s += fmt.Sprintf(", times %d", r.Times)
	}
	if r.Plus > 0 {
		s += fmt.Sprintf(", plus %d", r.Plus)
	}
	return s + fmt.Sprintf(", at most %d", max(l.Cost, 1))
}

// explainSettling adds what is charged before a request is served, and what is given back or
// charged afterwards.
func (e *Explanation) explainSettling(p *weir.Policy, l *weir.Limiter) {
	e.Reserve, e.CostFrom, e.Counts = Reserve(l), l.Actual.String(), l.Count.String()
	if e.Reserve != "" {
		e.because("before it is served, the request is charged what it tells itself: %s; a request that does not tell is charged %d", e.Reserve, e.Cost)
	}
	if e.CostFrom != "" {
		e.because("%s of the response tells what the request has cost: what was charged beyond that is given back into the same window until it ends, and what it cost more is charged, even if that passes the limit; a response that does not tell leaves the charge as it is", e.CostFrom)
	}
	if c := &l.Count; e.Counts != "" {
		which := "only a request with status " + alternatives(c.Statuses) + " is counted"
		if c.Not {
			which = "a request with status " + alternatives(c.Statuses) + " is not counted"
		}
		e.because("%s: each is charged before it is served, and given back when the status of its response says so; one without a response stays charged", which)
		if l.Requires != "" {
			status, becomes := cmp.Or(p.Answers.Unauthenticated.Status, http.StatusUnauthorized), "given back"
			if c.Counts(status) {
				becomes = "counted"
			}
			e.because("so is a request without a verified %s, which Weir answers %d: it is %s", l.Requires, status, becomes)
		}
		if l.Penalty != (weir.Penalty{}) {
			e.because("the penalty counts refusals by the limiter, not statuses of the backend")
		}
	}
	if l.InFlight.Limit > 0 {
		e.because("each request holds one of %d slots from its admission to the end of its response; while none is free, the answer is a refusal with Retry-After: 1", l.InFlight.Limit)
	}
}
