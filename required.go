package weir

import "slices"

// A Credentialed is a caller that may lack the credential that a limiter requires
// (Limiter.Requires). Keys without this method lack none.
//
// Decide counts such a caller apart from what all callers share, and reports that to OnCandidate.
// It does not reject the request: the front door does, once Decide has admitted it.
type Credentialed interface {
	// Lacks reports whether a limiter that requires the credential rejects the caller. It is false
	// for a credential that cannot be verified here. It may verify one, so it is only called if the
	// answer makes a difference.
	Lacks(credential string) bool
}

// rejects reports whether requests of a caller that l admits are rejected all the same, because the
// caller lacks the credential that l requires.
func (l *Limiter) rejects(k Keys) bool {
	if l.Requires == "" {
		return false
	}
	who, ok := k.(Credentialed)
	return ok && who.Lacks(l.Requires)
}

// rejects reports whether a request that d admits is rejected all the same (see Limiter.rejects).
func (d *Decision) rejects(k Keys) bool {
	l := d.Limiter()
	return d.Allowed && l != nil && l.rejects(k)
}

// CountsBy reports whether a window of l, or its InFlight, counts by a credential or by what is
// read from one (Source.Credential). It is false for other sources.
func (l *Limiter) CountsBy(credential string) bool {
	return slices.ContainsFunc(l.Rows(), func(w Window) bool {
		return slices.ContainsFunc(slices.Concat(w.Key...), func(source string) bool { return credential != "" && SourceOf(source).Credential() == credential })
	})
}

// isShared reports whether a window counts all callers together.
func (l *Limiter) isShared() bool {
	for i := range l.Windows {
		if l.Windows[i].Key.Uses(everyoneSource) {
			return true
		}
	}
	return false
}

// CountedApart reports whether the last decision with this Scratch counted the sender apart from
// what all callers share, because it lacks the credential that the limiter requires.
func (s *Scratch) CountedApart() bool { return s.own.apart }
