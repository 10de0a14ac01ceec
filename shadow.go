package weir

// A Shadowed is what a limiter in Shadow mode would have said to one request.
type Shadowed struct {
	Limiter  *Limiter  // read only
	Decision *Decision // Allowed says whether it would have let the request pass; nil where Skipped
	Skipped  bool      // it was not asked, because too many takes of shadow limiters wait for the store already
}
