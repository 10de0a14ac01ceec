package nginx

import (
	"fmt"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
)

// A use is the limiter of one scope. Scopes with the same directives are one limiter, because a
// zone has one count wherever it is used.
type use struct {
	weir.Limiter
	scope scope
	zones []string
}

// limiter returns the limiter of a scope; nil: nothing of it limits.
func (r *reader) limiter(s scope) *use {
	id := s.id()
	u, ok := r.used[id]
	if !ok && limits(s) {
		u = &use{scope: s}
		if u.zones = r.fill(&u.Limiter, s); len(u.Rows()) == 0 {
			u = nil
		} else {
			r.uses = append(r.uses, u)
		}
		r.used[id] = u
	}
	return u
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

func limits(s scope) bool { return len(s.requests) > 0 || len(s.connections) > 0 }

// policy makes limiters of what was read.
func (r *reader) policy() (p weir.Policy) {
	used := map[string]string{} // the limiter that counts a zone
	names := policyimport.Names{}
	for _, u := range r.uses {
		if len(u.Routes) == 0 {
			continue
		}
		l := u.Limiter
		_, name, _ := strings.Cut(u.zones[0], " ")
		l.Name = names.Of(name, "zone")
		if u.scope.dry != nil {
			l.Mode = weir.Shadow
			if len(u.scope.connections) > 0 {
				r.lost(u.scope.dry, "limit_req_dry_run: the limiter %s is tried out whole, and nginx refuses requests by its limit_conn", l.Name)
			}
		}
		for _, zone := range u.zones {
			if other := used[zone]; other != "" {
				r.note(firstOf(u.scope), "zone %s has one count in nginx, and one in each of the limiters %s and %s", strings.TrimPrefix(strings.TrimPrefix(zone, "limit_req "), "limit_conn "), other, l.Name)
			}
			used[zone] = l.Name
		}
		p.Limiters = append(p.Limiters, l)
	}
	if len(r.open) > 0 {
		p.Limiters = append(p.Limiters, names.Unlimited(r.open))
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

// noteStatus names the lines by which nginx answers a refused request otherwise. Scopes of one
// limiter can differ in that.
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
