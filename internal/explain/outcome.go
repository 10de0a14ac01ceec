package explain

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir"
)

// explainOutcomes adds what follows a request that is refused, that lacks a credential, or that
// brings a count to a percentage.
func (e *Explanation) explainOutcomes(p *weir.Policy, l *weir.Limiter, who Caller) {
	if status := p.Answers.Refused.Status; status != 0 {
		e.because("the policy answers a refusal with %d", status)
	}
	if l.Requires != "" && who.values[l.Requires] == "" {
		status := cmp.Or(p.Answers.Unauthenticated.Status, http.StatusUnauthorized)
		e.because("the limiter requires a verified %s: without one the request is counted by address and answered %d", l.Requires, status)
	}
	if p := l.Penalty; p != (weir.Penalty{}) {
		e.because("after %s that count the caller by %s, the limiter refuses all its requests for %s", p.Refusals(), l.Windows[0].Key, p.RefuseFor())
	}
	if len(l.Notify) > 0 {
		e.because("the request that brings a window's count to %s percent of its limit makes an event", alternatives(l.Notify))
	}
}

// alternatives lists items, such as "75, 90 or 100".
func alternatives[T any](items []T) string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = fmt.Sprint(item)
	}
	last := len(all) - 1
	if last == 0 {
		return all[0]
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}
