package nginx

import (
	"fmt"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
)

// A use is the limiter of all scopes that have the same limits of the same zones, because a zone
// has one count wherever it is used.
type use struct {
	weir.Limiter
	id    string   // identifies the limits of the zones
	dry   bool     // limit_req_dry_run on
	zones []string // each with its kind
	first *place   // the first place that has a route of it; nil: none has
}

// limiter returns the limiter of a scope; nil: nothing of it limits. It notes what the lines of the
// scope mean here, also if another scope has the same limits.
func (r *reader) limiter(s scope) *use {
	if !limits(s) {
		return nil
	}
	lines := s.lines()
	u, ok := r.used[lines]
	if ok {
		return u
	}
	u = &use{dry: s.dry != nil}
	r.fill(u, s)
	same := slices.IndexFunc(r.uses, func(o *use) bool { return o.id == u.id })
	switch {
	case len(u.Rows()) == 0:
		u = nil
	case same >= 0:
		u = r.uses[same]
	default:
		r.uses = append(r.uses, u)
	}
	r.used[lines] = u
	return u
}

// lines identifies the lines of a scope that make its limiter.
func (s scope) lines() string {
	var b strings.Builder
	for _, d := range slices.Concat(s.requests, s.connections) {
		fmt.Fprintf(&b, "%p ", d)
	}
	fmt.Fprintf(&b, "%t", s.dry != nil)
	return b.String()
}

func limits(s scope) bool { return len(s.requests) > 0 || len(s.connections) > 0 }

// policy makes limiters of what was read.
func (r *reader) policy() (p weir.Policy) {
	names := policyimport.Names{}
	var named []*use
	for _, u := range r.uses {
		if u.first == nil {
			continue
		}
		_, name, _ := strings.Cut(u.zones[0], " ")
		u.Name = names.Of(name, "zone")
		if u.dry {
			u.Mode = weir.Shadow
		}
		named = append(named, u)
		p.Limiters = append(p.Limiters, u.Limiter)
	}
	r.noteSplit(named)
	if len(r.open) > 0 {
		p.Limiters = append(p.Limiters, names.Unlimited(r.open))
	}
	return p
}

// noteSplit names each zone that several limiters count, once, with the first place of each.
func (r *reader) noteSplit(named []*use) {
	of := map[string][]*use{}
	for _, u := range named {
		for _, zone := range u.zones {
			if !slices.Contains(of[zone], u) {
				of[zone] = append(of[zone], u)
			}
		}
	}
	for zone, all := range of {
		if len(all) < 2 {
			continue
		}
		var each []string
		for _, u := range all {
			at := u.first.line(zone)
			each = append(each, fmt.Sprintf("%s (%s:%d)", u.Name, r.files[at], at.Line))
		}
		_, name, _ := strings.Cut(zone, " ")
		last := len(each) - 1
		r.note(all[0].first.line(zone), "zone %s has one count in nginx, and one in each of the limiters %s and %s", name, strings.Join(each[:last], ", "), each[last])
	}
}

// line returns the line of a place that uses a zone: a limit of its block, or the block if that
// inherits the limit.
func (p *place) line(zone string) *crossplane.Directive {
	for _, d := range slices.Concat(p.scope.requests, p.scope.connections) {
		if zoneOf(d) == zone && (p.block == nil || slices.Contains(p.block.Block, d)) {
			return d
		}
	}
	return p.block
}

// fill adds the windows and the limit in flight of a scope, with their zones.
func (r *reader) fill(u *use, s scope) {
	var rows []string
	for _, d := range s.requests {
		w, ok := r.window(d)
		if !ok {
			continue
		}
		same := slices.IndexFunc(u.Windows, func(o weir.Window) bool { return o.Per == w.Per && o.Key.String() == w.Key.String() })
		switch {
		case same >= 0:
			r.note(d, "%q and %q have the same length and key: the lower limit counts", u.Windows[same], w)
			u.Windows[same].Limit = min(u.Windows[same].Limit, w.Limit)
		case len(u.Windows) == weir.MaxWindows:
			r.lost(d, "a limiter has at most %d windows: %q is left out", weir.MaxWindows, w)
			continue
		default:
			u.Windows = append(u.Windows, w)
		}
		u.zones = append(u.zones, zoneOf(d))
		rows = append(rows, fmt.Sprintf("%s %s", zoneOf(d), w))
	}
	for _, d := range s.connections {
		f, ok := r.slots(d)
		if !ok {
			continue
		}
		if u.InFlight.Limit > 0 {
			r.lost(d, "a limiter has one limit in flight: %q is left out", f)
			continue
		}
		u.InFlight = f
		r.note(d, "limit_conn %s: Weir counts requests under way, also those of one HTTP/2 connection", d.Args[0])
		u.zones = append(u.zones, zoneOf(d))
		rows = append(rows, fmt.Sprintf("%s %s", zoneOf(d), f))
	}
	slices.Sort(rows)
	u.id = fmt.Sprintf("%q %t", rows, u.dry)
}

// zoneOf returns the zone of a limit_req or a limit_conn, with its kind.
func zoneOf(d *crossplane.Directive) string {
	for _, arg := range d.Args {
		if name, ok := strings.CutPrefix(arg, "zone="); ok || d.Directive == "limit_conn" {
			return d.Directive + " " + name
		}
	}
	return ""
}

// noteRefusals names the lines by which nginx refuses other requests of a place, or answers them
// with another status. Places of one limiter can differ in that.
func (r *reader) noteRefusals(s scope) {
	u := r.limiter(s)
	if u == nil {
		return
	}
	if u.dry && len(s.connections) > 0 {
		r.lost(s.dry, "limit_req_dry_run: a policy tries out a whole limiter (mode: shadow), and nginx refuses requests by its limit_conn")
	}
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
