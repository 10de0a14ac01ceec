package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// A CredentialError says that a credential which was given does not verify. Nothing was judged
// then.
type CredentialError struct {
	Kind       string // "session token" or "API token"
	Number, Of int    // which of those that were given, from 1
	Request    string // that was answered 401: method and path
}

func (e *CredentialError) Error() string {
	which := "the " + e.Kind
	if e.Of > 1 {
		which = fmt.Sprintf("%s %d of %d", e.Kind, e.Number, e.Of)
	}
	return fmt.Sprintf("%s that was given is answered 401 at %s: it does not verify there", which, e.Request)
}

// triesForCredential is how often a credential is tried if its answer is lost.
const triesForCredential = 2

// given returns the credentials of a kind that were given.
func (o *Options) given(kind string) []string {
	if kind == sourceSession {
		return o.Sessions
	}
	return o.Tokens
}

// forCredentials returns how many requests find out whether the credentials verify that were given.
func (p *Plan) forCredentials() (n int) {
	for _, kind := range []string{sourceSession, sourceToken} {
		if p.asksFor(kind) != nil {
			n += triesForCredential * len(p.options.given(kind))
		}
	}
	return n
}

// asksFor returns a part whose limiter counts by a kind of credential; nil: none does.
func (p *Plan) asksFor(kind string) *part {
	for _, w := range p.parts {
		if credentialOf(w.limiter) == kind {
			return w
		}
	}
	return nil
}

var kindInWords = map[string]string{sourceSession: "session token", sourceToken: "API token"}

// checkCredentials errs with a *CredentialError if one of the credentials that were given does not
// verify. It is not known of one that is refused for its address's budget, or whose answer is lost;
// such a one is tried as any other.
func (r *runner) checkCredentials(ctx context.Context) error {
	for _, kind := range []string{sourceSession, sourceToken} {
		w := r.plan.asksFor(kind)
		if w == nil {
			continue
		}
		all := r.options.given(kind)
		for i, credential := range all {
			ask := caller{authorization: credential, agent: freshAgent()}.request(r.options, w.endpoints[0])
			a, err := r.sendTwice(ctx, ask)
			if err != nil {
				return err
			}
			if i == 0 && a != nil {
				r.tried[w] = a
			}
			if a != nil && a.status == http.StatusUnauthorized {
				return &CredentialError{Kind: kindInWords[kind], Number: i + 1, Of: len(all), Request: w.endpoints[0].String()}
			}
			if a != nil && a.status == http.StatusTooManyRequests {
				r.remark("%s %d of %d that was given could not be tried: %s is refused, be it for its budget or for that of "+
					"the address. Run it again after X-RateLimit-Reset", kindInWords[kind], i+1, len(all), w.endpoints[0])
			}
		}
	}
	return nil
}

// sendTwice sends a request of no limiter's share, and once more if its answer is lost. The answer
// is nil if both are.
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
