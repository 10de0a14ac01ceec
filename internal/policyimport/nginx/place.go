package nginx

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/policyfile"
)

// A place is a server or a location: a path, or all that begin so, with the limits that it has in
// nginx, its own or inherited.
type place struct {
	path    string
	exact   bool // location =
	firm    bool // no regular expression comes before it
	returns bool // a return answers it
	scope   scope
	at      *crossplane.Directive
	block   *crossplane.Directive // the server or location; nil: the http block
	// inherits is what the block would inherit if it had no limits of its own.
	inherits scope
}

// String returns the path as routes spell it.
func (p *place) String() string {
	if p.exact {
		return p.path
	}
	return p.path + "*"
}

// folded returns the path as a policy compares it: letter case and a slash at the end of a whole
// path make no difference.
func (p *place) folded() string {
	path := strings.ToLower(p.path)
	if p.exact {
		return strings.TrimRight(path, "/")
	}
	return path
}

// covers reports whether a route for p would cover the whole place q.
func (p *place) covers(q *place) bool {
	mine, other := p.folded(), q.folded()
	switch {
	case p.exact: // a route without a star covers what follows it, too
		return strings.HasPrefix(other, mine+"/") || strings.HasPrefix(other, mine+".")
	case q.exact:
		return strings.HasPrefix(other, mine) || other+"/" == mine
	}
	return len(other) > len(mine) && strings.HasPrefix(other, mine)
}

// around returns the place whose route would cover another one; nil: none. Of equally long ones a
// route without a star comes first.
func around(all []place, q *place) (found *place) {
	for i := range all {
		p := &all[i]
		if (p.exact != q.exact || p.folded() != q.folded()) && p.covers(q) &&
			(found == nil || len(p.folded()) > len(found.folded()) || len(p.folded()) == len(found.folded()) && p.exact) {
			found = p
		}
	}
	return found
}

// addServer adds the places of a server to those that a host has of earlier servers, which have
// another address. A policy has one list of places for them all: a place without limits in one of
// the servers has those of a place around it in another.
func (r *reader) addServer(host string, places []place) {
	earlier := slices.Clone(r.places[host])
	for _, p := range places {
		r.add(host, r.stricter(host, p, earlier))
	}
	for i := range earlier {
		r.places[host][i] = r.stricter(host, r.places[host][i], places)
	}
}

// stricter returns a place with the limits that other servers of its host have for it, if it has
// none itself. A place that they have too is for add.
func (r *reader) stricter(host string, p place, others []place) place {
	outside := around(others, &p)
	if outside == nil || slices.ContainsFunc(others, func(q place) bool { return q.exact == p.exact && q.folded() == p.folded() }) {
		return p
	}
	switch own, outer := r.limiter(p.scope), r.limiter(outside.scope); {
	case own == outer || outer == nil:
	case own == nil:
		r.noteTaken(host, p)
		p.scope = outside.scope
	default:
		r.lost(p.at, "%s has other limits in another server (%s)", routeOf(host, &p), alike)
	}
	return p
}

// add adds a place of a host. Of two places with one route, the one with limits counts.
func (r *reader) add(host string, p place) {
	all, ok := r.places[host]
	if !ok {
		r.hosts = append(r.hosts, host)
	}
	i := slices.IndexFunc(all, func(q place) bool { return q.exact == p.exact && q.folded() == p.folded() })
	if i < 0 {
		r.places[host] = append(all, p)
		return
	}
	was, is := r.limiter(all[i].scope), r.limiter(p.scope)
	switch {
	case was == is:
		r.noteRefusals(p.scope)
	case is == nil:
		r.noteTaken(host, p)
	case was == nil:
		r.noteTaken(host, all[i])
		all[i] = p
	default:
		r.lost(p.at, "%s has a limiter already, of an earlier server or location (%s)", routeOf(host, &p), alike)
	}
}

// alike says what two places can differ in that have one route.
const alike = "address, port, letter case and a slash at the end make no difference to a route"

// routeOf returns the route of a place for a note about several servers.
func routeOf(host string, p *place) string {
	if host == "" {
		return p.String() + " of hosts that no server names"
	}
	return host + p.String()
}

// noteTaken names a place without limits, whose route another one with limits has. A server that
// only redirects, as from port 80 to 443, loses nothing by it.
func (r *reader) noteTaken(host string, p place) {
	if p.returns {
		r.note(p.at, "return: nginx does not limit what it answers so; %s is limited, as in another server or location", routeOf(host, &p))
		return
	}
	r.lost(p.at, "%s; %s is limited, as in another server or location (%s)", r.unlimited(p.scope), routeOf(host, &p), alike)
}

// unlimited says why a scope has no limiter.
func (r *reader) unlimited(s scope) string {
	if limits(s) {
		return "its limits in nginx could not be imported"
	}
	return "nginx does not limit this"
}

// route gives each place the route that it needs to have the limits that it has in nginx.
func (r *reader) route() {
	for _, host := range r.hosts {
		all := r.places[host]
		ordered := slices.SortedStableFunc(slices.Values(all), func(p, q place) int { return cmp.Compare(len(p.folded()), len(q.folded())) })
		for _, p := range ordered {
			all = r.guard(all, p)
		}
		for i := range all {
			p := &all[i]
			own, outer := r.limiter(p.scope), r.wider(host)
			isRoot := p.path == "/" && !p.exact
			outside := around(all, p)
			if outside != nil && limits(outside.scope) && r.limiter(outside.scope) == nil {
				outside = nil // it has no route, so what covers it covers this
			}
			if outside != nil && (!isRoot || own == nil && outer == nil) {
				outer = r.limiter(outside.scope)
			}
			r.noteRefusals(p.scope)
			if own == nil && limits(p.scope) {
				r.noteUnlimited(host, p, outer)
				continue
			}
			if own == outer {
				continue
			}
			if own != nil {
				if r.use(&own.Routes, host, p) && own.first == nil {
					own.first = p
				}
			}
			if (own == nil || own.dry) && outer != nil && r.use(&r.open, host, p) {
				was := r.unlimited(p.scope)
				if own != nil {
					was = "nginx only tries this out (limit_req_dry_run)"
				}
				r.note(p.at, "%s: %s, so it has a limit that nothing reaches (%v), whose fields its answers have", host+p.String(), was, policyimport.Unreached)
			}
		}
	}
}

// guard adds a place for what is below a location with =, which is of the place around that.
func (r *reader) guard(all []place, p place) []place {
	if !p.exact {
		r.noteBare(all, p)
		return all
	}
	outside := around(all, &p)
	if p.path == "/" || outside == nil || r.limiter(outside.scope) == r.limiter(p.scope) {
		return all
	}
	if r.limiter(outside.scope) != nil {
		bare := strings.TrimRight(p.path, "/")
		r.note(p.at, "%s also covers %s/, %s;x and what begins with %s., which have other limits in nginx: they reach the same endpoint of some backends", p.path, bare, bare, bare)
	}
	below := place{path: strings.TrimRight(p.path, "/") + "/", scope: outside.scope, at: p.at, block: p.block}
	switch {
	case slices.ContainsFunc(all, func(q place) bool { return !q.exact && q.folded() == below.folded() }):
	case r.limiter(outside.scope) != nil:
		return append(all, below)
	default:
		what := "which nginx does not limit"
		if limits(outside.scope) {
			what = "whose limits in nginx could not be imported"
		}
		r.note(p.at, "%s also covers what begins with %s/ or %s., %s", p.path, p.path, p.path, what)
	}
	return all
}

// noteBare names the path without the slash at the end of a location, which the route of the
// location covers too. No route tells the two apart.
func (r *reader) noteBare(all []place, p place) {
	bare := &place{path: strings.TrimSuffix(p.path, "/"), exact: true}
	if bare.path == p.path || bare.path == "" || slices.ContainsFunc(all, func(q place) bool { return q.exact && q.folded() == bare.folded() }) {
		return
	}
	others := slices.DeleteFunc(slices.Clone(all), func(q place) bool { return !q.exact && q.folded() == p.folded() })
	outside, own := around(others, bare), r.limiter(p.scope)
	isPassed := slices.ContainsFunc(p.at.Block, func(d *crossplane.Directive) bool { return strings.HasSuffix(d.Directive, "_pass") })
	switch {
	case outside == nil || r.limiter(outside.scope) == own:
	case isPassed && own != nil:
		r.note(p.at, "%s also covers %s, which nginx redirects to %s without a limit", p.String(), bare.path, p.path)
	case !isPassed:
		r.note(p.at, "%s also covers %s, which has the limits of another location in nginx (a slash at the end makes no difference to a route)", p.String(), bare.path)
	}
}

// elsewhere is a limiter of another host.
var elsewhere = &use{}

// wider returns elsewhere if a route of a wider host has limits, which a request for this host has
// if no route for this host covers it; else nil.
func (r *reader) wider(host string) *use {
	for other, all := range r.places {
		name, isStar := strings.CutPrefix(other, "*")
		if host == "" || other == host || other != "" && !(isStar && strings.HasSuffix(host, name)) {
			continue
		}
		if slices.ContainsFunc(all, func(p place) bool { return r.limiter(p.scope) != nil && !r.limitsAt(host, &p) }) {
			return elsewhere
		}
	}
	return nil
}

// limitsAt reports whether routes of a host limit all of a place of another host. A limiter that is
// only tried out does not, since the route of the place would limit in its stead.
func (r *reader) limitsAt(host string, p *place) bool {
	all := r.places[host]
	own := around(all, p)
	if i := slices.IndexFunc(all, func(q place) bool { return q.exact == p.exact && q.folded() == p.folded() }); i >= 0 {
		own = &all[i]
	}
	if own == nil {
		return false
	}
	u := r.limiter(own.scope)
	return u != nil && (!u.dry || u == r.limiter(p.scope))
}

// use adds the route of a place.
func (r *reader) use(to *[]weir.Route, host string, p *place) bool {
	problem := "it is not a path that a request has"
	if i := strings.IndexAny(p.path, " *{}"); i >= 0 {
		problem = "its path has a " + map[byte]string{' ': "blank", '*': "star", '{': "brace", '}': "brace"}[p.path[i]]
	} else if route, err := policyfile.ParseRoute(host + p.String()); err == nil {
		*to = append(*to, route)
		return true
	} else if inner := errors.Unwrap(err); inner != nil {
		problem = inner.Error()
	}
	r.lost(p.at, "location %s: no route covers this, so its requests are limited as others with their path: %s", strings.Join(p.at.Args, " "), problem)
	return false
}
