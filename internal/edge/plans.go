package edge

import (
	"log/slog"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/live"
)

// warnOfPlans returns a hook that warns of limiters whose plans no caller can have here, since no
// flag verifies what they are read from. It warns once for each policy that comes into force.
func warnOfPlans(log *slog.Logger, who *identity.Resolver) func(live.State) {
	return warnOnce(log, func(p weir.Policy) (all []Warning) {
		for i := range p.Limiters {
			l := &p.Limiters[i]
			if len(l.Plans.List) == 0 {
				continue
			}
			if problem := who.PlanProblem(l.Plans.By); problem != "" {
				all = append(all, Warning{"no caller has a plan, so every caller has the windows' own limits: " + problem + "; " + planFlags(l.Plans.By),
					[]any{"limiter", l.Name, "by", l.Plans.By}})
			}
		}
		return all
	})
}

// planFlags names the flags that make plans by that possible.
func planFlags(by string) string {
	switch source, _ := weir.SplitSource(by); source {
	case identity.Token:
		return "--tokens or --token-file verifies them"
	case identity.Header:
		return "--trusted-proxies names the proxies that write it, and must remove it from what clients send"
	}
	return "--jwt-key or --jwks gives the key"
}

// readsPlan reports whether the plans of a limiter are read from a credential of a source.
func readsPlan(l *weir.Limiter, source string) bool {
	by := l.Plans.By
	return source == identity.Token && by == identity.Token || source == identity.Session && strings.HasPrefix(by, "claim:")
}
