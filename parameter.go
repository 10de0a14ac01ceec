package weir

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pathSource is the key source whose values are the parameters of routes: path:NAME.
const pathSource = "path"

// cutParameter splits a route's path at its first parameter. If it has none, before is the path.
func cutParameter(path string) (before, name, after string, found bool) {
	i := strings.Index(path, "/{")
	if i < 0 {
		return path, "", "", false
	}
	name, after, _ = strings.Cut(path[i+len("/{"):], "}")
	return path[:i], name, after, true
}

// Parameters returns the names of the route's parameters in their order: "tenant" and "user" of
// /t/{tenant}/users/{user}. It is nil for a route without parameters.
func (r Route) Parameters() (names []string) {
	_, name, after, found := cutParameter(r.Path)
	for found {
		names = append(names, name)
		_, name, after, found = cutParameter(after)
	}
	return names
}

// parameterProblem returns what is wrong with the parameters of a route.
func (r Route) parameterProblem() error {
	if !strings.ContainsAny(r.Path, "{}") {
		return nil
	}
	seen := make(map[string]bool)
	for segment := range strings.SplitSeq(r.Path, "/") {
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		name, ok := strings.CutPrefix(segment, "{")
		name, closed := strings.CutSuffix(name, "}")
		if !ok || !closed || strings.ContainsAny(name, "{}") {
			return fmt.Errorf("segment %q: a parameter is a whole segment in braces, as in /t/{tenant}/items", segment)
		}
		if _, err := canonicalParameter(name); err != nil {
			return fmt.Errorf("segment %q: %w", segment, err)
		}
		if seen[name] {
			return fmt.Errorf("parameter {%s} occurs twice: give each a name of its own", name)
		}
		seen[name] = true
	}
	if r.Prefix && strings.HasSuffix(r.Path, "}") {
		return errors.New("a star cannot follow a parameter, which is a whole segment: " + r.Path + "/* covers the segment and everything below it")
	}
	return nil
}

// maxParameter is the max length of a parameter's name.
const maxParameter = 64

// canonicalParameter returns a parameter's name, which has one form.
func canonicalParameter(s string) (string, error) {
	ok := s != "" && len(s) <= maxParameter
	for i, c := range []byte(s) {
		lower := 'a' <= c && c <= 'z'
		ok = ok && (lower || i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '_'))
	}
	if !ok {
		return "", fmt.Errorf("a parameter's name has lower-case letters, digits, dashes and underscores, a letter first, at most %d characters, as in {tenant} and path:tenant", maxParameter)
	}
	return s, nil
}

// Parameter returns the value of a parameter of the route that covers the request, by which a
// window counts under path:NAME. ok is false if the route has no such parameter, or if the limiter
// was named.
//
// The value is the segment of the path in the form that chooses the limiter: in lower case, without
// ";parameters", dot segments resolved. If the segment is the last one of the path, the value ends
// before its last dot, because many backends take what follows for a format: /t/acme and
// /t/acme.json are one endpoint, and have one budget (D10).
func (m Match) Parameter(name string) (value string, ok bool) {
	if m.by == nil || m.by.route == nil {
		return "", false
	}
	return m.by.route.parameter(m.path, name)
}

// CountedParameters returns the names of the parameters by which windows of the limiter count; nil
// if there are none. It must not be changed.
func (m Match) CountedParameters() []string {
	if m.by == nil {
		return nil
	}
	return m.by.limiter.byPath
}

// FoldSegment returns the value by which path:NAME counts a segment of a decoded path that is not
// the last one. ok is false for a text that is no single segment.
func FoldSegment(s string) (value string, ok bool) {
	value = strings.TrimPrefix(folded("/"+s), "/")
	return value, value != "" && !strings.ContainsAny(s, `/\`) && s != ".."
}

// parameter returns the value of a parameter. path is folded, and the route covers it.
func (r *Route) parameter(path, name string) (value string, ok bool) {
	pattern := r.Path
	for pattern != "" && path != "" {
		var declared string
		declared, pattern = cutSegment(pattern)
		value, path = cutSegment(path)
		if len(declared) != len("{}")+len(name) || declared[0] != '{' || declared[1:len(declared)-1] != name {
			continue
		}
		if i := strings.LastIndexByte(value, '.'); i > 0 && path == "" {
			value = value[:i]
		}
		return value, value != ""
	}
	return "", false
}

// cutSegment splits a path, which begins with a slash, after its first segment. after is empty, or
// begins with a slash.
func cutSegment(path string) (segment, after string) {
	path = path[1:]
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// ownKeys are the Keys of a caller as one limiter counts it.
type ownKeys struct {
	Keys
	route *Route // whose parameters the limiter counts by; nil: it counts by none
	path  string // folded
	// The limiter rejects the caller, so it spends nothing of what all callers share (D16).
	apart bool
}

// AppendKey implements Keys.
func (k *ownKeys) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	if k.apart && source == everyoneSource {
		return dst, false
	}
	if name, ok := strings.CutPrefix(source, pathSource+":"); ok && k.route != nil {
		value, ok := k.route.parameter(k.path, name)
		return append(dst, value...), ok
	}
	return k.Keys.AppendKey(dst, source)
}

// Addr implements Addresser. It is the zero Addr if the caller is no Addresser.
func (k *ownKeys) Addr() netip.Addr {
	if who, ok := k.Keys.(Addresser); ok {
		return who.Addr()
	}
	return netip.Addr{}
}

// Plan implements Planner. The plan is not known if the caller is no Planner.
func (k *ownKeys) Plan(by string) (plan string, known bool) {
	if who, ok := k.Keys.(Planner); ok {
		return who.Plan(by)
	}
	return "", false
}

// Digested reports whether AppendKey appends the digest of a value.
func (k *ownKeys) Digested(source string) bool {
	if k.route != nil && strings.HasPrefix(source, pathSource+":") {
		return false
	}
	return isDigested(k.Keys, source)
}

// countedParameters returns the names of the parameters that windows of l count by.
func countedParameters(l *Limiter) (names []string) {
	for _, w := range l.Rows() {
		for _, part := range w.Key {
			for _, source := range part {
				if name, ok := strings.CutPrefix(source, pathSource+":"); ok {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// checkParameters rejects a window that counts by a parameter that a route of the limiter does not
// have: its requests would be counted by the next alternative.
func (c *checker) checkParameters(l *Limiter, k Key, window int) {
	for _, part := range k {
		for _, source := range part {
			name, ok := strings.CutPrefix(source, pathSource+":")
			if !ok {
				continue
			}
			for _, r := range l.Routes {
				if has := r.Parameters(); !slices.Contains(has, name) {
					c.add("windows", window, source, "key source %q: route %q has no parameter {%s}: it has %s; every route of the limiter needs it", source, r, name, inBraces(has))
					break
				}
			}
		}
	}
}

func inBraces(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return "{" + strings.Join(names, "}, {") + "}"
}
