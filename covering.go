package weir

// Covering returns every route that covers a request, the most specific first (D8), with its
// limiter. Match returns the first of them whose limiter is not in Shadow mode. path is decoded and
// need not be canonical.
func (r *Routes) Covering(method, path string) []Match {
	t := &r.compiled.table
	if r.compiled.all != nil {
		t = r.compiled.all
	}
	var all []Match
	t.walk(method, path, func(m Match) bool {
		all = append(all, m)
		return true
	})
	return all
}
