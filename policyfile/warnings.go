package policyfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// warnings returns what is valid in p but surprising, in the file's order.
func (d *reading) warnings(p weir.Policy) []Problem {
	w := &warner{reading: d, policy: p}
	for i := range p.Limiters {
		w.limiter(i)
	}
	w.holes()
	sortProblems(w.found)
	return w.found
}

type warner struct {
	*reading
	policy weir.Policy
	found  []Problem
}

func (w *warner) warn(path, value, hint, format string, args ...any) {
	w.found = append(w.found, w.problem(w.at[path].of(value), path, value, hint, fmt.Sprintf(format, args...)))
}

func (w *warner) limiter(i int) {
	l := w.policy.Limiters[i]
	path := fmt.Sprintf("limiters[%d]", w.policyAt.limiters[i])
	if len(l.Routes) == 0 {
		w.warn(path, "", "add routes, unless a caller of the library names it", "limiter %q has no routes: no HTTP request is ever charged to it", l.Name)
	}
	for j, r := range l.Routes {
		w.route(fmt.Sprintf("%s.routes[%d]", path, w.policyAt.of(i, "routes", j)), r)
	}
	for j, who := range l.Exempt {
		at := fmt.Sprintf("%s.exempt[%d]", path, w.policyAt.of(i, "exempt", j))
		if who.Network.IsValid() && who.Network.Bits() == 0 {
			w.warn(at, who.String(), "mode: shadow counts everybody and refuses nobody, and says what it would have refused",
				"%v is everybody: limiter %q refuses nobody with such an address", who, l.Name)
		}
		w.chosen(at, who.String(), who)
	}
	for j, o := range l.Overrides {
		w.chosen(fmt.Sprintf("%s.overrides[%d]", path, w.policyAt.of(i, "overrides", j)), o.String(), o.For)
	}
	for j, window := range l.Windows {
		at := fmt.Sprintf("%s.windows[%d]", path, w.policyAt.of(i, "windows", j))
		if agentAlone(window.Key) {
			w.warn(at, identity.Agent, "count by ip+agent, or add a window by ip",
				"%q counts by agent alone: the caller chooses its agent, so it can take a new budget, or spend another's", window)
		}
		for _, other := range l.Windows[:j] {
			w.pair(at, other, window)
		}
	}
}

// hostBits is the length of the IPv6 networks within which a host takes whatever address it likes (RFC 4291, section 2.5.4).
const hostBits = 64

// chosen warns of callers that are told apart by what they choose.
func (w *warner) chosen(at, value string, who weir.Who) {
	if !who.Network.IsValid() || who.Network.Addr().Is4() || who.Network.Addr().IsLoopback() || who.Network.Bits() <= hostBits {
		return
	}
	wide := netip.PrefixFrom(who.Network.Addr(), hostBits).Masked()
	w.warn(at, value, "name "+wide.String()+", unless you know who is in it",
		"%v is less than a /%d: whoever has an address of %v can take this one, or leave it for another", who, hostBits, wide)
}

// agentAlone reports whether nothing but the agent, which a caller chooses, splits the count (D17).
func agentAlone(k weir.Key) bool {
	return !slices.ContainsFunc(k, func(p weir.Part) bool { return !slices.Contains(p, identity.Agent) })
}

// pair warns of what two windows of one limiter do to each other. at is the later one's place.
func (w *warner) pair(at string, earlier, later weir.Window) {
	if first, second := earlier.Key[0], later.Key[0]; !slices.Equal(first, second) {
		hint := "begin both keys with the same source, or give each a limiter of its own; on one server it makes no difference"
		if earlier.Key.Uses(identity.Everyone) || later.Key.Uses(identity.Everyone) {
			hint = "on one server it makes no difference; a budget that all share stands in one place, so on a cluster it is the only window of its limiter"
		}
		w.warn(at, later.Key.String(), hint,
			"%q and %q do not begin with the same key source: on a cluster they cannot be charged together, and a cluster store refuses such a policy",
			earlier, later)
	}
	short, long := earlier, later
	if short.Per > long.Per {
		short, long = long, short
	}
	if short.Key.String() != long.Key.String() || short.Limit < long.Limit {
		return
	}
	hint := fmt.Sprintf("remove %q, or change a limit", short)
	if short.Limit < 2*long.Limit-1 { // one long window but for what opened it, and the whole of the next, can fall into a short one
		w.warn(at, later.String(), hint, "%q refuses nothing but around a reset of %q, which is full before it", short, long)
		return
	}
	w.warn(at, later.String(), hint, "%q never refuses anything: %q is full before it", short, long)
}

// methods are those that requests have (RFC 9110, RFC 5789).
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

func (w *warner) route(path string, r weir.Route) {
	if slip := closest(r.Method, methods); r.Method != "" && !slices.Contains(methods, r.Method) && slip != "" {
		w.warn(path, r.Method, fmt.Sprintf("did you mean %q?", slip), "%q is a method that no usual client sends", r.Method)
	}
	for segment := range strings.SplitSeq(r.Path, "/") {
		if strings.HasPrefix(segment, ":") || strings.HasPrefix(segment, "{") || strings.HasPrefix(segment, "<") {
			before, _, _ := strings.Cut(r.Path, segment)
			w.warn(path, segment, fmt.Sprintf("for anything in its place, end the route there: %s*", before),
				"%q is read letter for letter: a route has no parameters", segment)
			return
		}
	}
}

// A hole is a prefix that a route uses and no limiter covers.
type hole struct{ prefix, path, example string }

// holes warns of paths that no limiter covers under a prefix that routes use (D9): a front door that is counted beside a
// side door that is not. Of prefixes within each other the shortest is told. The root is nobody's prefix.
func (w *warner) holes() {
	catching := w.catching()
	var open []hole
	prefixes := make(map[string]bool)
	for i, l := range w.policy.Limiters {
		if l.Mode == weir.Shadow { // which covers nothing
			continue
		}
		for j, r := range l.Routes {
			prefix := r.Path[:strings.LastIndexByte(r.Path, '/')+1]
			if prefix == "/" || r.Method == "" && r.Prefix || isUnder(prefix, catching) {
				continue
			}
			example := prefix + "anything-else"
			if r.Method != "" {
				example = otherMethod(r.Method) + " " + r.Path
			}
			if key := strings.ToLower(prefix); !prefixes[key] {
				prefixes[key] = true
				open = append(open, hole{prefix, fmt.Sprintf("limiters[%d].routes[%d]", w.policyAt.limiters[i], w.policyAt.of(i, "routes", j)), example})
			}
		}
	}
	for _, h := range open {
		if isUnder(h.prefix[:len(h.prefix)-1], prefixes) {
			continue
		}
		w.warn(h.path, "", fmt.Sprintf("a limiter with the route %s* catches them, if they should be limited", h.prefix),
			"requests under %s that no route names pass unlimited and without headers, such as: %s", h.prefix, h.example)
	}
}

// catching returns the prefixes below which every request has a limiter, in lower case.
func (w *warner) catching() map[string]bool {
	all := make(map[string]bool)
	for _, l := range w.policy.Limiters {
		for _, r := range l.Routes {
			if r.Method == "" && r.Prefix && l.Mode == weir.Enforce {
				all[strings.ToLower(r.Path)] = true
			}
		}
	}
	return all
}

// isUnder reports whether path begins with one of prefixes.
func isUnder(path string, prefixes map[string]bool) bool {
	path = strings.ToLower(path)
	for i := range len(path) + 1 {
		if prefixes[path[:i]] {
			return true
		}
	}
	return false
}

func otherMethod(m string) string {
	if m == "GET" {
		return "POST"
	}
	return "GET"
}
