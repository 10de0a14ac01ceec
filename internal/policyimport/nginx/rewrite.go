package nginx

import (
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// A rewrite is a rewrite directive of a server or a location.
type rewrite struct {
	at        *crossplane.Directive
	scope     scope
	redirects bool // nginx answers it at once
}

// readRewrites reads the rewrites of a server or a location that nginx limits by another path than
// the one that was sent, or does not limit. It goes by the path if it looks for a location after
// the rewrite, which it does not after a break in a location.
func (v *server) readRewrites(in *crossplane.Directive, s scope) {
	for _, d := range rewritesIn(in.Block) {
		if len(d.Args) < 2 {
			continue
		}
		flag := strings.Join(d.Args[2:], " ")
		isURL := slices.ContainsFunc([]string{"http://", "https://", "$scheme"}, func(begin string) bool { return strings.HasPrefix(d.Args[1], begin) })
		redirects := isURL || flag == "redirect" || flag == "permanent"
		if redirects || flag != "break" || in.Directive == "server" {
			v.rewrites = append(v.rewrites, rewrite{d, s, redirects})
		}
	}
}

// rewritesIn returns the rewrites of a block and of the if blocks in it, up to a return.
func rewritesIn(block []*crossplane.Directive) (all []*crossplane.Directive) {
	for _, d := range block {
		switch d.Directive {
		case "rewrite":
			all = append(all, d)
		case "return":
			return all
		case "if":
			all = append(all, rewritesIn(d.Block)...)
		}
	}
	return all
}

// noteRewrites names the rewrites that can give a request other limits than its path does.
func (r *reader) noteRewrites(v *server) {
	if len(v.hosts) == 0 {
		return
	}
	var scopes []scope
	for _, p := range v.places {
		scopes = append(scopes, p.scope)
	}
	for _, p := range v.patterns {
		scopes = append(scopes, p.scope)
	}
	differ := slices.ContainsFunc(scopes, func(s scope) bool { return r.limiter(s) != r.limiter(scopes[0]) })
	for _, w := range v.rewrites {
		what := "rewrite " + strings.Join(w.at.Args, " ")
		switch {
		case w.redirects && r.limiter(w.scope) != nil:
			r.note(w.at, "%s: nginx answers these requests before it counts them, and here they are limited as others with their path", what)
		case !w.redirects && differ:
			r.lost(w.at, "%s: nginx limits these requests by the path that they get, and a policy by the path that was sent: add that to the routes of the limiter that they have in nginx", what)
		}
	}
}
