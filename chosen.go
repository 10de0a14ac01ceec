package weir

import "slices"

// checkChosen rejects a window that a caller could evade: its key has a part that can count by a
// value that the caller chooses, and no other part that it cannot choose (D32). The limiter may
// declare that this is meant (Limiter.Chosen). Without a table of sources nothing is judged.
func (c *checker) checkChosen(l *Limiter) {
	if c.sources == nil {
		return
	}
	chosen := false
	for i, w := range l.Rows() {
		source := c.chosenIn(w.Key)
		chosen = chosen || source != ""
		if source == "" || l.Chosen || slices.ContainsFunc(w.Key, c.holds) || slices.ContainsFunc(w.Key, unreached) {
			continue // or it has another problem: see checkReached
		}
		c.add("windows", i, source, "%q counts by %s, which the caller chooses: it can make up values and get a new budget for each, or spend another caller's; count by ip+%s, or add \"chosen: yes\" to the limiter if that is meant",
			w, source, source)
	}
	if l.Chosen && !chosen {
		c.add("chosen", -1, "yes", "chosen: no window counts by a value that the caller chooses: remove it")
	}
}

// chosenIn returns the first source of a key that the caller chooses, or "". A name that cannot be
// one has a problem already.
func (c *checker) chosenIn(k Key) string {
	for _, part := range k {
		for _, source := range part {
			if s, ok := FindSource(c.sources, source); ok && s.Kind == Chosen {
				if canonical, err := canonicalSource(source); err == nil && canonical == source {
					return source
				}
			}
		}
	}
	return ""
}

// unreached reports whether a part has sources that are never used.
func unreached(p Part) bool {
	_, never := p.reached()
	return len(never) > 0
}

// holds reports whether a part of a key has a value that the caller cannot choose, in any case:
// each of its sources is an address or a verified credential.
func (c *checker) holds(p Part) bool {
	for _, source := range p {
		if s, ok := FindSource(c.sources, source); !ok || s.Kind != Address && s.Kind != Credential {
			return false
		}
	}
	return len(p) > 0
}
