package identity_test

import (
	"slices"
	"testing"

	"github.com/weirlimit/weir/identity"
)

func TestKeysOfASessionIDIncludeItsTokensKey(t *testing.T) {
	for name, c := range map[string]struct {
		options identity.SessionsOptions
		token   string
		issuer  string
		keys    int
	}{
		"sid, one issuer":   {identity.SessionsOptions{Issuer: "shop"}, hs256(claims("iss", "shop", "sid", "visit-1", "jti", "other")), "", 2},
		"jti, one issuer":   {identity.SessionsOptions{Issuer: "shop"}, es256(claims("iss", "shop", "jti", "visit-1")), "shop", 2},
		"no issuer, HS256":  {identity.SessionsOptions{}, hs256(claims("sid", "visit-1")), "", 2 * len(allKeys())},
		"no issuer, RS256":  {identity.SessionsOptions{}, rs256(claims("jti", "visit-1")), "", 2 * len(allKeys())},
		"any issuer, named": {identity.SessionsOptions{}, rs256(claims("iss", "a", "sid", "visit-1")), "a", 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := verifier(t, c.options)
			s, err := caller(r, bearing(c.token)).Session()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c.options.Keys = allKeys()
			sessions, err := identity.NewSessions(c.options)
			if err != nil {
				t.Fatal(err)
			}
			keys, err := sessions.KeysOf(c.issuer, "visit-1")
			if err != nil || len(keys) != c.keys || !slices.Contains(keys, s.Key) {
				t.Errorf("%s: %q, %v; the token's is %q", name, keys, err, s.Key)
			}
		})
	}
}

func TestAnIDWithoutABudgetIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		options    identity.SessionsOptions
		issuer, id string
	}{
		"empty":            {identity.SessionsOptions{}, "", ""},
		"a budget a token": {identity.SessionsOptions{BudgetPerToken: true}, "", "visit-1"},
		"another issuer":   {identity.SessionsOptions{Issuer: "shop"}, "evil", "visit-1"},
	} {
		c.options.Keys = allKeys()
		sessions, err := identity.NewSessions(c.options)
		if err != nil {
			t.Fatal(err)
		}
		if keys, err := sessions.KeysOf(c.issuer, c.id); err == nil {
			t.Errorf("%s: %q", name, keys)
		}
	}
}
