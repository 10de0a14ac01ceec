package edge

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// A Warning is about a policy that is valid, and that this server does not do everything for.
type Warning struct {
	Message string
	Args    []any // as of slog.Logger.Warn
}

// PolicyWarnings returns where a policy does not fit the sites of c, the methods that it accepts
// beside the known ones, and the credentials that it verifies. They are logged when the policy
// comes into force.
func PolicyWarnings(p weir.Policy, c *Config) []Warning {
	return slices.Concat(hostWarnings(p, c.Sites), sharedWarnings(p, c.Sites), methodWarnings(p, c.Methods), credentialWarnings(p, c))
}

// CandidateWarnings returns why a candidate policy reports less than it would do in force.
func CandidateWarnings(p weir.Policy, c *Config) []Warning {
	all := credentialWarnings(p, c)
	for i := range all {
		all[i].Args = append(all[i].Args, "candidate", c.Candidate)
	}
	return all
}

// EventWarnings returns a warning of a policy that makes no event, for a server with a webhook that
// waits for them.
func EventWarnings(p weir.Policy) []Warning {
	if slices.ContainsFunc(p.Limiters, func(l weir.Limiter) bool { return len(l.Notify) > 0 }) {
		return nil
	}
	return []Warning{{"--events-url gets no event: no limiter of the policy has notify", []any{"example", "notify: [75, 90, 100]"}}}
}

// warnOnce returns a hook that logs the warnings of each policy that comes into force, once.
func warnOnce(log *slog.Logger, warnings func(weir.Policy) []Warning) func(live.State) {
	var mu sync.Mutex
	warned := ""
	return func(s live.State) {
		mu.Lock()
		defer mu.Unlock()
		if s.Version == warned {
			return
		}
		warned = s.Version
		logWarnings(log, warnings(s.Policy))
	}
}

func logWarnings(log *slog.Logger, all []Warning) {
	for _, w := range all {
		log.Warn(w.Message, w.Args...)
	}
}

// methodWarnings warns of methods that routes name and the server answers 405. It leaves out those
// that no server accepts, of which package policyfile warns.
func methodWarnings(p weir.Policy, accepted []string) (all []Warning) {
	seen := make(map[string]bool)
	for i := range p.Limiters {
		for _, r := range p.Limiters[i].Routes {
			if seen[r.Method] || r.Method == "" || gateway.IsMethod(r.Method) || gateway.CheckMethod(r.Method) != nil || slices.Contains(accepted, r.Method) {
				continue
			}
			seen[r.Method] = true
			with := strings.Join(append(slices.Clone(accepted), r.Method), ",")
			all = append(all, Warning{"a route is for a method that the server answers 405: give --methods " + with + ", or correct the route",
				[]any{"method", r.Method, "limiter", p.Limiters[i].Name, "route", r.String()}})
		}
	}
	return all
}
