package nginx

import (
	"cmp"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// instead gives the places of a server whose limits of a kind cannot be imported those of a place
// around them, or else those that they would inherit: a place that nginx limits does not get less
// than what is around it. One that nginx limits does not get limits that nginx only tries out.
func (r *reader) instead(places []place) {
	var ordered []*place
	for i := range places {
		ordered = append(ordered, &places[i])
	}
	slices.SortStableFunc(ordered, func(p, q *place) int { return cmp.Compare(len(p.folded()), len(q.folded())) })
	for i, p := range ordered {
		var wider []scope // the nearest first
		for _, q := range slices.Backward(ordered[:i]) {
			if !q.exact && strings.HasPrefix(p.folded(), q.folded()) {
				wider = append(wider, q.scope)
			}
		}
		wider = append(wider, p.inherits)
		rate, slots := r.lacks(p.scope.requests), r.lacks(p.scope.connections)
		enforced := p.scope.dry == nil
		if i := slices.IndexFunc(wider, func(s scope) bool { return r.counts(s.requests) && !(enforced && s.dry != nil) }); rate && i >= 0 {
			p.scope.requests, p.scope.dry, p.scope.status = wider[i].requests, wider[i].dry, wider[i].status
			r.noteInstead(p, wider[i].requests[0])
			rate = false
		}
		why := "nothing around it has one that could"
		if slices.ContainsFunc(wider, func(s scope) bool { return r.counts(s.requests) }) {
			why = "nginx only tries out those around it (limit_req_dry_run)"
		}
		if i := slices.IndexFunc(wider, func(s scope) bool { return r.counts(s.connections) }); slots && i >= 0 {
			p.scope.connections, p.scope.connStatus = wider[i].connections, wider[i].connStatus
			r.noteInstead(p, wider[i].connections[0])
			slots = false
		}
		switch { // if nothing limits the place, route says so
		case rate && r.counts(p.scope.connections):
			r.lost(p.at, "%s: its limit_req could not be imported, and %s, so its rate is unlimited", p, why)
		case slots && r.counts(p.scope.requests):
			r.lost(p.at, "%s: its limit_conn could not be imported, and nothing around it has one that could, so its requests under way are unlimited", p)
		}
	}
}

// lacks reports whether there are limits of a kind, and none of them can be imported.
func (r *reader) lacks(kind []*crossplane.Directive) bool { return len(kind) > 0 && !r.counts(kind) }

// counts reports whether a limit of a kind can be imported.
func (r *reader) counts(kind []*crossplane.Directive) bool {
	return slices.ContainsFunc(kind, func(d *crossplane.Directive) (ok bool) {
		if d.Directive == "limit_req" {
			_, ok = r.window(d)
		} else {
			_, ok = r.slots(d)
		}
		return ok
	})
}

func (r *reader) noteInstead(p *place, by *crossplane.Directive) {
	r.lost(p.at, "%s: its %s could not be imported, so its requests are limited as others with their path, by %s %s (%s:%d)", p, by.Directive, by.Directive, strings.Join(by.Args, " "), r.files[by], by.Line)
}

// noteUnlimited names a place whose limits could not be imported, and that nothing of its host
// limits in their stead. outer is what limits it otherwise; nil: nothing.
func (r *reader) noteUnlimited(host string, p *place, outer *use) {
	so := "so its requests are limited as others with their path"
	switch {
	case outer == nil:
		so = "and nothing around it is limited, so it is unlimited"
	case outer.dry:
		so = "and nginx only tries out the limits around it (limit_req_dry_run), so it is unlimited"
	case outer == elsewhere:
		so = "and nothing of this host around it is limited, so it is unlimited where no route of other hosts covers it"
	}
	r.lost(p.at, "%s: its limits in nginx could not be imported, %s", host+p.String(), so)
}
