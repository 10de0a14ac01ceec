package main

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// The most requests that a policy lets pass, worst case: what a backend must be able to bear, or a bill can come to.

// A party is whose requests are added up: all those that have one value of a key source, and anything else they like.
type party struct {
	name   string
	source string // what all of them have in common; empty: nothing
}

// parties are those that exposure is told for. An address is one as it is counted: IPv6 by its network (D12).
var parties = []party{
	{"one address", identity.IP},
	{"one session", identity.Session},
	{"one token", identity.Token},
	{"everybody", ""},
}

// bounds reports whether all requests of the party are counted together by a key.
func (p party) bounds(k weir.Key) bool {
	return !slices.ContainsFunc(k, func(part weir.Part) bool { return !p.fixes(part) })
}

// fixes reports whether a part has one value for all requests of the party: it goes by what they have in common, or by what
// all callers share. Addresses can be changed, agents invented, and there may be any number of sessions and tokens, so what
// could go by another of those is not fixed. A request carries one credential: whoever has a session sends no token.
func (p party) fixes(part weir.Part) bool {
	for _, source := range part {
		switch {
		case source == p.source || source == identity.Everyone:
			return true
		case credential(source) && credential(p.source):
			continue
		default:
			return false
		}
	}
	return p.source == identity.IP // what stands in for a credential that is missing (D16)
}

// served reports whether a limiter passes requests of the party on, where credentials are verified: one that counts by
// another credential answers 401.
func (p party) served(l *weir.Limiter) bool {
	if !credential(p.source) {
		return true
	}
	for _, w := range l.Windows {
		for _, part := range w.Key {
			if slices.ContainsFunc(part, credential) && !slices.Contains(part, p.source) {
				return false
			}
		}
	}
	return true
}

func credential(source string) bool { return source == identity.Session || source == identity.Token }

// A most is how many requests can pass in some span.
type most struct {
	Requests int64 `json:"requests"`
	Exact    bool  `json:"exact"` // whether a caller can reach it; otherwise never more, and perhaps fewer
}

// exposure returns the most requests of g that can pass in any span of that many seconds, on the clock that counts; nil where
// no window bounds them.
func exposure(l *weir.Limiter, g party, span int64) *most {
	if !g.served(l) {
		return &most{0, true}
	}
	if l.Mode == weir.Shadow || len(l.Exempt) > 0 {
		return nil
	}
	var bounding []weir.Window
	var tightest weir.Window
	lowest := int64(-1)
	raised := false
	for _, w := range l.Windows {
		if !g.bounds(w.Key) {
			continue
		}
		if most := mostOverridden(l, w); most > w.Limit {
			w.Limit, raised = most, true
		}
		bounding = append(bounding, w)
		if n := mostIn(w, max(l.Cost, 1), span); lowest < 0 || n < lowest {
			lowest, tightest = n, w
		}
	}
	if lowest < 0 {
		return nil
	}
	return &most{lowest, !raised && attained(bounding, tightest, max(l.Cost, 1), span)}
}

// mostOverridden returns the highest limit that an override gives anybody in a window; 0 where there is none.
func mostOverridden(l *weir.Limiter, w weir.Window) (limit int64) {
	for _, o := range l.Overrides {
		if o.Changes(&w) {
			limit = max(limit, o.Limit)
		}
	}
	return limit
}

// mostIn returns the most requests of that cost that one window lets pass in any span of that many seconds.
//
// A window lets n = limit/cost through, starts at the whole second of its first request and ends P seconds later. Within one
// real span of T seconds lie parts of T+1 whole seconds, so if P divides T, T/P+1 windows can all be spent in it: the first
// from late in its first second on, the last early in the T'th second after. If P does not, one more can be touched than can
// begin within the span; that one had to be opened before, with a request that is not in it.
func mostIn(w weir.Window, cost, span int64) int64 {
	n, per := w.Limit/cost, seconds(w)
	if span%per == 0 {
		return n * (span/per + 1)
	}
	return n*(span/per+2) - 1
}

func seconds(w weir.Window) int64 { return int64(w.Per.Seconds()) }

// A burst is requests that are sent at one second.
type burst struct{ at, requests int64 }

// pattern returns bursts that make the most of one window in a span of that many seconds; where the first window has to be
// opened before the span, a request before it.
func pattern(w weir.Window, cost, span int64) []burst {
	n, per := w.Limit/cost, seconds(w)
	start := 2 * int64(weir.MaxPer.Seconds()) // any second with room before it
	var all []burst
	first := start
	if span%per != 0 {
		all = append(all, burst{start + 1 - per, 1}, burst{start, n - 1})
		first = start + 1
	}
	for at := first; at <= start+span; at += per {
		all = append(all, burst{at, n})
	}
	return all
}

// attained reports whether the pattern that makes the most of the tightest window gets past all of them, which proves that
// the figure can be reached. It helps to open a longer window well before, so that it ends within the span: that is tried at
// up to about a hundred places for each window. Where all that fails, another pattern still might pass.
func attained(windows []weir.Window, tightest weir.Window, cost, span int64) bool {
	bursts := pattern(tightest, cost, span)
	if pass(windows, cost, bursts) {
		return true
	}
	for _, w := range windows {
		for i := 0; i < len(bursts); i += 1 + len(bursts)/100 {
			opener := burst{bursts[i].at - seconds(w), 1}
			if opener.at < bursts[0].at && pass(windows, cost, append([]burst{opener}, bursts...)) {
				return true
			}
		}
	}
	return false
}

// pass reports whether windows that nobody has used let all bursts through.
func pass(windows []weir.Window, cost int64, bursts []burst) bool {
	var used [weir.MaxWindows]weir.Used
	for _, b := range bursts {
		for i, w := range windows {
			u := used[i].At(b.at, seconds(w))
			if !u.Fits(b.requests*cost, w.Limit) {
				return false
			}
			used[i] = u.Spend(b.requests*cost, b.at, seconds(w))
		}
	}
	return true
}
