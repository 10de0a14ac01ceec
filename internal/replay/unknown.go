package replay

import (
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
)

// Requests whose agent the log does not have.
//
// A window that counts by agent cannot be decided for such a request. Counting all of them by one
// empty agent refuses requests that the server would admit, and counting each by its own agent
// admits requests that the server would refuse. So such windows do not count them, and are reported
// as unknown. A second decider decides these requests. It has the same policy without the windows
// that name the agent, and the same store and keys, so that the other windows stay exact.

// withoutAgent returns a policy without the windows that name the agent; ok is false if there are
// none. A limiter without other windows gets one that refuses nothing.
func withoutAgent(p weir.Policy) (out weir.Policy, ok bool) {
	out = p
	out.Limiters = slices.Clone(p.Limiters)
	for i := range out.Limiters {
		l := &out.Limiters[i]
		kept := slices.DeleteFunc(slices.Clone(l.Windows), func(w weir.Window) bool { return w.Key.Uses(identity.Agent) })
		slots := l.InFlight
		if slots.Key.Uses(identity.Agent) {
			slots = weir.InFlight{}
		}
		if len(kept) == len(l.Windows) && slots.Limit == l.InFlight.Limit {
			continue
		}
		ok = true
		if len(kept) == 0 && slots.Limit == 0 {
			kept = []weir.Window{{Limit: weir.MaxLimit, Per: time.Second, Key: weir.Key{{identity.Everyone}}}}
		}
		if len(kept) > 0 && len(l.Windows) > 0 && kept[0].Key.String() != l.Windows[0].Key.String() {
			l.Penalty = weir.Penalty{} // it counts by the agent
		}
		l.Windows, l.InFlight = kept, slots
		l.Plans = keptPlans(l.Plans, kept)
		l.Overrides = slices.DeleteFunc(slices.Clone(l.Overrides), func(o weir.Override) bool {
			return !slices.ContainsFunc(kept, func(w weir.Window) bool { return o.Changes(&w) })
		})
	}
	return out, ok
}

// openAgentless makes the decider for requests with an unknown agent, if any window counts by
// agent.
func (l *lane) openAgentless() (err error) {
	policy, ok := withoutAgent(l.policy)
	if !ok {
		return nil
	}
	for i := range l.policy.Limiters {
		rules := &l.policy.Limiters[i]
		l.triesAgents = l.triesAgents || rules.Mode == weir.Shadow && slices.ContainsFunc(rules.Rows(), func(w weir.Window) bool { return w.Key.Uses(identity.Agent) })
	}
	l.agentless, err = weir.New(policy, l.store, weir.Options{OnShadow: l.shadowed, OnSettled: l.settled})
	return err
}

// choose selects the decider for the present request, and returns the choice for that decider.
func (l *lane) choose(choice, agentless *target.Choice) *target.Choice {
	l.agentUnknown = false
	if l.agentless == nil || !l.replay.caller.hidesAgent() || !l.asksAgent(choice) {
		return choice
	}
	l.agentUnknown = true
	return agentless
}

// asksAgent reports whether the agent affects what a request is counted by. A limiter in shadow
// that names the agent, and may cover the request, counts as such.
func (l *lane) asksAgent(choice *target.Choice) bool {
	if l.triesAgents && choice.Match.HasTrials() {
		return true
	}
	rules := choice.Match.Limiter()
	if rules == nil {
		return false
	}
	for _, w := range rules.Rows() {
		for _, part := range w.Key {
			if l.replay.isByAgent(part) {
				return true
			}
		}
	}
	return false
}

// isByAgent reports whether a part of a key counts the present request by agent: it names the
// agent, and the caller has none of the sources before it.
func (r *Replay) isByAgent(part weir.Part) bool {
	at := slices.Index(part, identity.Agent)
	if at < 0 {
		return false
	}
	for _, source := range part[:at] {
		if _, ok := r.caller.AppendKey(r.key[:0], source); ok {
			return false
		}
	}
	return true
}

// hidesAgent reports whether the log lacks the agent of the present request: neither a named field
// nor the query has it, and the line has no place for it.
func (c *caller) hidesAgent() bool {
	if c.line.HasAgent {
		return false
	}
	if field := c.sources.mapped[placeAgent]; field >= 0 && len(c.line.Field(field)) > 0 {
		return false
	}
	v, ok := identity.QueryValue(c.query, "agent_id")
	return !ok || v == ""
}

// noteUnknown records that the windows that name the agent could not count a request, and reports
// whether one of them may have refused it.
func (s *limiter) noteUnknown(d *weir.Decision) bool {
	if d.Exempt || d.Cost == 0 || d.Outcome == weir.Denied {
		return false
	}
	found := false
	for i := range s.windows {
		if w := &s.windows[i]; w.byAgent {
			w.unknown++
			found = true
		}
	}
	if !found {
		return false
	}
	s.hidden++
	if d.Allowed {
		s.unknown++
	}
	return d.Allowed
}
