package weir

// Routes say which limiter covers a request, and nothing of who is calling or how much is left: for a side that does not
// count, such as a caller that paces itself. A Decider has the same inside. Routes are safe for concurrent use.
type Routes struct{ compiled *compiled }

// NewRoutes compiles a policy. One with problems gives a *PolicyError that holds all of them.
func NewRoutes(p Policy) (*Routes, error) {
	c, problems := compile(p, nil)
	if len(problems) > 0 {
		return nil, &PolicyError{Policy: p, Problems: problems}
	}
	return &Routes{c}, nil
}

// Match returns the most specific route for a request (D8). path is decoded and need not be canonical.
func (r *Routes) Match(method, path string) Match {
	return r.compiled.table.match(method, path)
}
