package nginx

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir/internal/policyimport"
	"github.com/weirlimit/weir/policyfile"
)

// A server is a server block as a list of places.
type server struct {
	at       *crossplane.Directive
	hosts    []string
	others   bool // a default server with names: it also has the requests for hosts that none names
	places   []place
	patterns []pattern
	rewrites []rewrite
}

// A pattern is a location with a regular expression.
type pattern struct {
	at    *crossplane.Directive
	scope scope
	below string // the path of the location around it
}

func (r *reader) readServer(d *crossplane.Directive, outer scope) *server {
	s, _ := outer.in(d.Block)
	v := &server{at: d, hosts: r.hostsOf(d)}
	v.others = r.defaults[d] && !slices.Contains(v.hosts, "")
	at := d
	if limits(s) {
		at = firstOf(s)
	}
	if returns := directive(d.Block, "return"); returns != nil {
		v.places = []place{{path: "/", at: returns, block: d, returns: true}}
		r.noteReturn(returns, "server", s, len(find(d.Block, "limit_req"))+len(find(d.Block, "limit_conn")) > 0)
	} else {
		v.readRewrites(d, s)
		r.readLocations(v, d.Block, location{scope: s, path: "/"})
		if !slices.ContainsFunc(v.places, func(p place) bool { return p.path == "/" && !p.exact }) {
			v.places = slices.Insert(v.places, 0, place{path: "/", scope: s, at: at, block: d, inherits: outer})
		}
	}
	r.instead(v.places)
	for _, host := range v.hosts {
		r.addServer(host, v.places)
	}
	r.notePatterns(v)
	r.noteRewrites(v)
	return v
}

// directive returns the first directive of a name in a block itself, or nil.
func directive(block []*crossplane.Directive, name string) *crossplane.Directive {
	for _, d := range block {
		if d.Directive == name {
			return d
		}
	}
	return nil
}

// noteReturn names a return that answers all requests of a server or location with limits. Those
// that it inherits are of others, too.
func (r *reader) noteReturn(returns *crossplane.Directive, in string, s scope, own bool) {
	n := policyimport.Note{File: r.files[returns], Line: returns.Line, Text: fmt.Sprintf(
		"return %s: nginx answers all requests of this %s before it counts them, so none reaches its limits", strings.Join(returns.Args, " "), in)}
	if own {
		r.notes = append(r.notes, n)
	}
	if own || limits(s) {
		r.unreached = append(r.unreached, n)
	}
}

// hasLimit reports whether a block itself has a limit.
func hasLimit(block []*crossplane.Directive) bool {
	return directive(block, "limit_req") != nil || directive(block, "limit_conn") != nil
}

// A location is what locations in it inherit.
type location struct {
	scope scope
	path  string
	// hidden are the paths of locations that requests reach before those in this one.
	hidden []string
}

func (r *reader) readLocations(v *server, block []*crossplane.Directive, outer location) {
	var beside []string
	for _, d := range block {
		if modifier, name := spelled(d); d.Directive == "location" && (modifier == "" || modifier == "^~") {
			beside = append(beside, name)
		}
	}
	for _, d := range block {
		if d.Directive != "location" {
			continue
		}
		s, own := outer.scope.in(d.Block)
		modifier, name := spelled(d)
		if strings.HasPrefix(modifier, "~") {
			r.readPattern(v, d, outer.scope, outer.path)
			continue
		}
		if modifier == "@" || !strings.HasPrefix(name, "/") {
			if own && limits(s) {
				r.lost(d, "location %s: a route is a path or a prefix, so the limits in it are left out", strings.Join(d.Args, " "))
			}
			continue
		}
		inner := location{scope: s, path: name, hidden: slices.Clone(outer.hidden)}
		for _, other := range beside {
			if len(other) > len(name) && strings.HasPrefix(other, name) {
				inner.hidden = append(inner.hidden, other)
			}
		}
		p := place{path: name, exact: modifier == "=", firm: modifier != "", scope: s, at: d, block: d, inherits: outer.scope}
		// nginx answers a return before it counts.
		if returns := directive(d.Block, "return"); returns != nil {
			p.scope, p.returns = scope{}, true
			r.noteReturn(returns, "location", s, hasLimit(d.Block))
		}
		if !slices.ContainsFunc(outer.hidden, func(other string) bool { return strings.HasPrefix(name, other) }) {
			v.places = append(v.places, p)
		}
		v.readRewrites(d, p.scope)
		r.readLocations(v, d.Block, inner)
	}
}

// spelled returns the modifier of a location, and what follows it. nginx needs no blank between.
func spelled(d *crossplane.Directive) (modifier, name string) {
	if len(d.Args) == 2 {
		return d.Args[0], d.Args[1]
	}
	name = strings.Join(d.Args, " ")
	for _, modifier := range []string{"=", "^~", "~*", "~", "@"} {
		if rest, ok := strings.CutPrefix(name, modifier); ok {
			return modifier, rest
		}
	}
	return "", name
}

// readPattern reads a location with a regular expression, and those in it.
func (r *reader) readPattern(v *server, d *crossplane.Directive, outer scope, below string) {
	s, _ := outer.in(d.Block)
	if returns := directive(d.Block, "return"); returns == nil {
		v.patterns = append(v.patterns, pattern{d, s, below})
		v.readRewrites(d, s)
	} else {
		v.patterns = append(v.patterns, pattern{d, scope{}, below})
		r.noteReturn(returns, "location", s, hasLimit(d.Block))
	}
	for _, inner := range d.Block {
		if inner.Directive == "location" {
			r.readPattern(v, inner, s, below)
		}
	}
}

// notePatterns names the regular expressions that give a request other limits than its path does.
func (r *reader) notePatterns(v *server) {
	for _, p := range v.patterns {
		own := r.limiter(p.scope)
		differs := slices.ContainsFunc(v.places, func(other place) bool {
			isAround := other.path == p.below && !other.exact
			return (isAround || strings.HasPrefix(other.path, p.below) && !other.firm) && r.limiter(other.scope) != own
		})
		if !differs {
			r.noteRefusals(p.scope)
			continue
		}
		what := "nginx does not limit its requests"
		if limits(p.scope) {
			what = "its limits are left out"
		}
		r.lost(p.at, "location %s: a route is a path or a prefix, so its requests are limited as others with their path: %s", strings.Join(p.at.Args, " "), what)
	}
}

// defaultsOf returns the servers that nginx gives the requests for hosts that no server names: of
// each address that they listen at the one that says so, or else the first.
func defaultsOf(block []*crossplane.Directive) map[*crossplane.Directive]bool {
	of := make(map[string]*crossplane.Directive) // by address
	for _, d := range block {
		if d.Directive != "server" || len(d.Args) > 0 {
			continue
		}
		listens := find(d.Block, "listen")
		if len(listens) == 0 {
			listens = []*crossplane.Directive{{Args: []string{"80"}}}
		}
		for _, l := range listens {
			if len(l.Args) == 0 {
				continue
			}
			at := addressOf(l.Args[0])
			if of[at] == nil || slices.Contains(l.Args, "default_server") || slices.Contains(l.Args, "default") {
				of[at] = d
			}
		}
	}
	defaults := make(map[*crossplane.Directive]bool)
	for _, d := range of {
		defaults[d] = true
	}
	return defaults
}

// addressOf returns the address and port of a listen directive in one spelling. Without a port it
// is port 80.
func addressOf(listen string) string {
	if strings.HasPrefix(listen, "unix:") {
		return listen
	}
	if _, err := strconv.ParseUint(listen, 10, 16); err == nil {
		return "*:" + listen
	}
	if strings.LastIndexByte(listen, ':') <= strings.LastIndexByte(listen, ']') && !strings.HasSuffix(listen, ":") {
		listen += ":80"
	}
	if port, ok := strings.CutPrefix(listen, "0.0.0.0:"); ok {
		return "*:" + port
	}
	return listen
}

// hostsOf returns the hosts of a server as routes spell them; empty means all that no server names.
func (r *reader) hostsOf(server *crossplane.Directive) (hosts []string) {
	isDefault, named := r.defaults[server], false
	others := func(at *crossplane.Directive, name string) {
		switch {
		case isDefault:
			hosts = append(hosts, "")
		case name == "":
			r.note(at, "this server has no name, and is not the default server: it gets only requests without a Host, which no route tells from others")
		default:
			r.note(at, "this server has no name that a request can have, and is not the default server: it gets no requests")
		}
	}
	for _, d := range server.Block {
		if d.Directive != "server_name" {
			continue
		}
		for _, name := range d.Args {
			name, named = strings.ToLower(name), true
			switch {
			case name == "_" || name == "":
				others(d, name)
			case isDefault && (strings.HasPrefix(name, "~") || strings.HasSuffix(name, ".*")):
				r.note(d, "server_name %s: a route has a host or *.host, so the requests for this name are limited as those for hosts that no server names", name)
			case strings.HasPrefix(name, "~"), strings.HasSuffix(name, ".*"):
				r.lost(d, "server_name %s: a route has a host or *.host, so the limits of this name are left out", name)
			case strings.HasPrefix(name, "."):
				r.appendHost(&hosts, d, name[1:])
				r.appendHost(&hosts, d, "*"+name)
			default:
				r.appendHost(&hosts, d, name)
			}
		}
	}
	if !named {
		others(server, "")
	}
	return hosts
}

func (r *reader) appendHost(hosts *[]string, d *crossplane.Directive, name string) {
	host := name
	if !strings.Contains(name, ".") && name != "localhost" {
		host += "."
	}
	if strings.Contains(name, "$") {
		r.lost(d, "server_name %s: nginx puts the name of its machine there: write that name, so that a route can have it", name)
	} else if _, err := policyfile.ParseRoute(host + "/"); err != nil || strings.Contains(name, "/") {
		r.lost(d, "server_name %s: no route has this host: %v", name, errors.Unwrap(err))
	} else {
		*hosts = append(*hosts, host)
	}
}
