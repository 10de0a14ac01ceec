// Package nginx imports the limits of an nginx configuration: limit_req and limit_conn become
// limiters, and what a policy cannot express is noted with its line.
//
//	nginx.go   Import: reads the files, walks blocks with their inheritance
//	lua.go     Lua blocks, whose code is not read
//	cycle.go   the include by which a file includes itself
//	zone.go    zones: their keys and rates, and windows of them
//	server.go  servers and locations, each with the limits that it has in nginx
//	instead.go the limits of a place whose own cannot be imported
//	rewrite.go the rewrites by which nginx limits another path
//	place.go   the routes that give each of them these limits in a policy
//	policy.go  the limiters
package nginx

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/policyimport"
)

// Import reads the configuration at path, with the files that it includes. A directory means its
// nginx.conf. A file without an http block is read as the inside of one.
func Import(path string) (*policyimport.Result, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("import nginx: %w", err)
	} else if info.IsDir() {
		path = filepath.Join(path, "nginx.conf")
	}
	parsed, err := crossplane.Parse(path, &crossplane.ParseOptions{
		SkipDirectiveContextCheck: true, // a part of a configuration has no http block
		SkipDirectiveArgsCheck:    true, // this package checks those that it reads
		Open:                      open,
	})
	if err != nil {
		err = cmp.Or(cycle(path), err)
		return nil, fmt.Errorf("import nginx: %w", err)
	}
	r := &reader{configs: parsed.Config, zones: map[string]*zone{}, maps: map[string]*crossplane.Directive{}, files: map[*crossplane.Directive]string{},
		used: map[string]*use{}, places: map[string][]place{}}
	for _, e := range parsed.Errors {
		return nil, fmt.Errorf("import nginx: %w", parseError(e))
	}
	if len(r.configs) == 0 {
		return nil, fmt.Errorf("import nginx: %s: %w", path, fs.ErrNotExist)
	}
	top, err := r.flat(0, nil)
	if err != nil {
		return nil, fmt.Errorf("import nginx: %w", err)
	}
	r.readMain(top)
	r.route()
	p := r.policy()
	return &policyimport.Result{Policy: p, Notes: r.ordered(r.notes), Unreached: r.ordered(r.unreached)}, nil
}

// ordered returns notes in the order of the configuration, each once.
func (r *reader) ordered(notes []policyimport.Note) []policyimport.Note {
	place := map[string]int{}
	for i, c := range slices.Backward(r.configs) {
		place[c.File] = i
	}
	slices.SortStableFunc(notes, func(a, b policyimport.Note) int {
		return cmp.Or(cmp.Compare(place[a.File], place[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(notes)
}

// parseError returns an error with its place at the begin, and not again at the end.
func parseError(e crossplane.PayloadError) error {
	err := e.Error
	if parse := new(crossplane.ParseError); errors.As(err, &parse) {
		err = errors.New(parse.What)
	}
	if e.Line != nil {
		return fmt.Errorf("%s:%d: %w", e.File, *e.Line, err)
	}
	return fmt.Errorf("%s: %w", e.File, err)
}

// maxDirectives is the max number of directives of a configuration. Those of an included file count
// each time that it is included: files that include the next one twice each would take hours.
const maxDirectives = 1_000_000

// A reader reads one configuration.
type reader struct {
	configs []crossplane.Config
	visited int // directives
	files   map[*crossplane.Directive]string
	zones   map[string]*zone                 // by kind and name
	maps    map[string]*crossplane.Directive // geo and map blocks, by the variable that they set
	used    map[string]*use                  // by the lines of its scope
	uses    []*use                           // in the order of the configuration
	places  map[string][]place               // by host
	hosts   []string                         // of places, in the order of the configuration
	open    []weir.Route                     // what nginx does not limit, and another route would
	notes   []policyimport.Note

	unreached []policyimport.Note // the returns before limits, own or inherited

	// defaults are the servers that have the requests for hosts that none names.
	defaults map[*crossplane.Directive]bool
}

// flat returns the directives of a file, with those of the files that it includes in their place,
// also in blocks.
func (r *reader) flat(file int, including []int) ([]*crossplane.Directive, error) {
	if slices.Contains(including, file) {
		return nil, fmt.Errorf("%s includes itself", r.configs[file].File)
	}
	return r.flatten(r.configs[file].Parsed, file, append(including[:len(including):len(including)], file))
}

func (r *reader) flatten(all crossplane.Directives, file int, including []int) (flat []*crossplane.Directive, err error) {
	for _, d := range all {
		r.files[d] = r.configs[file].File
		if r.visited++; r.visited > maxDirectives {
			return nil, fmt.Errorf("%s:%d: the configuration has more than %d directives, which is the most that is read (those of an included file count each time that it is included)",
				r.files[d], d.Line, maxDirectives)
		}
		if d.IsInclude() {
			for _, included := range d.Includes {
				inner, err := r.flat(included, including)
				if err != nil {
					return nil, err
				}
				flat = append(flat, inner...)
			}
			continue
		}
		if d.IsBlock() {
			if d.Block, err = r.flatten(d.Block, file, including); err != nil {
				return nil, err
			}
		}
		flat = append(flat, d)
	}
	return flat, nil
}

func (r *reader) note(d *crossplane.Directive, format string, args ...any) {
	r.notes = append(r.notes, policyimport.Note{File: r.files[d], Line: d.Line, Text: fmt.Sprintf(format, args...)})
}

func (r *reader) lost(d *crossplane.Directive, format string, args ...any) {
	r.notes = append(r.notes, policyimport.Note{File: r.files[d], Line: d.Line, Text: fmt.Sprintf(format, args...), Lost: true})
}

// readMain reads the outermost level.
func (r *reader) readMain(top []*crossplane.Directive) {
	found := false
	for _, d := range top {
		switch d.Directive {
		case "http":
			found = true
			r.readHTTP(d.Block)
		case "stream", "mail":
			for _, name := range []string{"limit_conn", "limit_req"} {
				if uses := find(d.Block, name); len(uses) > 0 {
					r.lost(uses[0], "%s in %s: a policy limits HTTP requests", name, d.Directive)
				}
			}
		}
	}
	if !found {
		r.readHTTP(top)
	}
}

// find returns the directives of a name, in blocks too.
func find(all []*crossplane.Directive, name string) (found []*crossplane.Directive) {
	for _, d := range all {
		if d.Directive == name {
			found = append(found, d)
		}
		found = append(found, find(d.Block, name)...)
	}
	return found
}

// A scope is what a block inherits: each kind as a whole, from the innermost block that has any of
// it (limit_req and limit_conn are not added to those of the outer block).
type scope struct {
	requests, connections []*crossplane.Directive
	dry                   *crossplane.Directive // limit_req_dry_run on
	status                *crossplane.Directive // limit_req_status
	connStatus            *crossplane.Directive // limit_conn_status
}

// in returns the scope in a block.
func (s scope) in(block []*crossplane.Directive) (inner scope, own bool) {
	inner = s
	var requests, connections []*crossplane.Directive
	for _, d := range block {
		switch {
		case d.Directive == "limit_req":
			requests = append(requests, d)
		case d.Directive == "limit_conn":
			connections = append(connections, d)
		case len(d.Args) != 1:
		case d.Directive == "limit_req_dry_run":
			if inner.dry, own = nil, true; d.Args[0] == "on" {
				inner.dry = d
			}
		case d.Directive == "limit_req_status":
			inner.status = d
		case d.Directive == "limit_conn_status":
			inner.connStatus = d
		}
	}
	if len(requests) > 0 {
		inner.requests, own = requests, true
	}
	if len(connections) > 0 {
		inner.connections, own = connections, true
	}
	return inner, own
}

func (r *reader) readHTTP(block []*crossplane.Directive) {
	for _, d := range block {
		if (d.Directive == "geo" || d.Directive == "map") && len(d.Args) > 0 {
			r.maps[d.Args[len(d.Args)-1]] = d
		}
	}
	for _, d := range block {
		if d.Directive == "limit_req_zone" || d.Directive == "limit_conn_zone" {
			r.readZone(d)
		}
	}
	r.nameOthers(block)
	s, _ := scope{}.in(block)
	r.defaults = defaultsOf(block)
	var servers []*server
	for _, d := range block {
		if d.Directive == "server" && len(d.Args) == 0 {
			servers = append(servers, r.readServer(d, s))
		}
	}
	if len(servers) == 0 && limits(s) {
		r.add("", place{path: "/", scope: s, at: firstOf(s)})
	}
	for _, v := range servers { // after those without a name, which are written for all other hosts
		if v.others {
			r.addServer("", v.places)
		}
	}
}

// nameOthers notes directives about limits that no policy has.
func (r *reader) nameOthers(block []*crossplane.Directive) {
	for name, why := range others {
		for _, d := range find(block, name) {
			r.lost(d, "%s: %s", name, why)
		}
	}
	for _, name := range []string{"set", "auth_request_set", "set_by_lua", "set_by_lua_block", "set_by_lua_file"} {
		for _, d := range find(block, name) {
			if len(d.Args) > 0 && strings.EqualFold(d.Args[0], "$limit_rate") {
				r.lost(d, "%s %s: %s", name, d.Args[0], others["limit_rate"])
			}
		}
	}
	if all := find(block, "set_real_ip_from"); len(all) > 0 {
		r.note(all[0], "set_real_ip_from: nginx counts by the address that a proxy states. So does Weir for the proxies of --trusted-proxies: without it, all callers behind them are one")
	}
}

var others = map[string]string{
	"limit_rate":          "a policy limits requests, not bytes",
	"limit_rate_after":    "a policy limits requests, not bytes",
	"proxy_limit_rate":    "a policy limits requests, not bytes",
	"fastcgi_limit_rate":  "a policy limits requests, not bytes",
	"uwsgi_limit_rate":    "a policy limits requests, not bytes",
	"scgi_limit_rate":     "a policy limits requests, not bytes",
	"limit_conn_dry_run":  "the limit in flight refuses requests here: a policy tries out a whole limiter (mode: shadow)",
	"limit_req_log_level": "refusals are in the access log and in the metrics",
}

func firstOf(s scope) *crossplane.Directive {
	if len(s.requests) > 0 {
		return s.requests[0]
	}
	return s.connections[0]
}
