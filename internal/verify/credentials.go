package verify

import (
	"context"
	"errors"
	"fmt"
)

// A CredentialError reports that a given credential does not verify. Nothing was judged.
type CredentialError struct {
	Kind       string // "session token" or "API token"
	Number, Of int    // which of the given ones, from 1
	Request    string // method and path that were answered 401
}

func (e *CredentialError) Error() string {
	which := "the " + e.Kind
	if e.Of > 1 {
		which = fmt.Sprintf("%s %d of %d", e.Kind, e.Number, e.Of)
	}
	return fmt.Sprintf("%s that was given is answered 401 at %s: it does not verify there", which, e.Request)
}

// triesForCredential is how often a credential is tried while answers are lost.
const triesForCredential = 2

// given returns the given credentials of a kind.
func (o *Options) given(kind string) []string {
	if kind == sourceSession {
		return o.Sessions
	}
	return o.Tokens
}

// forCredentials returns how many requests find out whether the given credentials verify.
func (p *Plan) forCredentials() (n int) {
	for _, kind := range []string{sourceSession, sourceToken} {
		if p.asksFor(kind) != nil {
			n += triesForCredential * len(p.options.given(kind))
		}
	}
	return n
}

// asksFor returns a part whose limiter counts by a kind of credential, or nil.
func (p *Plan) asksFor(kind string) *part {
	for _, w := range p.parts {
		if credentialOf(w.limiter) == kind {
			return w
		}
	}
	return nil
}

// checkCredentials tries each given credential, and returns a *CredentialError if one does not
// verify. If its address's budget is spent or the answer is lost, that is unknown, and the
// credential is used like any other.
func (r *runner) checkCredentials(ctx context.Context) error {
	for _, kind := range []string{sourceSession, sourceToken} {
		w := r.plan.asksFor(kind)
		if w == nil {
			continue
		}
		all := r.options.given(kind)
		for i, credential := range all {
			c := caller{authorization: credential, place: r.options.placeOf(kind), agent: freshAgent(), segments: w.segments}
			for source := range w.segments {
				c = c.another(source) // main's value begins its window later
			}
			a, err := r.sendTwice(ctx, c.request(r.options, w.endpoints[0]))
			if err != nil {
				return err
			}
			if a != nil {
				r.tried[w] = append(r.tried[w], tried{credential, a})
			}
			if a != nil && a.status == unauthenticatedStatus(&r.options.Policy.Responses) {
				return &CredentialError{Kind: kindInWords[kind], Number: i + 1, Of: len(all), Request: w.endpoints[0].String()}
			}
			if a != nil && a.status == refusedStatus(&r.options.Policy.Responses) {
				r.remark("%s %d of %d could not be tried: %s is refused, since its budget or the address's is spent. "+
					"Run it again after X-RateLimit-Reset", kindInWords[kind], i+1, len(all), w.endpoints[0])
			}
		}
	}
	return nil
}

// A tried credential is a given one that was sent once.
type tried struct {
	credential string
	answer     *answer
}

// sendTwice sends a request that is in no limiter's share, and again after a lost answer. The
// answer is nil if both are lost.
func (r *runner) sendTwice(ctx context.Context, ask request) (*answer, error) {
	for range triesForCredential {
		a, err := r.wire.send(ctx, ask, func() bool { return true })
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if lost, ok := errors.AsType[*lostError](err); ok && lost.unsent {
			return nil, fmt.Errorf("verify %s: %w", r.options.URL.Redacted(), err)
		}
	}
	return nil, nil
}
