package weir

import (
	"bytes"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A Match is the limiter that covers a request, and the route that said so. The zero value covers nothing.
type Match struct {
	limiter *limiter
	route   *Route
	beside  *beside // what the request is evaluated under with no effect; nil, as nearly always
}

// Beside reports whether the request is to be evaluated under something that has no effect on it (a limiter in Shadow mode, a
// candidate policy): Decide is to be asked then though no limiter covers the request.
func (m Match) Beside() bool { return m.beside != nil }

// Limiter returns the matched limiter, read only; nil where no limiter covers the request.
func (m Match) Limiter() *Limiter {
	if m.limiter == nil {
		return nil
	}
	return &m.limiter.Limiter
}

// Route returns the matched route; the zero Route where there is none or the limiter was named outright.
func (m Match) Route() Route {
	if m.route == nil {
		return Route{}
	}
	return *m.route
}

// A table finds the most specific route of a path (D8). It is a map from the folded path of every route to the routes
// there, asked first for the whole path and then for each shorter length that any route has: the cost of a look-up grows
// with the number of distinct lengths, not of routes.
type table struct {
	nodes   map[string]*node
	lengths []int // of the keys of nodes, longest first
}

// A node holds the routes of one folded path, by how they match.
type node struct {
	literal []entry // the path itself; also what follows it after "/" or "." where nothing more specific does (D10)
	segment []entry // "path/*": everything below it, and the path itself with what follows it after "."
	prefix  []entry // "path*": everything that begins so
}

type entry struct {
	method string // empty: any
	match  Match
}

// add files a route and returns the match that stands in its place already, if any.
func (t *table) add(r Route, m Match) (taken Match, ok bool) {
	path := folded(r.Path)
	n := t.nodes[path]
	if n == nil {
		n = new(node)
		t.nodes[path] = n
		if i, found := slices.BinarySearchFunc(t.lengths, len(path), func(a, b int) int { return b - a }); !found {
			t.lengths = slices.Insert(t.lengths, i, len(path))
		}
	}
	kind := n.kind(r)
	for _, e := range *kind {
		shadowed := e.match.limiter.Mode == Shadow || m.limiter.Mode == Shadow
		if e.method == r.Method && (!shadowed || e.match.limiter == m.limiter) {
			return e.match, false
		}
	}
	*kind = append(*kind, entry{r.Method, m})
	return Match{}, true
}

func (n *node) kind(r Route) *[]entry {
	switch {
	case !r.Prefix:
		return &n.literal
	case r.Path[len(r.Path)-1] == '/':
		return &n.segment
	}
	return &n.prefix
}

// match returns the most specific route for method and path, which need not be canonical.
func (t *table) match(method, path string) Match {
	p := folded(path)
	for _, l := range t.lengths {
		if l > len(p) {
			continue
		}
		n := t.nodes[p[:l]]
		if n == nil {
			continue
		}
		if m := n.match(method, p[l:]); m.limiter != nil {
			return m
		}
	}
	return Match{}
}

// match returns the node's most specific route for method where rest follows the node's path.
func (n *node) match(method, rest string) Match {
	first, second := n.covering(rest)
	if m := find(first, method); m.limiter != nil {
		return m
	}
	if m := find(second, method); m.limiter != nil {
		return m
	}
	return find(n.prefix, method)
}

// covering returns which entries cover what follows the node's path, in order, beside those of n.prefix.
func (n *node) covering(rest string) (first, second []entry) {
	switch {
	case rest == "" || rest[0] == '.':
		return n.literal, n.segment
	case rest[0] == '/': // what is below is declared for the segment route, and only reaches the literal one
		return n.segment, n.literal
	}
	return nil, nil
}

// find prefers the route with the method over the one for any; HEAD is served by whatever serves GET, so it is counted
// there too.
func find(entries []entry, method string) Match {
	var any, get Match
	for _, e := range entries {
		switch {
		case e.method == method && method != "":
			return e.match
		case e.method == "":
			any = e.match
		case e.method == "GET" && method == "HEAD":
			get = e.match
		}
	}
	if get.limiter != nil {
		return get
	}
	return any
}

// walk calls visit with every route that covers method and path, the most specific first, until it returns false. Of equally
// specific ones those in Shadow mode come first.
func (t *table) walk(method, path string, visit func(Match) bool) {
	p := folded(path)
	for _, l := range t.lengths {
		if l > len(p) {
			continue
		}
		if n := t.nodes[p[:l]]; n != nil && !n.walk(method, p[l:], visit) {
			return
		}
	}
}

// walk goes through the node's routes in the order in which match prefers them, and reports whether to go on.
func (n *node) walk(method, rest string, visit func(Match) bool) bool {
	first, second := n.covering(rest)
	for _, entries := range [...][]entry{first, second, n.prefix} {
		for rank := rankExact; rank <= rankAny; rank++ {
			for _, mode := range [...]Mode{Shadow, Enforce} {
				for _, e := range entries {
					if e.match.limiter.Mode == mode && e.rank(method) == rank && !visit(e.match) {
						return false
					}
				}
			}
		}
	}
	return true
}

// How an entry's method covers a request's.
const (
	rankExact = iota
	rankGet
	rankAny
	rankNone
)

func (e *entry) rank(method string) int {
	switch {
	case e.method == method && method != "":
		return rankExact
	case e.method == "":
		return rankAny
	case e.method == "GET" && method == "HEAD":
		return rankGet
	}
	return rankNone
}

// fallback returns the least specific route that covers path, one for any method before one with a method.
func (t *table) fallback(path string) Match {
	p := folded(path)
	var withMethod Match
	for _, l := range slices.Backward(t.lengths) {
		if l > len(p) {
			break
		}
		n := t.nodes[p[:l]]
		if n == nil {
			continue
		}
		if m := n.match("", p[l:]); m.limiter != nil {
			return m
		}
		if m := n.anyMethod(p[l:]); m.limiter != nil && withMethod.limiter == nil {
			withMethod = m
		}
	}
	return withMethod
}

func (n *node) anyMethod(rest string) Match {
	for _, entries := range [][]entry{n.prefix, n.segment, n.literal} {
		for _, e := range entries {
			if m := n.match(e.method, rest); m.limiter != nil {
				return m
			}
		}
	}
	return Match{}
}

// folded returns the form of path that chooses the limiter (see fold). The root is the empty path: everything is below it.
// Most paths are in that form already, which a glance at each byte tells, and are not copied.
func folded(path string) string {
	if isFolded(path) {
		return path
	}
	if p := string(fold(nil, path)); p != "/" {
		return p
	}
	return ""
}

func isFolded(path string) bool {
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	before := byte(0)
	for _, c := range []byte(path) {
		switch {
		case plain[c]:
		case c == '/' && before != '/':
		case c == '.' && before != '/': // a segment that begins with a dot is looked at more closely
		default:
			return false
		}
		before = c
	}
	return true
}

// plain holds the bytes that stand for themselves wherever they stand in a path.
var plain = func() (t [256]bool) {
	for c := range utf8.RuneSelf {
		t[c] = !('A' <= c && c <= 'Z') && c != '/' && c != '\\' && c != '.' && c != ';'
	}
	return t
}()

// fold appends the form of path that chooses the limiter, and only that (D10): letters in lower case, ";parameters",
// empty segments and trailing slashes dropped, a backslash read as a slash, dot segments resolved. Whatever backends
// think of such spellings, each is counted.
func fold(dst []byte, path string) []byte {
	for i := 0; i < len(path); {
		if isSlash(path[i]) {
			i++
			continue
		}
		start := len(dst)
		dst = append(dst, '/')
		for i < len(path) && !isSlash(path[i]) && path[i] != ';' {
			c := path[i]
			if c >= utf8.RuneSelf {
				r, size := utf8.DecodeRuneInString(path[i:])
				dst = appendFolded(dst, r, path[i:i+size])
				i += size
				continue
			}
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
		}
		for i < len(path) && !isSlash(path[i]) {
			i++
		}
		switch string(dst[start:]) {
		case "/", "/.":
			dst = dst[:start]
		case "/..":
			dst = dst[:max(bytes.LastIndexByte(dst[:start], '/'), 0)]
		}
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// appendFolded appends one letter of a class that some case-insensitive comparison takes for the same: the Kelvin sign is a
// k, the dotless i an i, the sharp s a double s. Bytes that are no UTF-8 stay as they are.
func appendFolded(dst []byte, r rune, raw string) []byte {
	if r == utf8.RuneError {
		return append(dst, raw...)
	}
	if letters, ok := unfolded[r]; ok {
		return append(dst, letters...)
	}
	least := r
	for s := unicode.SimpleFold(r); s != r; s = unicode.SimpleFold(s) {
		least = min(least, s)
	}
	return utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(least)))
}

// unfolded holds the letters whose full case folding (Unicode, CaseFolding.txt, status F) is several ASCII letters, and the
// capital I with a dot, which some languages' rules fold to an i.
var unfolded = map[rune]string{
	'\u00DF': "ss", '\u1E9E': "ss", '\u0130': "i",
	'\uFB00': "ff", '\uFB01': "fi", '\uFB02': "fl", '\uFB03': "ffi", '\uFB04': "ffl", '\uFB05': "st", '\uFB06': "st",
}
