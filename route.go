package weir

import "slices"

// A Match is the limiter that covers a request, and the route by which it does. The zero value
// means that no limiter covers the request.
type Match struct {
	limiter *limiter
	route   *Route
	trials  *trials // what the request is tried out under; nil: nothing, as nearly always
}

// Limiter returns the limiter, read only. It is nil for a request that no limiter covers.
func (m Match) Limiter() *Limiter {
	if m.limiter == nil {
		return nil
	}
	return &m.limiter.Limiter
}

// Route returns the route. It is the zero Route if no limiter covers the request, or if the limiter
// was named.
func (m Match) Route() Route {
	if m.route == nil {
		return Route{}
	}
	return *m.route
}

// HasTrials reports whether the request has trials: a limiter in Shadow mode, or a candidate
// policy. Then Decide must be called even if no limiter covers the request.
func (m Match) HasTrials() bool { return m.trials != nil }

// find returns the match of a request that names no limiters.
func (d *Decider) find(r *Request) Match {
	if len(r.Limiters) > 0 || r.Match.limiter != nil || r.Match.trials != nil {
		return r.Match
	}
	return d.Match(r.Method, r.Path)
}

// Match returns the most specific route that covers a request (D8). path is decoded and need not be
// canonical.
func (d *Decider) Match(method, path string) Match {
	m := d.compiled.Load().match(method, path)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.table.match(method, path))
	}
	return m
}

// CatchAll returns the least specific route that covers path. It prefers routes for any method. A
// request of which no single reading is safe is charged to it (D10).
func (d *Decider) CatchAll(path string) Match {
	m := d.compiled.Load().table.catchAll(path)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.table.catchAll(path))
	}
	return m
}

// Named returns the limiter of that name, or the zero Match for an unknown name.
func (d *Decider) Named(name string) Match {
	m := d.compiled.Load().byName(name)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.byName(name))
	}
	return m
}

// match returns the most specific enforced limiter, with the limiters in Shadow mode that are more
// specific.
func (c *compiled) match(method, path string) Match {
	if c.all == nil {
		return c.table.match(method, path)
	}
	var found Match
	n := 0
	var met trials
	c.all.walk(method, path, func(m Match) bool {
		if m.limiter.Mode != Shadow {
			found = m
			return false
		}
		for _, s := range met.shadows[:n] {
			if s == m.limiter {
				return true
			}
		}
		if n < MaxShadows { // always, because of checkShadows
			met.shadows[n] = m.limiter
			n++
		}
		return true
	})
	if n > 0 {
		found.trials = &met
	}
	return found
}

// byName returns the limiter of a name as a Match.
func (c *compiled) byName(name string) Match {
	l := c.named[name]
	if l != nil && l.Mode == Shadow {
		return Match{trials: (*trials)(nil).shadow(l)}
	}
	return Match{limiter: l}
}

// A table finds the most specific route of a path (D8). It maps the folded path of each route to
// the routes with that path. A look-up tries the whole path, then each shorter length that any
// route has. So its cost grows with the number of distinct lengths, not with the number of routes.
type table struct {
	nodes   map[string]*node
	lengths []int // of the keys of nodes, longest first
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
}

type entry struct {
	method string // empty: any
	match  Match
}

// match returns the most specific route for method and path. path need not be canonical.
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

// match returns the node's most specific route for method and the node's path followed by rest.
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

// walk calls visit with every route that covers method and path, the most specific first, until
// visit returns false. Of equally specific routes, those in Shadow mode come first.
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

// walk visits the node's routes in the order of match, and returns false if visit did.
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

// catchAll returns the least specific route that covers path. It prefers routes for any method.
func (t *table) catchAll(path string) Match {
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

// add adds a route. If an earlier route has its place, add returns the match of that, and false.
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
