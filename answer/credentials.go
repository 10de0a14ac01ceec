package answer

import (
	"errors"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// An access is whether a request needs the credential that its limiter counts by.
type access uint8

const (
	protected access = iota // without a valid credential, it is answered 401
	public                  // it needs none
	anonymous               // protected, and counted apart: the caller lacks the credential
)

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

// recordSpent records the address of a refused caller as spent if a session was asked for and the
// caller has no valid one. identity then verifies a bounded number of bad public-key signatures a
// second from that address until all that refused is over (D16). Which window refused makes no
// difference: a request that would be admitted has its session verified all the same.
func (j *Judge) recordSpent(l *weir.Limiter, c *identity.Caller, d *weir.Decision) {
	if c == nil || !c.Unverified() {
		return
	}
	seconds := int64(1) // a slot may be free by then, or the store answer
	for _, s := range d.Standings() {
		if s.Refused {
			seconds = max(seconds, s.Reset-d.Now)
		}
	}
	j.options.Identity.Spent(c, l.Name, time.Duration(seconds)*time.Second)
}

// dependsOnCredential reports whether a caller with a valid credential may have another budget in
// each window that refused: it counts by a credential, or by everyone, whose budget anonymous
// callers do not spend, or a plan changes its limit, or, if a token is beside the session, the
// limiter has other rules for some tokens. No plan or override changes a penalty.
func dependsOnCredential(d *weir.Decision, access access, c *identity.Caller) bool {
	for _, s := range d.Standings() {
		if s.Refused && !s.Penalty && weir.SourceOf(s.Limiter.Plans.By).Kind == weir.Credential && s.Limiter.Plans.Changes(s.Window) {
			continue
		}
		if s.Refused && c.TokenUnchecked() && namesTokens(s.Limiter, s.Penalty) {
			continue
		}
		if s.Refused && !usesCredential(s.Window.Key) && !(access == anonymous && s.Window.Key.Uses(identity.Everyone)) {
			return false
		}
	}
	return true
}

// namesTokens reports whether l exempts some tokens, or has overrides for them, which change no
// penalty.
func namesTokens(l *weir.Limiter, penalty bool) bool {
	return slices.ContainsFunc(l.Exempt, func(w weir.Who) bool { return w.Token != "" }) ||
		!penalty && slices.ContainsFunc(l.Overrides, func(o weir.Override) bool { return o.For.Token != "" })
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
