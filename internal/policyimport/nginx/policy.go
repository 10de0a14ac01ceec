package nginx

import (
	"fmt"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/policyfile"
)

// A use is one scope with routes. Scopes with the same directives are one limiter, because a zone
// has one count wherever it is used.
type use struct {
	scope  scope
	routes []weir.Route
}

// id identifies a scope.
func (s scope) id() string {
	var b strings.Builder
	for _, d := range slices.Concat(s.requests, s.connections) {
		args := slices.Clone(d.Args)
		slices.Sort(args)
		fmt.Fprintf(&b, "%s %q;", d.Directive, args)
	}
	fmt.Fprint(&b, s.dry != nil)
	return b.String()
}

func (r *reader) readServer(d *crossplane.Directive, outer scope) {
	s, _ := outer.in(d.Block)
	hosts := r.hosts(d)
	whole := false
	for _, l := range d.Block {
		if l.Directive == "location" && len(l.Args) == 1 && l.Args[0] == "/" {
			_, whole = s.in(l.Block)
		}
	}
	if limits(s) && !whole && len(hosts) > 0 {
		r.use(s, hosts, "/*", firstOf(s))
	}
	r.readLocations(d.Block, s, hosts)
}

func limits(s scope) bool { return len(s.requests) > 0 || len(s.connections) > 0 }

func (r *reader) readLocations(block []*crossplane.Directive, outer scope, hosts []string) {
	for _, d := range block {
		if d.Directive != "location" || !d.IsBlock() {
			continue
		}
		s, own := outer.in(d.Block)
		if own && limits(s) {
			if path := r.path(d); path != "" {
				r.use(s, hosts, path, d)
			}
		}
		r.readLocations(d.Block, s, hosts)
	}
}

// path returns the path of a location as routes spell it; empty with a note if none covers it.
func (r *reader) path(d *crossplane.Directive) string {
	switch {
	case len(d.Args) == 1 && strings.HasPrefix(d.Args[0], "/"):
		return d.Args[0] + "*"
	case len(d.Args) == 2 && d.Args[0] == "=":
		return d.Args[1]
	case len(d.Args) == 2 && d.Args[0] == "^~":
		return d.Args[1] + "*"
	}
	r.lost(d, "location %s: a route is a path or a prefix, so the limits in it are left out, and those of the block around it apply if there are any", strings.Join(d.Args, " "))
	return ""
}

// hosts returns the hosts of a server as routes spell them; empty means all.
func (r *reader) hosts(server *crossplane.Directive) (hosts []string) {
	named := false
	for _, d := range server.Block {
		if d.Directive != "server_name" {
			continue
		}
		for _, name := range d.Args {
			named = true
			switch {
			case name == "_" || name == "":
				hosts = append(hosts, "")
			case strings.HasPrefix(name, "~"), strings.HasSuffix(name, ".*"):
				r.lost(d, "server_name %s: a route has a host or *.host, so the limits of this name are left out", name)
			case strings.HasPrefix(name, "."):
				hosts = append(hosts, name[1:], "*"+name)
			default:
				hosts = append(hosts, name)
			}
		}
	}
	if !named {
		return []string{""}
	}
	return hosts
}

// use adds routes for a scope.
func (r *reader) use(s scope, hosts []string, path string, at *crossplane.Directive) {
	i := slices.IndexFunc(r.uses, func(u use) bool { return u.scope.id() == s.id() })
	if i < 0 {
		i = len(r.uses)
		r.uses = append(r.uses, use{scope: s})
	}
	for _, host := range hosts {
		if host != "" && !strings.Contains(host, ".") && host != "localhost" {
			host += "."
		}
		route, err := policyfile.ParseRoute(host + path)
		if err != nil {
			r.lost(at, "no route covers this: %v", err)
			continue
		}
		if taken := slices.ContainsFunc(r.uses, func(u use) bool { return slices.Contains(u.routes, route) }); taken {
			if !slices.Contains(r.uses[i].routes, route) {
				r.lost(at, "%s has a limiter already, of an earlier server or location", route)
			}
			continue
		}
		r.uses[i].routes = append(r.uses[i].routes, route)
	}
}

// policy makes limiters of what was read.
func (r *reader) policy() (p weir.Policy) {
	used := map[string]string{} // the limiter that counts a zone
	names := policyimport.Names{}
	for _, u := range r.uses {
		if len(u.routes) == 0 {
			continue
		}
		l := weir.Limiter{Routes: u.routes}
		zones := r.fill(&l, u.scope)
		if len(l.Rows()) == 0 {
			continue
		}
		_, name, _ := strings.Cut(zones[0], " ")
		l.Name = names.Of(name, "zone")
		if u.scope.dry != nil {
			l.Mode = weir.Shadow
			r.note(u.scope.dry, "limit_req_dry_run: the limiter %s is tried out whole, also its limit in flight, and its requests count under a wider route that is enforced", l.Name)
		}
		for _, zone := range zones {
			if other := used[zone]; other != "" {
				r.note(firstOf(u.scope), "zone %s has one count in nginx, and one in each of the limiters %s and %s", strings.TrimPrefix(strings.TrimPrefix(zone, "limit_req "), "limit_conn "), other, l.Name)
			}
			used[zone] = l.Name
		}
		r.noteStatus(u.scope)
		p.Limiters = append(p.Limiters, l)
	}
	return p
}

// fill adds the windows and the limit in flight of a scope, and returns the zones that they are of.
func (r *reader) fill(l *weir.Limiter, s scope) (zones []string) {
	for _, d := range s.requests {
		w, ok := r.window(d)
		if !ok {
			continue
		}
		same := slices.IndexFunc(l.Windows, func(o weir.Window) bool { return o.Per == w.Per && o.Key.String() == w.Key.String() })
		switch {
		case same >= 0:
			r.note(d, "%q and %q have the same length and key: the lower limit counts", l.Windows[same], w)
			l.Windows[same].Limit = min(l.Windows[same].Limit, w.Limit)
		case len(l.Windows) == weir.MaxWindows:
			r.lost(d, "a limiter has at most %d windows: %q is left out", weir.MaxWindows, w)
			continue
		default:
			l.Windows = append(l.Windows, w)
		}
		zones = append(zones, "limit_req "+zoneOf(d))
	}
	for _, d := range s.connections {
		f, ok := r.slots(d)
		if !ok {
			continue
		}
		if l.InFlight.Limit > 0 {
			r.lost(d, "a limiter has one limit in flight: %q is left out", f)
			continue
		}
		l.InFlight = f
		r.note(d, "limit_conn %s: Weir counts requests under way, also those of one HTTP/2 connection", d.Args[0])
		zones = append(zones, "limit_conn "+d.Args[0])
	}
	return zones
}

func zoneOf(d *crossplane.Directive) string {
	for _, arg := range d.Args {
		if name, ok := strings.CutPrefix(arg, "zone="); ok {
			return name
		}
	}
	return ""
}

func (r *reader) noteStatus(s scope) {
	for _, kind := range []struct {
		limits []*crossplane.Directive
		status *crossplane.Directive
	}{{s.requests, s.status}, {s.connections, s.connStatus}} {
		switch {
		case len(kind.limits) == 0:
		case kind.status == nil:
			r.note(kind.limits[0], "nginx answers a refused request 503; Weir answers 429 (answers of a policy change that)")
		case kind.status.Args[0] != "429":
			r.note(kind.status, "%s %s: Weir answers 429; answers of a policy can make it 403 or 503", kind.status.Directive, kind.status.Args[0])
		}
	}
}
