package identity

import (
	"errors"
	"fmt"
	"time"
)

// verifyToken verifies the API token of the request. A session may be beside it, in Authorization:
// Bearer, but no other token: a caller with two could have each request counted by the one and
// served by the other. The session is verified last, so that nobody without a valid token has
// signatures verified by this. What is there and does not verify may be a token to the backend, so
// the request has none.
func (c *Caller) verifyToken() (*TokenClaims, error) {
	r := c.resolver
	if r.options.Tokens == nil {
		return nil, ErrUnverifiable
	}
	credential, beside, err := tokenOf(c.request, r.places)
	if err != nil {
		return nil, err
	}
	if beside != "" && (r.options.Sessions == nil || checkSpelling(beside) != nil) {
		return nil, errTwoTokens
	}
	now := r.now(c)
	claims, err := r.checkedClaims(credential, now)
	if err != nil || beside == "" {
		return claims, err
	}
	session, err := c.verifiedSession()
	if err == ErrNotChecked {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("the request has two different tokens, and the one in Authorization: Bearer is not a valid session (%w): send one, or a valid session", err)
	}
	if err := session.isNoToken(r.options.Tokens, beside, now); err != nil {
		return nil, err
	}
	return claims, nil
}

// checkedClaims returns the claims of a token, which is valid at now.
func (r *Resolver) checkedClaims(credential string, now time.Time) (*TokenClaims, error) {
	if t := r.tokens.find(credential); t != nil {
		if err := t.holds(r.options.Tokens, now); err != nil {
			if err == errTokenRefused || err == errTokenExpired {
				r.tokens.drop(credential)
			}
			return nil, err
		}
		return t.claims.Load(), nil
	}
	t, err := checkToken(r.options.Tokens, credential, now)
	if err != nil {
		return nil, err
	}
	r.tokens.keep(credential, t)
	return t.claims.Load(), nil
}

// isNoToken returns an error if a session, whose text is credential, is a valid API token as well,
// or if that cannot be found out. A service may have registered a JWT as a key. It is looked up
// about twice a second, as a token is.
func (s *verifiedSession) isNoToken(tokens Tokens, credential string, now time.Time) error {
	if since := elapsed(time.Duration(now.UnixNano() - s.noToken.Load())); since < recheckMay {
		return nil
	}
	switch _, err := checkToken(tokens, credential, now); {
	case err == nil:
		return errTwoTokens
	case errors.Is(err, ErrUnreadable):
		return err
	}
	s.noToken.Store(now.UnixNano())
	return nil
}
