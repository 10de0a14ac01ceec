package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// warnings returns what is valid in p but surprising, in the order of the file.
func (d *reading) warnings(p weir.Policy) []Problem {
	w := &warner{reading: d, policy: p}
	for i := range p.Limiters {
		w.limiter(i)
	}
	w.holes()
	w.unused()
	w.languages()
	sortProblems(w.found)
	return w.found
}

// unused warns of messages that no response has. One with the name of a built-in message replaces
// that, which limiters use without naming it.
func (w *warner) unused() {
	used := slices.Clone(w.reader.Messages)
	a := &w.policy.Answers
	used = append(used, a.Refused.Message, a.Unauthenticated.Message, a.Unavailable.Message)
	used = slices.AppendSeq(used, maps.Values(a.Unauthenticated.Credentials))
	for _, l := range w.policy.Limiters {
		used = append(used, l.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(w.policy.Messages)) {
		if !slices.Contains(used, name) {
			w.warn("messages."+name, "", "name it in a limiter's message or under answers, or remove it", "message %q is used by no limiter and no answer", name)
		}
	}
}

// languages warns of texts whose tag names no language: no caller asks for it. Words of up to eight
// letters have the form of a tag, but no language has more than three (RFC 5646, section 2.2.1).
func (w *warner) languages() {
	for _, name := range slices.Sorted(maps.Keys(w.policy.Messages)) {
		for _, tag := range slices.Sorted(maps.Keys(w.policy.Messages[name])) {
			if _, err := language.Parse(tag); err != nil {
				w.warn(within(within("messages", name), tag), tag, "a language has two or three letters, such as: de, pt-BR or zh-Hant",
					"%q is no registered language: no caller gets this text of message %q", excerpt(tag), name)
			}
		}
	}
}

type warner struct {
	*reading
	policy weir.Policy
	found  []Problem
	index  int // of the limiter
}

func (w *warner) warn(path, value, hint, format string, args ...any) {
	w.found = append(w.found, w.problem(w.at[path].of(value), path, value, hint, fmt.Sprintf(format, args...)))
}

func (w *warner) limiter(i int) {
	w.index = i
	l := w.policy.Limiters[i]
	path := fmt.Sprintf("limiters[%d]", w.policyAt.limiters[i])
	if len(l.Routes) == 0 {
		w.warn(path, "", "add routes, unless code that uses the library names this limiter", "limiter %q has no routes: no HTTP request is charged to it", l.Name)
	}
	for j, r := range l.Routes {
		w.route(fmt.Sprintf("%s.routes[%d]", path, w.policyAt.of(i, "routes", j)), r)
	}
	if l.Answers == weir.AnswerUsage {
		w.usageRoutes(path, i, l)
	}
	for j, who := range l.Deny {
		at := fmt.Sprintf("%s.deny[%d]", path, w.policyAt.of(i, "deny", j))
		if every := everyAddress(who); every != "" {
			w.warn(at, who.String(), "name the networks that are meant", "%v is %s: limiter %q answers all of them 403", who, every, l.Name)
		}
		w.narrowNetwork(at, who.String(), who)
	}
	for j, who := range l.Exempt {
		at := fmt.Sprintf("%s.exempt[%d]", path, w.policyAt.of(i, "exempt", j))
		if every := everyAddress(who); every != "" {
			w.warn(at, who.String(), "mode: shadow counts every caller, refuses none, and reports what it would have refused",
				"%v is %s: limiter %q never refuses such a caller", who, every, l.Name)
		}
		w.narrowNetwork(at, who.String(), who)
	}
	for j, o := range l.Overrides {
		w.narrowNetwork(fmt.Sprintf("%s.overrides[%d]", path, w.policyAt.of(i, "overrides", j)), o.String(), o.For)
	}
	if l.Penalty != (weir.Penalty{}) {
		w.penalty(path, l)
	}
	w.claim(path+".plans.by", l.Plans.By)
	w.settling(path, &l)
	w.windows(path, &l)
	w.idle(path, &l)
}

// idle warns of fields that have no effect because of the windows that the limiter has.
func (w *warner) idle(path string, l *weir.Limiter) {
	if len(l.Notify) > 0 && len(l.Windows) == 0 {
		w.warn(path+".notify", "", "leave it out, or add a window", "notify has no effect: limiter %q has no window, and requests in flight make no event", l.Name)
	}
	if fixed := func(x weir.Window) bool { return x.Calendar.Unit == 0 }; l.Align == weir.AlignClock && !slices.ContainsFunc(l.Windows, fixed) {
		w.warn(path+".align", "", "leave it out; a calendar window ends by the clock without it", "align has no effect: limiter %q has no window of a fixed length", l.Name)
	}
}

// windows warns of windows, and of a limit in flight, whose keys or limits are surprising.
func (w *warner) windows(path string, l *weir.Limiter) {
	bounded, rows := w.bounded(l), l.Rows()
	for j, window := range rows {
		at := path + ".in_flight"
		if !window.InFlight {
			at = fmt.Sprintf("%s.windows[%d]", path, w.policyAt.of(w.index, "windows", j))
		}
		if source := w.chosenAlone(window.Key); source != "" && !bounded {
			w.warn(at, source, "count by ip+"+source+", or add a window by ip",
				"%q is divided by %s, and no other window bounds the caller: it chooses the value, so it can take a new budget, or spend another's", window, source)
		} else if source := w.invented(l, window.Key); source != "" && !bounded {
			w.warn(at, source, "add a window by ip, or by what else does not change with "+source,
				"%q has a budget for each %s of a caller, which chooses the value, and no other window bounds the caller", window, source)
		}
		for _, source := range slices.Concat(window.Key...) {
			w.claim(at, source)
		}
		if source := credentialAlone(window.Key); source != "" && l.Requires == "" {
			needed := weir.SourceOf(source).Credential()
			w.warn(at, source, "add \"requires: "+needed+"\" to answer them 401, or write \"by "+source+" or ip\" if they are meant to be served",
				"%q lets in callers without a %s, and counts them by address", window, needed)
		}
		if host := onlyHost(l); host != "" && window.Key.Uses(identity.Host) {
			w.warn(at, identity.Host, "leave host out, count by everyone if that is meant, or name the other hosts in a route",
				"%q counts by host, and all routes of limiter %q are for %s: it divides nothing", window, l.Name, host)
		}
		for _, other := range rows[:j] {
			w.pair(at, l, other, window)
		}
	}
}

// claim warns of a claim whose name has a dot that leads to no member.
func (w *warner) claim(at, source string) {
	base, name := weir.SplitSource(source)
	if base != identity.Claim || !slices.Contains(strings.Split(name, "."), "") {
		return
	}
	hint := "name a claim, such as: claim:org.id"
	if names := strings.FieldsFunc(name, func(r rune) bool { return r == '.' }); len(names) > 0 {
		hint = "write claim:" + strings.Join(names, ".")
	}
	w.warn(at, source, hint, "%s has an empty name beside a dot: unless sessions have a claim of exactly that name, no caller has a value of it", source)
}

// onlyHost returns the host that all routes of a limiter name; "" if there is none.
func onlyHost(l *weir.Limiter) string {
	if len(l.Routes) == 0 || strings.HasPrefix(l.Routes[0].Host, "*") ||
		slices.ContainsFunc(l.Routes, func(r weir.Route) bool { return r.Host != l.Routes[0].Host }) {
		return ""
	}
	return l.Routes[0].Host
}

// usageRoutes warns of routes that a limiter which answers usage can only answer 405.
func (w *warner) usageRoutes(path string, i int, l weir.Limiter) {
	for j, r := range l.Routes {
		if len(w.policy.Limiters) == 1 && r.Host == "" && r.Prefix && r.Path == "/" {
			w.warn(fmt.Sprintf("%s.routes[%d]", path, w.policyAt.of(i, "routes", j)), r.String(), "write the path at which callers ask, such as: GET /usage, and give your API a limiter of its own",
				"%q: limiter %q is the only one, and answers usage to every request: nothing reaches the backend", r, l.Name)
		}
		if r.Method != "" && r.Method != "GET" && r.Method != "HEAD" {
			w.warn(fmt.Sprintf("%s.routes[%d]", path, w.policyAt.of(i, "routes", j)), r.Method, "write "+weir.Route{Method: "GET", Host: r.Host, Path: r.Path, Prefix: r.Prefix}.String(),
				"%q: limiter %q answers usage, and only to GET and HEAD; these requests are answered 405", r, l.Name)
		}
	}
}

// everyAddress returns which addresses who has all of, in words: those of IPv4, of IPv6 or of both.
// It returns "" if there are none.
func everyAddress(who weir.Who) string {
	var v4, v6 bool
	if s, ok := who.Networks.(interface{ HasAll() (v4, v6 bool) }); ok {
		v4, v6 = s.HasAll()
	} else if who.Network.IsValid() && who.Network.Bits() == 0 {
		v4 = who.Network.Addr().Is4()
		v6 = !v4
	}
	switch {
	case v4 && v6:
		return "every address"
	case v4:
		return "every IPv4 address"
	case v6:
		return "every IPv6 address"
	}
	return ""
}

// hostBits is the prefix length of the IPv6 networks in which a host can use any address (RFC 4291,
// section 2.5.4).
const hostBits = 64

// narrowNetwork warns of IPv6 networks within a /64, since a host chooses its address there.
func (w *warner) narrowNetwork(at, value string, who weir.Who) {
	if !who.Network.IsValid() || who.Network.Addr().Is4() || who.Network.Addr().IsLoopback() || who.Network.Bits() <= hostBits {
		return
	}
	wide := netip.PrefixFrom(who.Network.Addr(), hostBits).Masked()
	w.warn(at, value, "use "+wide.String()+", unless you control every host in it",
		"%v is narrower than a /%d: any host in %v can take this address, or switch to another", who, hostBits, wide)
}

// credentialAlone returns the first source of a key if all its sources are verified credentials;
// else it returns "".
func credentialAlone(k weir.Key) string {
	for _, part := range k {
		for _, source := range part {
			if weir.SourceOf(source).Kind != weir.Credential {
				return ""
			}
		}
	}
	return k[0][0]
}

// invented returns the first source of a key whose values a caller can make up without an end, or
// "". Hosts have an end if every route of the limiter names one.
func (w *warner) invented(l *weir.Limiter, k weir.Key) string {
	named := len(l.Routes) > 0 && !slices.ContainsFunc(l.Routes, func(r weir.Route) bool { return r.Host == "" || strings.HasPrefix(r.Host, "*") })
	invents := func(source string) bool { return w.reader.chosen(source) && (source != identity.Host || !named) }
	for _, part := range k {
		if i := slices.IndexFunc(part, invents); i >= 0 {
			return part[i]
		}
	}
	return ""
}

// chosenAlone returns the first source of a key that the caller chooses, if every part of the key
// allows such a source; else it returns "". What a caller chooses may only divide the budget of
// another source (D17).
func (w *warner) chosenAlone(k weir.Key) string {
	first := ""
	for _, part := range k {
		i := slices.IndexFunc(part, w.reader.chosen)
		if i < 0 {
			return ""
		}
		if first == "" {
			first = part[i]
		}
	}
	return first
}

// bounded reports whether a limiter has a window that a caller cannot evade by choosing a value. A
// window by ip+agent is none: the caller has a budget of it for each agent that it invents.
func (w *warner) bounded(l *weir.Limiter) bool {
	chooses := func(p weir.Part) bool { return slices.ContainsFunc(p, w.reader.chosen) }
	return slices.ContainsFunc(l.Windows, func(x weir.Window) bool { return !slices.ContainsFunc(x.Key, chooses) })
}

// pair warns if two windows of one limiter conflict, or if one of them has no effect. at is the
// path of the later window.
func (w *warner) pair(at string, l *weir.Limiter, earlier, later weir.Window) {
	if first, second := earlier.Key[0], later.Key[0]; !slices.Equal(first, second) {
		hint := "begin both keys with the same source, or put each window in a limiter of its own; on one server it makes no difference"
		if earlier.Key.Uses(identity.Everyone) || later.Key.Uses(identity.Everyone) {
			hint = "on one server it makes no difference; on a cluster, a budget that all callers share must be the only window of its limiter"
		}
		w.warn(at, later.Key.String(), hint,
			"%q and %q do not begin with the same key source: on a cluster they cannot be charged together, and a cluster store refuses such a policy",
			earlier, later)
	}
	if later.InFlight || earlier.Requests != later.Requests {
		return // they do not count the same
	}
	short, long := earlier, later
	if short.Per > long.Per {
		short, long = long, short
	}
	if short.Key.String() != long.Key.String() || short.Limit < long.Limit || hasOtherLimits(l, &short, &long) {
		return
	}
	hint := fmt.Sprintf("remove %q, or change a limit", short)
	// All but one unit of a long window, and all of the next, can fall into one short window. If
	// the long window ends by the clock, no earlier request has to open it.
	most := 2*long.Limit - 1
	if l.Align == weir.AlignClock || long.Calendar.Unit != 0 {
		most++
	}
	if short.Limit < most {
		w.warn(at, later.String(), hint, "%q refuses requests only around a reset of %q, which fills up first", short, long)
		return
	}
	w.warn(at, later.String(), hint, "%q never refuses a request: %q fills up first", short, long)
}

// hasOtherLimits reports whether some callers have another limit in one of two windows: that window
// may have an effect for them alone.
func hasOtherLimits(l *weir.Limiter, a, b *weir.Window) bool {
	return l.Plans.Changes(a) || l.Plans.Changes(b) ||
		slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.Changes(a) || o.Changes(b) })
}

// methods are those of the IANA registry (RFC 9110, section 16.1), without PRI, and PURGE, which
// caches have.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", // WebDAV
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "LABEL", "LINK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKREDIRECTREF", "MKWORKSPACE",
	"ORDERPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL", "PURGE",
}

func (w *warner) route(path string, r weir.Route) {
	if slip := closest(r.Method, methods); r.Method != "" && !slices.Contains(methods, r.Method) && slip != "" {
		w.warn(path, r.Method, fmt.Sprintf("did you mean %q?", slip), "%q is not a standard HTTP method", r.Method)
	}
	if r.Method == "TRACE" || r.Method == "CONNECT" {
		w.warn(path, r.Method, "remove the route", "\"weir serve\" answers %s with 405 and never forwards it", r.Method)
	}
	for segment := range strings.SplitSeq(r.Path, "/") {
		if strings.HasPrefix(segment, ":") || strings.HasPrefix(segment, "<") {
			before, _, _ := strings.Cut(r.Path, segment)
			w.warn(path, segment, fmt.Sprintf("to match any value there, write a parameter, such as: %s{%s}", weir.Route{Host: r.Host, Path: before}, parameterLike(segment)),
				"%q is matched literally: a parameter is written in braces", segment)
			return
		}
	}
}

// parameterLike returns a parameter's name like a segment that other products take for one.
func parameterLike(segment string) string {
	if name := nameLike(segment); wellFormed.MatchString(name) {
		return name
	}
	return "id"
}
