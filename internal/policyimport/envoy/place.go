package envoy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/rls/config"
)

// A place is a route that descriptors name, with the rules that Envoy counts its requests by.
type place struct {
	route weir.Route
	from  *config.Node // the first descriptor
	rules []rule       // those of this route come first
}

// read adds the place of a descriptor, and its rule.
func (t *translation) read(d descriptor) {
	var keys []string
	for _, e := range d.entries {
		keys = append(keys, e.Key)
	}
	if !slices.ContainsFunc(t.chains, func(c []string) bool { return slices.Equal(c, keys) }) {
		t.chains = append(t.chains, keys)
	}
	if d.isFree() {
		t.readFree(d)
		return
	}
	r, ok := t.rule(d.entries, d.node)
	if !ok || !t.place(r.route, d) {
		return
	}
	if t.find(keys, r.route) != d.node {
		t.note(d.node, "%s never counts: another value with a star is listed before it, and matches all that it does", last(d.entries))
		return
	}
	t.rules[d.node] = r
	t.noteWithout(r)
}

// noteWithout notes that requests without what a rule counts by are limited here.
func (t *translation) noteWithout(r rule) {
	for _, part := range r.window.Key {
		isThere := slices.ContainsFunc(part, func(name string) bool {
			s, _ := weir.FindSource(weir.Sources(), name)
			return !s.Optional || s.Name == Host
		})
		if !isThere {
			t.note(r.from, "a request without %v: Envoy makes no descriptor of it, so nothing limits it; %v counts it by its address. No policy leaves it out: 'weir serve --rls' counts as Envoy does", part, r.window)
		}
	}
}

// readFree adds the place of a descriptor that nothing counts.
func (t *translation) readFree(d descriptor) {
	p := spelling{prefix: true, path: "/"}
	for _, e := range d.entries {
		meaning := t.meanings[e.Key]
		isSource := meaning != "" && meaning != Path && meaning != Method && meaning != Host
		if e.Value != "" && isSource {
			t.values = append(t.values, d)
			return
		}
		e.Shared = true // there is no count that values could share
		if problem := p.add(e, meaning); problem != "" {
			if d.node.Rule != nil {
				t.lost(d.node, "%s", problem)
			}
			return
		}
	}
	if route, err := weir.ParseRoute(p.String()); err == nil {
		t.place(route, d)
	} else if d.node.Rule != nil {
		t.lost(d.node, "%s: %v", last(d.entries), problemOf(err))
	}
}

// place adds a place for a route. It is false if another route covers exactly the same requests.
func (t *translation) place(route weir.Route, d descriptor) bool {
	i := slices.IndexFunc(t.places, func(p *place) bool { return folded(p.route) == folded(route) })
	if i < 0 {
		t.places = append(t.places, &place{route: route, from: d.node})
		if route.Path == "/" && !route.Prefix { // by itself it covers all paths
			route.Prefix = true
			return t.place(route, d)
		}
		return true
	}
	if other := t.places[i]; other.route != route {
		t.lost(d.node, "%s is the same route as %v of line %d: letter case and a slash at the end make no difference to a route", last(d.entries), other.route, other.from.Line)
		return false
	}
	return true
}

// folded returns a route as a policy compares it.
func folded(r weir.Route) weir.Route {
	if r.Path = strings.ToLower(r.Path); !r.Prefix {
		r.Path = strings.TrimRight(r.Path, "/")
	}
	return r
}

// cross adds the places that two others have in common, such as POST /a of POST /* and /a.
func (t *translation) cross() {
	for i := 0; i < len(t.places) && len(t.places) < 1000; i++ {
		for _, q := range t.places[:i] {
			p := t.places[i]
			route, isPath := p.route, covers(weir.Route{Path: q.route.Path, Prefix: q.route.Prefix}, weir.Route{Path: p.route.Path, Prefix: p.route.Prefix})
			if !isPath {
				route.Path, route.Prefix = q.route.Path, q.route.Prefix
				isPath = covers(weir.Route{Path: p.route.Path, Prefix: p.route.Prefix}, weir.Route{Path: route.Path, Prefix: route.Prefix})
			}
			route.Host, route.Method = cmp.Or(p.route.Host, q.route.Host), cmp.Or(p.route.Method, q.route.Method)
			isNew := !slices.ContainsFunc(t.places, func(o *place) bool { return folded(o.route) == folded(route) })
			if isPath && isNew && covers(p.route, route) && covers(q.route, route) {
				t.places = append(t.places, &place{route: route, from: p.from})
			}
		}
	}
}

// other is a text that no value of the configuration has.
const other = "\x00"

// find returns the descriptor that Envoy counts a request of a route in, of those with these keys:
// for each key the exact value, else the first value with stars that matches, else the key alone.
func (t *translation) find(keys []string, route weir.Route) *config.Node {
	n := t.root
	for _, key := range keys {
		value := other
		switch t.meanings[key] {
		case Path:
			if value = route.Path; route.Prefix {
				value += other
			}
		case Method:
			value = cmp.Or(route.Method, other)
		case Host:
			value = cmp.Or(route.Host, other)
		}
		if n, _ = n.Step(key, value); n == nil {
			return nil
		}
	}
	return n
}

// limit makes the limiters of a place. One limiter covers a request, and Envoy counts it in one
// descriptor of each list of keys, so a limiter has the windows of all of them.
func (t *translation) limit(p *place) {
	p.rules = t.counted(p.route)
	var outer []rule
	if around := t.around(p.route); around != nil {
		outer = t.counted(around.route)
	}
	enforced, wider := ofMode(p.rules, false), ofMode(outer, false)
	hides := p.isOwn(enforced) || !sameRules(enforced, wider)
	if hides || p.isOwn(ofMode(p.rules, true)) {
		t.guard(p)
		t.noteQuery(p)
	}
	switch {
	case hides && len(enforced) > 0:
		t.add(p.route, enforced)
	case hides:
		t.open = append(t.open, p.route)
		t.note(p.from, "%v: Envoy does not limit this, so it has a limit that nothing reaches, whose fields its answers have", p.route)
	}
	shadow, wider := ofMode(p.rules, true), ofMode(outer, true)
	switch {
	case len(shadow) == 0:
	case p.isOwn(shadow) || !sameRules(shadow, wider):
		t.add(p.route, shadow)
	case hides: // an enforced limiter hides what is tried out on wider routes
		t.joining = append(t.joining, joining{p.route, shadow})
	}
}

// guard keeps what is below a path apart from it: Envoy compares the whole path, and a route
// without a star covers what is below it, too, unless another route does.
func (t *translation) guard(p *place) {
	below := p.route
	below.Path, below.Prefix = strings.TrimRight(below.Path, "/")+"/", true
	if p.route.Prefix || below.Path == "/" || slices.ContainsFunc(t.places, func(o *place) bool { return folded(o.route) == folded(below) }) {
		return
	}
	enforced, shadow := ofMode(t.counted(below), false), ofMode(t.counted(below), true)
	var wide []rule // the rules that count what is below, too
	if len(enforced) > 0 {
		t.joining = append(t.joining, joining{below, enforced})
		if path := strings.TrimRight(p.route.Path, "/"); len(ofMode(p.rules, false)) == 0 {
			t.note(p.from, "%v also covers %s/, %s;x and what begins with %s., which Envoy limits: they reach the same endpoint of some backends", p.route, path, path, path)
		}
	} else {
		wide = ofMode(p.rules, false)
	}
	if len(shadow) > 0 {
		t.joining = append(t.joining, joining{below, shadow})
	} else if len(enforced) == 0 { // an enforced limiter hides those in mode shadow
		wide = slices.Concat(wide, ofMode(p.rules, true))
	}
	for _, r := range wide {
		t.note(r.from, "%v also covers what begins with %s or %s., which Envoy does not count by %v", p.route, below.Path, strings.TrimRight(p.route.Path, "/"), r.window)
	}
}

// noteQuery notes that a route covers a path with any query, where Envoy's :path has the query. A
// value with a star at its end matches a query, too.
func (t *translation) noteQuery(p *place) {
	path := p.route.Path
	if p.route.Prefix || t.queries[path] {
		return
	}
	t.queries[path] = true
	t.note(p.from, "%s: Envoy's :path has the query, so a descriptor made of it does not match %s?x; the route %v covers that, too", path, path, p.route)
}

// isOwn reports whether any of the rules is for just the route of a place.
func (p *place) isOwn(rules []rule) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.route == p.route })
}

// A joining is a route with the rules of a wider one, whose limiter another one would hide there.
type joining struct {
	route weir.Route
	rules []rule
}

// join adds a route to the limiter that has its rules, so that they keep one count.
func (t *translation) join(j joining) {
	i := slices.IndexFunc(t.limiters, func(l *limiter) bool { return sameRules(l.rules, j.rules) })
	if i < 0 {
		t.add(j.route, j.rules)
		return
	}
	t.limiters[i].Routes = append(t.limiters[i].Routes, j.route)
}

// counted returns the rules that Envoy counts a request of a route by.
func (t *translation) counted(route weir.Route) (all []rule) {
	for _, keys := range t.chains {
		if r, ok := t.rules[t.find(keys, route)]; ok {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b rule) int {
		return cmp.Or(-cmp.Compare(b2i(a.route == route), b2i(b.route == route)), cmp.Compare(a.from.Line, b.from.Line))
	})
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func ofMode(all []rule, isShadow bool) (some []rule) {
	for _, r := range all {
		if r.from.Rule.ShadowMode == isShadow {
			some = append(some, r)
		}
	}
	return some
}

func sameRules(a, b []rule) bool {
	return slices.EqualFunc(byLine(a), byLine(b), func(a, b rule) bool { return a.from == b.from })
}

func byLine(all []rule) []rule {
	return slices.SortedFunc(slices.Values(all), func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.from.File, b.from.File), cmp.Compare(a.from.Line, b.from.Line), slices.Compare(a.from.Rule.Path, b.from.Rule.Path))
	})
}

// around returns the place whose route would cover that of another one; nil: none.
func (t *translation) around(route weir.Route) (found *place) {
	for _, p := range t.places {
		if p.route != route && covers(p.route, route) && (found == nil || specific(p.route, found.route) > 0) {
			found = p
		}
	}
	return found
}

// covers reports whether every request of route b is one of a.
func covers(a, b weir.Route) bool {
	x, y := folded(a), folded(b)
	path := x.Path == y.Path && (x.Prefix || !y.Prefix) || x.Prefix && strings.HasPrefix(y.Path, x.Path) ||
		!x.Prefix && strings.HasPrefix(y.Path, x.Path+"/")
	return path && (a.Host == "" || a.Host == b.Host) && (a.Method == "" || a.Method == b.Method)
}

// specific compares routes by which of them wins.
func specific(a, b weir.Route) int {
	return cmp.Or(cmp.Compare(len(a.Host), len(b.Host)), cmp.Compare(len(a.Path), len(b.Path)), cmp.Compare(b2i(b.Prefix), b2i(a.Prefix)), cmp.Compare(len(a.Method), len(b.Method)))
}

// add adds a limiter with the windows of rules.
func (t *translation) add(route weir.Route, rules []rule) {
	text := route.String()
	if route.Path == "/" && !route.Prefix {
		text += "root"
	}
	l := &limiter{Limiter: weir.Limiter{Name: t.names.Of(text, "everything"), Routes: []weir.Route{route}}, rules: rules}
	if rules[0].from.Rule.ShadowMode {
		l.Mode = weir.Shadow
	}
	for _, r := range rules {
		if t.put(l, r) && r.route != route {
			t.note(r.from, "%v counts for limiter %s by itself: with Envoy, its requests and those of %v have one count", r.window, l.Name, r.route)
		}
	}
	t.limiters = append(t.limiters, l)
}

// exempt exempts the addresses of a descriptor that nothing counts, if that is what a policy does.
func (t *translation) exempt(d descriptor) {
	wide := t.root
	for _, e := range d.entries {
		value := e.Value
		if meaning := t.meanings[e.Key]; value == "" || meaning != Path && meaning != Method && meaning != Host {
			value = other
		}
		if wide, _ = wide.Step(e.Key, value); wide == nil {
			return
		}
	}
	if wide.Rule == nil || wide.Rule.Unlimited {
		return // nothing counts other values either
	}
	e := d.entries[0]
	network, err := netip.ParsePrefix(e.Value)
	if a, problem := netip.ParseAddr(e.Value); problem == nil {
		network, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	isAlone := len(d.entries) == 1
	var counting []*limiter
	for _, l := range t.limiters {
		if slices.ContainsFunc(l.rules, func(r rule) bool { return r.from == wide }) {
			counting = append(counting, l)
			isAlone = isAlone && len(l.rules) == 1
		}
	}
	if err != nil || !isAlone || t.meanings[e.Key] != "ip" {
		t.lost(d.node, "%s has no limit of its own, and counts as other values: a policy exempts callers from all windows of a limiter, by address", last(d.entries))
		return
	}
	for _, l := range counting {
		l.Exempt = append(l.Exempt, weir.Who{Network: network.Masked()})
	}
}
