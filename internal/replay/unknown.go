package replay

import (
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/target"
)

// Requests whose agent the log does not tell.
//
// A window that counts by agent cannot be judged for such a request: to count all of them by one
// agent, an empty one, refuses requests that the server would admit, and to count each by an agent
// of its own admits what it would refuse. So they are not counted in such windows at all, and these
// are unknown. A second decider judges them, with the same policy but for the windows that name the
// agent. It counts in the same store, under the same keys, so that the other windows are as exact
// as ever.

// withoutAgent returns a policy without the windows that name the agent; ok is false if there are
// none. A limiter that has no others gets one that refuses nothing.
func withoutAgent(p weir.Policy) (out weir.Policy, ok bool) {
	out = p
	out.Limiters = slices.Clone(p.Limiters)
	for i := range out.Limiters {
		l := &out.Limiters[i]
		kept := slices.DeleteFunc(slices.Clone(l.Windows), func(w weir.Window) bool { return w.Key.Uses(identity.Agent) })
		if len(kept) == len(l.Windows) {
			continue
		}
		ok = true
		if len(kept) == 0 {
			kept = []weir.Window{{Limit: weir.MaxLimit, Per: time.Second, Key: weir.Key{{identity.Everyone}}}}
		}
		l.Windows = kept
		l.Overrides = slices.DeleteFunc(slices.Clone(l.Overrides), func(o weir.Override) bool {
			return !slices.ContainsFunc(kept, func(w weir.Window) bool { return o.Changes(&w) })
		})
	}
	return out, ok
}

// openBlind makes the decider of requests whose agent is unknown, if any window counts by it.
func (l *lane) openBlind() (err error) {
	policy, ok := withoutAgent(l.policy)
	if !ok {
		return nil
	}
	for i := range l.policy.Limiters {
		rules := &l.policy.Limiters[i]
		l.triesAgents = l.triesAgents || rules.Mode == weir.Shadow && slices.ContainsFunc(rules.Windows, func(w weir.Window) bool { return w.Key.Uses(identity.Agent) })
	}
	l.blind, err = weir.New(policy, l.store, weir.Options{OnShadow: l.shadowed})
	return err
}

// sees has the lane decide the present request, whose choices are given, by the decider that is
// meant for it, and returns the choice of that one.
func (l *lane) sees(choice, blind *target.Choice) *target.Choice {
	l.unsure = false
	if l.blind == nil || !l.replay.caller.hidesAgent() || !l.asksAgent(choice) {
		return choice
	}
	l.unsure = true
	return blind
}

// asksAgent reports whether the agent decides what a request is counted by. If a limiter in shadow
// names the agent and may cover the request, it is taken to.
func (l *lane) asksAgent(choice *target.Choice) bool {
	if l.triesAgents && choice.Match.Beside() {
		return true
	}
	rules := choice.Match.Limiter()
	if rules == nil {
		return false
	}
	for i := range rules.Windows {
		for _, part := range rules.Windows[i].Key {
			if l.replay.isByAgent(part) {
				return true
			}
		}
	}
	return false
}

// isByAgent reports whether a part of a key counts the present request by agent: it names the
// agent, and the caller has nothing of what stands before it.
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

// hidesAgent reports whether the log does not tell the agent of the present request: no field that
// was named has it, the query does not, and the line has no place for it.
func (c *caller) hidesAgent() bool {
	if c.line.TellsAgent {
		return false
	}
	if field := c.sources.mapped[placeAgent]; field >= 0 && len(c.line.Field(field)) > 0 {
		return false
	}
	v, ok := c.Query("agent_id")
	return !ok || v == ""
}

// noteUnknown notes that a request could not be counted in the windows that name the agent, and
// reports whether one of them may have refused it.
func (s *limiter) noteUnknown(d *weir.Decision) bool {
	if d.Exempt || d.Cost == 0 {
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
