package answer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// An access is whether a request needs the credential that its limiter counts by.
type access uint8

const (
	protected access = iota // without a valid credential, it is answered 401
	public                  // it needs none
	anonymous               // protected, and the caller is known to have no valid credential
)

// decide charges a caller. It returns anonymous if the caller lacks the credential that the limiter
// requires, and the limiter has a window that all callers share.
func (j *Judge) decide(ctx context.Context, a access, r *weir.Request, d *weir.Decision) (access, error) {
	err := j.decider.DecideInto(ctx, r, d)
	switch {
	case r.Scratch.CountedApart():
		a = anonymous
	case a == anonymous:
		a = protected
	}
	return a, err
}

// publicKeys are the keys of a caller whose request needs no credential.
type publicKeys struct{ *identity.Caller }

// Lacks implements weir.Credentialed.
func (publicKeys) Lacks(string) bool { return false }

// requireCredential answers 401 if the caller of an admitted request lacks the credential that the
// limiter requires, and 503 if its validity cannot be determined now.
func (j *Judge) requireCredential(l *weir.Limiter, q *Question, a *Answer) {
	source, err := j.unverified(l, q.Caller)
	if source == "" {
		return
	}
	w := j.preparedFor(a.Decision.Responses())
	if errors.Is(err, identity.ErrUnreadable) {
		v := &w.unreadable
		if w.notAvailable != nil {
			v = w.notAvailable.in(languagesOf(q))
		}
		a.refuse(Unavailable, w, &w.unavailable, v)
		return
	}
	a.refuse(Unauthenticated, w, &w.unauthenticated, j.unauthenticated(w, l, source, err, q))
	a.reason = err.Error()
	if a.Status == statusUnauthorized {
		a.challenge = j.challenge(source, err)
	}
}

// unverified returns the credential that l requires if c does not have it, and the reason. It
// returns an empty source if c has it, if l requires none, or if such a credential cannot be
// verified here (D16, D17, D27).
func (j *Judge) unverified(l *weir.Limiter, c *identity.Caller) (source string, err error) {
	if l.Requires == "" || !j.options.Identity.Verifies(l.Requires) {
		return "", nil
	}
	if err := c.Verified(l.Requires); err != nil {
		return l.Requires, err
	}
	return "", nil
}

// unverifiedPart returns the first credential that one part of a key counts by if c has none of the
// part's, and the reason. One is enough, and one that this deployment has no key to verify counts
// as one that c has (D17).
func (j *Judge) unverifiedPart(part weir.Part, c *identity.Caller) (missing string, why error) {
	for _, source := range part {
		if weir.SourceOf(source).Kind != weir.Credential {
			continue
		}
		if !j.options.Identity.Verifies(source) {
			return "", nil
		}
		err := c.Verified(source)
		if err == nil {
			return "", nil
		}
		if missing == "" {
			missing, why = source, err
		}
	}
	return missing, why
}

// recordSpent records the address of a refused caller as spent if the caller has no valid
// credential. identity then verifies a bounded number of bad public-key signatures a second from
// that address until the window ends (D16). Only a window that counts such a caller by nothing but
// the address qualifies: one agent's spent budget must not affect another agent behind the same
// address.
func (j *Judge) recordSpent(l *weir.Limiter, access access, c *identity.Caller, d *weir.Decision) {
	for _, s := range d.Standings() {
		if s.InFlight { // a slot may be free at once
			continue
		}
		if s.Refused && j.plannedBySession(l) && countsAddressAlone(s.Window.Key) && c.Verified(identity.Session) != nil {
			j.options.Identity.Spent(c, l.Name, time.Duration(s.Reset-d.Now)*time.Second)
			return
		}
		if !s.Refused || !fallsToAddress(s.Window.Key, access) {
			continue
		}
		if access == anonymous && s.Window.Key.Uses(identity.Everyone) {
			if source, err := j.unverified(l, c); source != "" && !errors.Is(err, identity.ErrUnreadable) {
				j.options.Identity.Spent(c, l.Name, time.Duration(s.Reset-d.Now)*time.Second)
				return
			}
		}
		for _, part := range s.Window.Key {
			if source, err := j.unverifiedPart(part, c); source != "" && !errors.Is(err, identity.ErrUnreadable) {
				j.options.Identity.Spent(c, l.Name, time.Duration(s.Reset-d.Now)*time.Second)
				return
			}
		}
	}
}

// plannedBySession reports whether the limits of l depend on a claim of a session that is verified
// here.
func (j *Judge) plannedBySession(l *weir.Limiter) bool {
	return strings.HasPrefix(l.Plans.By, "claim:") && j.options.Identity.Verifies(identity.Session)
}

// countsAddressAlone reports whether k counts every caller by nothing but its address.
func countsAddressAlone(k weir.Key) bool {
	for _, part := range k {
		for _, source := range part {
			if weir.SourceOf(source).Kind != weir.Address {
				return false
			}
		}
	}
	return true
}

// countsByCredential reports whether a window of l, or its limit in flight, may count a caller with
// a valid credential elsewhere than one without.
func countsByCredential(l *weir.Limiter) bool {
	counts := func(k weir.Key) bool { return usesCredential(k) || k.Uses(identity.Everyone) }
	return counts(l.InFlight.Key) || slices.ContainsFunc(l.Windows, func(w weir.Window) bool { return counts(w.Key) })
}

// dependsOnCredential reports whether a caller with a valid credential may have another budget in
// each window that refused: it counts by a credential, or by everyone, whose budget anonymous
// callers do not spend, or a plan of the session changes its limit. No plan changes a penalty.
func dependsOnCredential(d *weir.Decision, access access) bool {
	for _, s := range d.Standings() {
		if s.Refused && !s.Penalty && strings.HasPrefix(s.Limiter.Plans.By, "claim:") && s.Limiter.Plans.Changes(s.Window) {
			continue
		}
		if s.Refused && !usesCredential(s.Window.Key) && !(access == anonymous && s.Window.Key.Uses(identity.Everyone)) {
			return false
		}
	}
	return true
}

func usesCredential(k weir.Key) bool {
	for _, part := range k {
		for _, source := range part {
			if weir.SourceOf(source).Kind == weir.Credential {
				return true
			}
		}
	}
	return false
}

// fallsToAddress reports whether k counts a caller with a valid credential by that or by everyone,
// and a caller without it by nothing but the address.
func fallsToAddress(k weir.Key, access access) bool {
	credential := false
	for _, part := range k {
		for _, source := range part {
			switch weir.SourceOf(source).Kind {
			case weir.Address:
			case weir.Credential:
				credential = true
			case weir.Common:
				if access != anonymous {
					return false
				}
				credential = true
			default:
				return false
			}
		}
	}
	return credential
}
