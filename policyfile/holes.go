package policyfile

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A hole is a prefix that a route uses and no limiter covers, of the route's host.
type hole struct{ host, prefix, path, example string }

// holes warns of prefixes that routes use and that no limiter covers completely: paths beside the
// routes pass unlimited (D9). If such prefixes contain each other, holes reports the shortest. The
// root does not count as a prefix. A prefix is of one host if its route is, and of all hosts that
// no route names otherwise.
func (w *warner) holes() {
	catching := w.catching()
	caught := func(host, prefix string) bool {
		const anything = "\x00" // no route has it
		return catching != nil && catching.Match("", anyOf(host), prefix+anything).Limiter() != nil
	}
	var open []hole
	prefixes := make(map[string]bool)
	for i, l := range w.policy.Limiters {
		if l.Mode == weir.Shadow { // its routes do not limit anything
			continue
		}
		for j, r := range l.Routes {
			prefix := r.Path[:strings.LastIndexByte(r.Path, '/')+1]
			if prefix == "/" || r.Method == "" && r.Prefix || caught(r.Host, prefix) {
				continue
			}
			example := weir.Route{Host: r.Host, Path: prefix + "anything-else"}
			if r.Method != "" {
				example = weir.Route{Method: otherMethod(r.Method), Host: r.Host, Path: r.Path}
			}
			if key := r.Host + shapeOf(prefix); !prefixes[key] {
				prefixes[key] = true
				open = append(open, hole{r.Host, prefix, fmt.Sprintf("limiters[%d].routes[%d]", w.policyAt.limiters[i], w.policyAt.of(i, "routes", j)), example.String()})
			}
		}
	}
	for _, h := range open {
		if isUnder(h.host, h.prefix[:len(h.prefix)-1], prefixes) {
			continue
		}
		prefix := weir.Route{Host: h.host, Path: h.prefix}
		w.warn(h.path, "", fmt.Sprintf("to limit them, add a limiter with the route %s*", prefix),
			"requests under %s that match no route are not limited and get no headers, such as: %s", prefix, h.example)
	}
}

// anyOf returns a host that the host of a route covers, and no other route that covers less.
func anyOf(host string) string {
	const noName = "-" // no host that is looked up begins so
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		return noName + "." + rest
	}
	return host
}

// catching returns the routes that cover every request below a prefix, or nil if there are none. A
// route that ends in a parameter also covers what follows it.
func (w *warner) catching() *weir.Routes {
	var all []weir.Route
	for _, l := range w.policy.Limiters {
		for _, r := range l.Routes {
			if r.Method == "" && (r.Prefix || strings.HasSuffix(r.Path, "}")) && l.Mode == weir.Enforce {
				all = append(all, r)
			}
		}
	}
	window := weir.Window{Limit: 1, Per: time.Second, Key: weir.Key{{identity.IP}}}
	routes, err := weir.NewRoutes(weir.Policy{Limiters: []weir.Limiter{{Name: "catching", Routes: all, Windows: []weir.Window{window}}}})
	if err != nil {
		return nil // impossible: the routes are those of a valid policy
	}
	return routes
}

// isUnder reports whether a path begins with one of the prefixes of its host.
func isUnder(host, path string, prefixes map[string]bool) bool {
	path = shapeOf(path)
	for i := range len(path) + 1 {
		if prefixes[host+path[:i]] {
			return true
		}
	}
	return false
}

var parameters = regexp.MustCompile(`\{[^}]*\}`)

// shapeOf returns a path in lower case, with its parameters without their names.
func shapeOf(path string) string { return strings.ToLower(parameters.ReplaceAllString(path, "{}")) }

func otherMethod(m string) string {
	if m == "GET" {
		return "POST"
	}
	return "GET"
}
