package nginx

import (
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"
)

// A rewrite is a rewrite directive of a server or a location, or a return of an if block in it.
type rewrite struct {
	at       *crossplane.Directive
	what     string
	scope    scope
	inServer bool // it comes before all locations
	answers  bool // nginx answers it at once
}

// readRewrites reads the rewrites of a server or a location that nginx limits by another path than
// the one that was sent, or does not limit. It goes by the path if it looks for a location after
// the rewrite, which it does not after a break in a location.
func (v *server) readRewrites(in *crossplane.Directive, s scope) {
	for _, w := range rewritesIn(in.Block, "") {
		w.scope, w.inServer = s, in.Directive == "server"
		if args := w.at.Args; w.at.Directive == "rewrite" {
			if len(args) < 2 {
				continue
			}
			flag := strings.Join(args[2:], " ")
			isURL := slices.ContainsFunc([]string{"http://", "https://", "$scheme"}, func(begin string) bool { return strings.HasPrefix(args[1], begin) })
			w.answers = isURL || flag == "redirect" || flag == "permanent"
			if !w.answers && flag == "break" && !w.inServer {
				continue
			}
		}
		v.rewrites = append(v.rewrites, w)
	}
}

// rewritesIn returns the rewrites of a block up to a return, and those of the if blocks in it with
// their return. condition is that of an if block.
func rewritesIn(block []*crossplane.Directive, condition string) (all []rewrite) {
	for _, d := range block {
		what := d.Directive + " " + strings.Join(d.Args, " ")
		switch d.Directive {
		case "rewrite":
			all = append(all, rewrite{at: d, what: what})
		case "return":
			if condition != "" {
				all = append(all, rewrite{at: d, what: what + " if (" + condition + ")", answers: true})
			}
			return all
		case "if":
			all = append(all, rewritesIn(d.Block, strings.Join(d.Args, " "))...)
		}
	}
	return all
}

// noteRewrites names the rewrites that can give a request other limits than its path does.
func (r *reader) noteRewrites(v *server) {
	if len(v.hosts) == 0 && !v.others {
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
	limited := slices.ContainsFunc(scopes, func(s scope) bool { return r.limiter(s) != nil })
	for _, w := range v.rewrites {
		switch {
		case w.answers && (r.limiter(w.scope) != nil || w.inServer && limited):
			r.note(w.at, "%s: nginx answers these requests before it counts them, and here they are limited as others with their path", w.what)
		case !w.answers && differ:
			r.lost(w.at, "%s: nginx limits these requests by the path that they get, and a policy by the path that was sent: add that to the routes of the limiter that they have in nginx", w.what)
		}
	}
}
