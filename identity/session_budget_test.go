package identity_test

import (
	"crypto"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/identity"
)

// A session is the issuer or key with sid, otherwise with jti, otherwise the signed
// part (D14).
func TestWhenTwoTokensAreOneSession(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b string
		same bool
	}{
		{"a refreshed token", hs256(claims("sid", "s", "jti", "1")), hs256(claims("sid", "s", "jti", "2")), true},
		{"another sid", hs256(claims("sid", "s")), hs256(claims("sid", "t")), false},
		{"another case", hs256(claims("sid", "s")), hs256(claims("sid", "S")), false},
		{"one jti", hs256(claims("jti", "1", "n", 1)), hs256(claims("jti", "1", "n", 2)), true},
		{"another jti", hs256(claims("jti", "1")), hs256(claims("jti", "2")), false},
		{"a sid is no jti", hs256(claims("sid", "x")), hs256(claims("jti", "x")), false},
		{"neither", hs256(claims("n", 1)), hs256(claims("n", 2)), false},
		{"neither, twice", hs256(claims("n", 1)), hs256(claims("n", 1)), true},
		{"an empty sid is none", hs256(claims("sid", "", "jti", "1")), hs256(claims("jti", "1", "n", 1)), true},
		{"a sid that is no string is none", hs256(claims("sid", 7, "jti", "1")), hs256(claims("sid", []int{7}, "jti", "1")), true},
		{"both empty is neither", hs256(claims("sid", "", "jti", "", "n", 1)), hs256(claims("sid", "", "jti", "", "n", 2)), false},
		{"two issuers", hs256(claims("sid", "s", "iss", "a")), hs256(claims("sid", "s", "iss", "b")), false},
		{"cut elsewhere", hs256(claims("iss", "a", "sid", "sb")), hs256(claims("iss", "as", "sid", "b")), false},
		{"an issuer under two keys", hs256(claims("sid", "s", "iss", "a")), es256(claims("sid", "s", "iss", "a")), true},
		{"two keys without an issuer", hs256(claims("sid", "s")), es256(claims("sid", "s")), false},
		{"an issuer named like a key", hs256(claims("sid", "s", "iss", "hs")), hs256(claims("sid", "s")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := verifier(t, identity.SessionsOptions{})
			if a, b := budget(t, r, c.a), budget(t, r, c.b); (a == b) != c.same {
				t.Errorf("%s: one budget: %v, want %v", c.name, a == b, c.same)
			}
		})
	}
}

// One of several keys must not spend another's budgets (D14).
func TestABudgetBelongsToTheVerifyingKey(t *testing.T) {
	one, two, three := strings.Repeat("1", 32), strings.Repeat("2", 32), strings.Repeat("3", 32)
	resolverFor := func(secrets ...string) *identity.Resolver {
		var keys []identity.SessionKey
		for _, s := range secrets {
			keys = append(keys, must(identity.NewSecretKey("", []byte(s))))
		}
		s := must(identity.NewSessions(identity.SessionsOptions{Keys: keys}))
		return resolver(t, identity.Options{Sessions: s, Now: newClock().Now})
	}
	all, seen := resolverFor(one, two, three), map[string]string{}
	for _, key := range []string{one, two, three} {
		token := signed(header("HS256"), claims("sid", "s"), mac([]byte(key)))
		got := budget(t, all, token)
		if other := seen[got]; other != "" {
			t.Errorf("sessions of the keys %.1s and %.1s share a budget", other, key)
		}
		seen[got] = key
		if alone := budget(t, resolverFor(key), token); alone != got {
			t.Errorf("key %.1s names another budget once there are others", key)
		}
	}
}

// The literal meaning of "per JWT" (D14).
func TestABudgetPerTokenSeparatesRefreshedTokens(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{BudgetPerToken: true})
	a, b := hs256(claims("sid", "s", "jti", "1")), hs256(claims("sid", "s", "jti", "2"))
	if budget(t, r, a) == budget(t, r, b) {
		t.Error("two tokens share a budget")
	}
	if s, err := caller(r, bearing(a)).Session(); err != nil || s.ID != "s" {
		t.Errorf("the session is %q, %v", s.ID, err)
	}
}

// Parts are length-prefixed, never joined (D18).
func TestDifferentSessionsNeverShareAKey(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	word := rapid.StringOfN(rapid.SampledFrom([]rune("ab_\x00isjk\x01")), 1, 6, -1)
	rapid.Check(t, func(rt *rapid.T) {
		iss1, iss2, sid1, sid2 := word.Draw(rt, "iss1"), word.Draw(rt, "iss2"), word.Draw(rt, "sid1"), word.Draw(rt, "sid2")
		a, b := budget(t, r, hs256(claims("iss", iss1, "sid", sid1))), budget(t, r, hs256(claims("iss", iss2, "sid", sid2)))
		if (a == b) != (iss1 == iss2 && sid1 == sid2) {
			rt.Fatalf("%q/%q and %q/%q: one budget: %v", iss1, sid1, iss2, sid2, a == b)
		}
	})
}

// The cache returns only verified tokens (D14).
func TestTheCacheComparesTheWholeToken(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	good := hs256(claims("sid", "s"))
	budget(t, r, good)
	cut := strings.LastIndexByte(good, '.')
	for name, token := range map[string]string{
		"another signature":             good[:cut] + "." + raw(make([]byte, 32)),
		"its first letter changed":      good[:cut] + "." + swapped(good[cut+1:]),
		"no signature":                  good[:cut] + ".",
		"another payload, its own sig":  raw([]byte(`{"alg":"HS256"}`)) + good[strings.IndexByte(good, '.'):],
		"what comes behind it":          good + "A",
		"only its end":                  good[1:],
		"another case of its signature": good[:cut] + strings.ToUpper(good[cut:]),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := caller(r, bearing(token)).Session(); err == nil {
				t.Errorf("%s: a session", name)
			}
		})
	}
	budget(t, r, good)
}

func swapped(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

// A keySet answers lookups and counts them.
type keySet struct {
	asked int
	keys  map[string]crypto.PublicKey
}

func (s *keySet) lookup(kid, _ string) (crypto.PublicKey, error) {
	s.asked++
	if k := s.keys[kid]; k != nil {
		return k, nil
	}
	return nil, errors.New("no such key")
}

func withKid(kid string, payload any) string {
	h := header("ES256")
	h["kid"] = kid
	return signed(h, payload, ecdsaSign)
}

// A cached signature expires (D14).
func TestAWithdrawnKeysSessionEndsWithinFiveMinutes(t *testing.T) {
	set := &keySet{keys: map[string]crypto.PublicKey{"k": &ecdsaKey().PublicKey}}
	r, clock := verifier(t, identity.SessionsOptions{Lookup: set.lookup})
	token := withKid("k", claims("sid", "s"))
	for range 3 {
		budget(t, r, token)
	}
	if set.asked != 1 {
		t.Errorf("%d look-ups for one session", set.asked)
	}
	clock.set(5*time.Minute + 1)
	budget(t, r, token)
	budget(t, r, token)
	if set.asked != 2 {
		t.Errorf("%d look-ups after five minutes, want one more", set.asked)
	}
	set.keys = nil
	clock.set(10 * time.Minute)
	budget(t, r, token)
	clock.set(10*time.Minute + 2)
	for range 2 {
		if _, err := caller(r, bearing(token)).Session(); err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("the key is withdrawn: %v", err)
		}
	}
	set.keys = map[string]crypto.PublicKey{"k": &ecdsaKey().PublicKey}
	budget(t, r, token)
}

// Without an issuer, the verifying key's id is part of the budget (D14).
func TestAKeySetsKeyNamesTheBudget(t *testing.T) {
	set := &keySet{keys: map[string]crypto.PublicKey{"k1": &ecdsaKey().PublicKey, "k2": &ecdsaKey().PublicKey}}
	r, _ := verifier(t, identity.SessionsOptions{Lookup: set.lookup})
	if budget(t, r, withKid("k1", claims("sid", "s"))) == budget(t, r, withKid("k2", claims("sid", "s"))) {
		t.Error("two keys of the set share a budget")
	}
	if _, err := caller(r, bearing(withKid("k3", claims("sid", "s")))).Session(); err == nil {
		t.Error("a session under an unknown key")
	}
}

func TestACallersKeysAreComputedOnce(t *testing.T) {
	set := &keySet{}
	r, _ := verifier(t, identity.SessionsOptions{Lookup: set.lookup})
	c := caller(r, bearing(withKid("k", claims())))
	for range 3 {
		if _, ok := key(c, identity.Session); ok {
			t.Error("a session")
		}
	}
	if set.asked != 1 {
		t.Errorf("%d look-ups in one request", set.asked)
	}
	r.Start(c, bearing(withKid("k", claims())))
	key(c, identity.Session)
	if set.asked != 2 {
		t.Errorf("%d look-ups in two requests", set.asked)
	}
}

// For any bearer there is no panic and no session: the keys sign nothing here.
func FuzzAnArbitraryBearerHasNoSession(f *testing.F) {
	for _, s := range []string{hs256(claims()), es256(claims()), "a.b.c", "..", "wpt_", strings.Repeat("A", 9000), "eyJhbGciOiJIUzI1NiJ9.e30.", "eyJhbGciOjd9.e30.AA"} {
		f.Add(s)
	}
	o := identity.SessionsOptions{Keys: []identity.SessionKey{
		must(identity.NewSecretKey("", []byte(strings.Repeat("unknown to the seeds ", 2)))), must(identity.NewPublicKey("", edKey().Public())),
		must(identity.NewPublicKey("", &rsaKey().PublicKey)),
	}}
	r, _ := verifier(f, o)
	both := resolver(f, identity.Options{Tokens: noTokens{}})
	f.Fuzz(func(t *testing.T, credential string) {
		if _, err := caller(r, bearing(credential)).Session(); err == nil {
			t.Fatalf("%q is a session", credential)
		}
		if _, err := caller(both, bearing(credential)).Token(); err == nil {
			t.Fatalf("%q is a token", credential)
		}
	})
}

type noTokens struct{}

func (noTokens) Lookup(string) (identity.StoredToken, error) {
	return identity.StoredToken{}, identity.ErrUnknownToken
}
