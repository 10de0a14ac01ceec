package weir

import "slices"

// A Match is the limiter that covers a request, and the route by which it does. The zero value
// means that no limiter covers the request.
type Match struct {
	by     *cover  // nil: no limiter covers the request
	path   string  // folded; empty for a limiter that was named
	trials *trials // what the request is tried out under; nil: nothing, as nearly always
}

// A cover is a limiter, and the route by which it covers a request; nil for one that was named.
type cover struct {
	limiter *limiter
	route   *Route
}

// Limiter returns the limiter, read only. It is nil for a request that no limiter covers.
func (m Match) Limiter() *Limiter {
	if m.by == nil {
		return nil
	}
	return &m.by.limiter.Limiter
}

// Route returns the route. It is the zero Route if no limiter covers the request, or if the limiter
// was named.
func (m Match) Route() Route {
	if m.by == nil || m.by.route == nil {
		return Route{}
	}
	return *m.by.route
}

// HasTrials reports whether the request has trials: a limiter in Shadow mode, or a candidate
// policy. Then Decide must be called even if no limiter covers the request.
func (m Match) HasTrials() bool { return m.trials != nil }

// find returns the match of a request that names no limiters.
func (d *Decider) find(r *Request) Match {
	if len(r.Limiters)+len(r.Asks) > 0 || r.Match.by != nil || r.Match.trials != nil {
		return r.Match
	}
	return d.Match(r.Method, r.Host, r.Path)
}

// Match returns the most specific route that covers a request (D8): of the routes that name its
// host, else of those with a star, the longest name first, else of those that name none (D33). host
// is the value of its Host field, as received. path is decoded and need not be canonical.
func (d *Decider) Match(method, host, path string) Match {
	p := folded(path)
	m := d.compiled.Load().match(method, host, p)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.routes.match(method, host, p), p)
	}
	return m
}

// match returns the match of a folded path that by covers; the zero Match if by is nil.
func (by *cover) match(path string) Match {
	if by == nil {
		return Match{}
	}
	return Match{by: by, path: path}
}

// CatchAll returns the least specific route that covers path, of the narrowest host that has one
// (see Match). It prefers routes for any method. A request of which no single reading is safe is
// charged to it (D10).
func (d *Decider) CatchAll(host, path string) Match {
	p := folded(path)
	m := d.compiled.Load().routes.catchAll(host, p).match(p)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.routes.catchAll(host, p), p)
	}
	return m
}

// Named returns the limiter of that name, or the zero Match for an unknown name.
func (d *Decider) Named(name string) Match {
	m := d.compiled.Load().byName(name)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.byName(name).by, "")
	}
	return m
}

// match returns the most specific enforced limiter, with the limiters in Shadow mode that are more
// specific. path is folded.
func (c *compiled) match(method, host, path string) Match {
	if c.all == nil {
		return c.routes.match(method, host, path).match(path)
	}
	var found *cover
	n := 0
	var met trials
	c.all.Get(host).walk(method, path, func(by *cover) bool {
		if by.limiter.Mode != Shadow {
			found = by
			return false
		}
		for _, s := range met.shadows[:n] {
			if s.limiter == by.limiter {
				return true
			}
		}
		if n < MaxShadows { // always, because of checkShadows
			met.shadows[n] = by
			n++
		}
		return true
	})
	m := found.match(path)
	if n > 0 {
		m.path, m.trials = path, &met
	}
	return m
}

// byName returns the limiter of a name as a Match.
func (c *compiled) byName(name string) Match {
	l := c.named[name]
	if l != nil && l.Mode == Shadow {
		return Match{trials: (*trials)(nil).shadow(&l.named)}
	}
	if l == nil {
		return Match{}
	}
	return Match{by: &l.named}
}

// A table finds the most specific route of a path (D8). It maps the folded path of each route, up
// to its first parameter, to the routes that begin so. A look-up tries the whole path, then each
// shorter length that any route has. So its cost grows with the number of distinct lengths, not
// with the number of routes. Routes that continue with a parameter are in a table of their own,
// which takes what follows the parameter's segment. A look-up visits each table at most once,
// because the table's routes all have the same number of segments before it.
type table struct {
	nodes   map[string]*node
	lengths []length // of the keys of nodes, longest first
}

// A length is that of some keys of a table's nodes, and what rules most paths out without a look-up
// of the key, which takes 15 ns.
type length struct {
	n int
	// anywhere is true if one of those nodes has a prefix route, which any byte can follow. Else
	// the path ends there, or goes on with "/" or ".".
	anywhere bool
	last     [4]uint64 // the set of the last bytes of those keys
}

// fits reports whether a folded path can begin with a key of the length.
func (l *length) fits(path string) bool {
	switch {
	case l.n > len(path):
		return false
	case l.n == 0:
		return true
	case l.anywhere:
		c := path[l.n-1]
		return l.last[c/64]&(1<<(c%64)) != 0
	}
	return l.n == len(path) || path[l.n] == '/' || path[l.n] == '.'
}

// A node holds the routes of one folded path, by how they match.
type node struct {
	// literal routes cover the path, and the path followed by "/" or "." unless a more specific
	// route does (D10).
	literal []entry
	// segment routes ("path/*") cover everything below the path, the path, and the path followed by
	// ".".
	segment []entry
	// prefix routes ("path*") cover everything that begins with the path.
	prefix []entry
	// parameter has the routes that continue with a parameter ("path/{name}…"), or is nil.
	parameter *table
}

type entry struct {
	method string // empty: any
	by     *cover
}

// match returns the most specific route for method and a folded path.
func (t *table) match(method, path string) *cover {
	for i := range t.lengths {
		l := &t.lengths[i]
		if !l.fits(path) {
			continue
		}
		n, rest := t.nodes[path[:l.n]], path[l.n:]
		if n == nil {
			continue
		}
		if n.parameter != nil && startsSegment(rest) {
			_, after := cutSegment(rest)
			if by := n.parameter.match(method, after); by != nil {
				return by
			}
		}
		if by := n.match(method, rest); by != nil {
			return by
		}
	}
	return nil
}

func startsSegment(rest string) bool { return rest != "" && rest[0] == '/' }

// match returns the most specific route for method and the node's path followed by rest, of those
// that do not continue with a parameter.
func (n *node) match(method, rest string) *cover {
	first, second := n.covering(rest)
	if by := find(first, method); by != nil {
		return by
	}
	if by := find(second, method); by != nil {
		return by
	}
	return find(n.prefix, method)
}

// covering returns the entries that cover the node's path followed by rest, in their order and
// without n.prefix.
func (n *node) covering(rest string) (first, second []entry) {
	switch {
	case rest == "" || rest[0] == '.':
		return n.literal, n.segment
	case rest[0] == '/': // the segment route is declared for it; the literal one only covers it too
		return n.segment, n.literal
	}
	return nil, nil
}

// find prefers an entry with the method to one for any method. A HEAD is counted as a GET, because
// the same handler serves it.
func find(entries []entry, method string) *cover {
	var any, get *cover
	for _, e := range entries {
		switch {
		case e.method == method && method != "":
			return e.by
		case e.method == "":
			any = e.by
		case e.method == "GET" && method == "HEAD":
			get = e.by
		}
	}
	if get != nil {
		return get
	}
	return any
}

// walk calls visit with every route that covers method and a folded path, the most specific first,
// until visit returns false; then walk returns false. Of equally specific routes, those in Shadow
// mode come first.
func (t *table) walk(method, path string, visit func(*cover) bool) bool {
	for i := range t.lengths {
		l := &t.lengths[i]
		if !l.fits(path) {
			continue
		}
		n, rest := t.nodes[path[:l.n]], path[l.n:]
		if n == nil {
			continue
		}
		if n.parameter != nil && startsSegment(rest) {
			_, after := cutSegment(rest)
			if !n.parameter.walk(method, after, visit) {
				return false
			}
		}
		if !n.walk(method, rest, visit) {
			return false
		}
	}
	return true
}

// walk visits the node's own routes in the order of match, and returns false if visit did.
func (n *node) walk(method, rest string, visit func(*cover) bool) bool {
	first, second := n.covering(rest)
	for _, entries := range [...][]entry{first, second, n.prefix} {
		for rank := rankExact; rank <= rankAny; rank++ {
			for _, mode := range [...]Mode{Shadow, Enforce} {
				for _, e := range entries {
					if e.by.limiter.Mode == mode && e.rank(method) == rank && !visit(e.by) {
						return false
					}
				}
			}
		}
	}
	return true
}

// The ranks of an entry for a request's method, the best first.
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

// catchAll returns the least specific route that covers a folded path. It prefers routes for any
// method.
func (t *table) catchAll(path string) *cover {
	var withMethod *cover
	if by := t.widest(path, &withMethod); by != nil {
		return by
	}
	return withMethod
}

// widest returns the least specific route for any method that covers a folded path. On its way
// there, it sets withMethod to the first route with a method, unless that is set.
func (t *table) widest(path string, withMethod **cover) *cover {
	for i := len(t.lengths) - 1; i >= 0; i-- {
		l := &t.lengths[i]
		if !l.fits(path) {
			continue
		}
		n, rest := t.nodes[path[:l.n]], path[l.n:]
		if n == nil {
			continue
		}
		if by := n.match("", rest); by != nil {
			return by
		}
		if by := n.anyMethod(rest); by != nil && *withMethod == nil {
			*withMethod = by
		}
		if n.parameter == nil || !startsSegment(rest) {
			continue
		}
		_, after := cutSegment(rest)
		if by := n.parameter.widest(after, withMethod); by != nil {
			return by
		}
	}
	return nil
}

func (n *node) anyMethod(rest string) *cover {
	for _, entries := range [][]entry{n.prefix, n.segment, n.literal} {
		for _, e := range entries {
			if by := n.match(e.method, rest); by != nil {
				return by
			}
		}
	}
	return nil
}

// add adds a route. If an earlier route has its place, add returns the cover of that, and false.
func (t *table) add(r Route, by *cover) (taken *cover, ok bool) {
	path, _, after, more := cutParameter(folded(r.Path))
	for more {
		n := t.node(path, false)
		if n.parameter == nil {
			n.parameter = newTable()
		}
		t = n.parameter
		path, _, after, more = cutParameter(after)
	}
	n := t.node(path, r.Prefix && r.Path[len(r.Path)-1] != '/')
	kind := n.kind(r)
	for _, e := range *kind {
		shadowed := e.by.limiter.Mode == Shadow || by.limiter.Mode == Shadow
		if e.method == r.Method && (!shadowed || e.by.limiter == by.limiter) {
			return e.by, false
		}
	}
	*kind = append(*kind, entry{r.Method, by})
	return nil, true
}

func newTable() *table { return &table{nodes: make(map[string]*node)} }

// node returns the node of a path, and adds a missing one first. anywhere is that of length.
func (t *table) node(path string, anywhere bool) *node {
	i, found := slices.BinarySearchFunc(t.lengths, len(path), func(a length, b int) int { return b - a.n })
	if !found {
		t.lengths = slices.Insert(t.lengths, i, length{n: len(path)})
	}
	l := &t.lengths[i]
	l.anywhere = l.anywhere || anywhere
	if path != "" {
		c := path[len(path)-1]
		l.last[c/64] |= 1 << (c % 64)
	}
	n := t.nodes[path]
	if n == nil {
		n = new(node)
		t.nodes[path] = n
	}
	return n
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
