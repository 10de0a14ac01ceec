package weir

// Routes find the limiter that covers a request, as a Decider does, and count nothing. They are for
// callers that pace themselves. Routes are safe for concurrent use.
type Routes struct{ compiled *compiled }

// NewRoutes compiles a policy. If it has problems, the error is a *PolicyError with all of them.
func NewRoutes(p Policy) (*Routes, error) {
	c, problems := compile(p, nil)
	if len(problems) > 0 {
		return nil, &PolicyError{Policy: p, Problems: problems}
	}
	return &Routes{c}, nil
}

// Match returns the most specific route that covers a request, as Decider.Match does. host is the
// value of its Host field; empty: only routes that name no host cover the request.
func (r *Routes) Match(method, host, path string) Match {
	p := folded(path)
	return r.compiled.routes.match(method, host, p).match(p)
}

// Covering returns every route that covers a request, the most specific first (D8), with its
// limiter. Match returns the first of them whose limiter is not in Shadow mode.
func (r *Routes) Covering(method, host, path string) []Match {
	s := r.compiled.routes
	if r.compiled.all != nil {
		s = r.compiled.all
	}
	var all []Match
	p := folded(path)
	s.Get(host).walk(method, p, func(by *cover) bool {
		all = append(all, by.match(p))
		return true
	})
	return all
}
