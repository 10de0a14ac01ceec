package identity_test

import (
	"crypto"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// claimed returns the value of a claim of a token that carries extra claims of issuer "a".
func claimed(t *testing.T, source string, pairs ...any) (value string, ok bool) {
	t.Helper()
	r, _ := verifier(t, identity.SessionsOptions{})
	c := caller(r, bearing(hs256(claims(append([]any{"iss", "a", "sid", "s"}, pairs...)...))))
	if err := c.Verified(source); err != nil {
		t.Fatalf("%s of %v: %v", source, pairs, err)
	}
	return key(c, source)
}

func TestAClaimIsCountedByItsValue(t *testing.T) {
	acme, _ := claimed(t, "claim:plan", "plan", "acme")
	if !strings.Contains(acme, "acme") {
		t.Fatalf("the key of acme is %q", acme)
	}
	for name, pairs := range map[string][]any{
		"claim:org.id":                   {"org.id", "acme"},
		"claim:org.name":                 {"org", map[string]any{"name": "acme"}},
		"claim:a.b.c":                    {"a", map[string]any{"b": map[string]any{"c": "acme"}}},
		"claim:a.b.d":                    {"a", map[string]any{"b.d": "acme"}},
		"claim:https://example.com/plan": {"https://example.com/plan", "acme"},
		"claim:https://example.com/o.id": {"https://example.com/o", map[string]any{"id": "acme"}},
	} {
		if v, ok := claimed(t, name, pairs...); !ok || v != acme {
			t.Errorf("%s of %v: %q, %v; want %q", name, pairs, v, ok, acme)
		}
	}
	if v, _ := claimed(t, "claim:org.id", "org.id", "whole", "org", map[string]any{"id": "inner"}); !strings.Contains(v, "whole") {
		t.Errorf("a claim of exactly that name does not come first: %q", v)
	}
}

// A claim that is a number and one that is its digits are one budget. What is no text and no exact
// integer is no value.
func TestAClaimIsATextOrAnInteger(t *testing.T) {
	five, _ := claimed(t, "claim:n", "n", "5")
	for _, same := range []string{"5", "5.0", "5e0", "0.5e1"} {
		if v, ok := claimed(t, "claim:n", "n", json.RawMessage(same)); !ok || v != five {
			t.Errorf("%s: %q, %v; want %q", same, v, ok, five)
		}
	}
	for number, digits := range map[string]string{"0": "0", "-0": "0", "-7": "-7", "9007199254740991": "9007199254740991", "-9007199254740991": "-9007199254740991"} {
		want, _ := claimed(t, "claim:n", "n", digits)
		if v, ok := claimed(t, "claim:n", "n", json.RawMessage(number)); !ok || v != want {
			t.Errorf("%s: %q, %v; want %q", number, v, ok, want)
		}
	}
	for _, none := range []string{`""`, "null", "true", "false", "5.5", "1e300", "9007199254740992", "9007199254740993", "-9007199254740992",
		"[]", `["acme"]`, "{}", `{"id":"acme"}`} {
		if v, ok := claimed(t, "claim:n", "n", json.RawMessage(none)); ok {
			t.Errorf("%s: %q", none, v)
		}
	}
	for _, missing := range []string{"claim:other", "claim:n.id", "claim:sid.x", "claim:.", "claim:..", "claim:n."} {
		if v, ok := claimed(t, missing, "n", "x"); ok {
			t.Errorf("%s: %q", missing, v)
		}
	}
}

// The same claim of two issuers, or under two keys without an issuer, has two budgets, and no value
// can be made up that reads as another issuer's.
func TestAClaimBelongsToItsIssuer(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	seen := map[string]string{}
	for name, token := range map[string]string{
		"issuer a":          hs256(claims("iss", "a", "sub", "1")),
		"issuer b":          hs256(claims("iss", "b", "sub", "1")),
		"issuer av":         hs256(claims("iss", "av", "sub", "1")),
		"no issuer, HS256":  hs256(claims("sub", "1")),
		"no issuer, RS256":  rs256(claims("sub", "1")),
		"another value":     hs256(claims("iss", "a", "sub", "11")),
		"a value with more": hs256(claims("iss", "a", "sub", "v\x00\x00\x00\x011")),
	} {
		v, ok := key(caller(r, bearing(token)), "claim:sub")
		if !ok || seen[v] != "" {
			t.Errorf("%s: %q, %v; the same as %q", name, v, ok, seen[v])
		}
		seen[v] = name
	}
	a, _ := key(caller(r, bearing(hs256(claims("iss", "a", "sub", "1", "sid", "x")))), "claim:sub")
	b, _ := key(caller(r, bearing(rs256(claims("iss", "a", "sub", "1", "sid", "y")))), "claim:sub")
	if a != b || seen[a] != "issuer a" {
		t.Errorf("two sessions of one subject have the keys %q and %q", a, b)
	}
}

// Doubt refuses: a claim of a token that does not verify is none.
func TestAClaimOfAnUnverifiedTokenIsNone(t *testing.T) {
	good := hs256(claims("sub", "1"))
	r, c := verifier(t, identity.SessionsOptions{})
	for name, credential := range map[string]string{
		"changed": good[:len(good)-4] + "AAAA",
		"expired": hs256(claims("sub", "1", "exp", noon.Add(-time.Second).Unix())),
		"not one": "wpt_abc_def",
	} {
		who := caller(r, bearing(credential))
		if v, ok := key(who, "claim:sub"); ok {
			t.Errorf("%s: %q", name, v)
		}
		if err := who.Verified("claim:sub"); err == nil || errors.Is(err, identity.ErrNone) {
			t.Errorf("%s: the reason is %v", name, err)
		}
	}
	if err := caller(r, request("192.0.2.1:1")).Verified("claim:sub"); !errors.Is(err, identity.ErrNone) {
		t.Errorf("without a token the reason is %v", err)
	}
	if _, ok := key(caller(r, bearing(good)), "claim:sub"); !ok {
		t.Error("a session that verifies has no claim")
	}
	c.set(2 * time.Hour)
	if v, ok := key(caller(r, bearing(good)), "claim:sub"); ok {
		t.Errorf("a session in the cache that has expired: %q", v)
	}
	none := resolver(t, identity.Options{})
	if v, ok := key(caller(none, bearing(good)), "claim:sub"); ok || none.Verifies("claim:sub") || !r.Verifies("claim:sub") {
		t.Errorf("without keys: %q, %v; verifies %v, with keys %v", v, ok, none.Verifies("claim:sub"), r.Verifies("claim:sub"))
	}
	if err := caller(none, bearing(good)).Verified("claim:sub"); !errors.Is(err, identity.ErrUnverifiable) {
		t.Errorf("without keys the reason is %v", err)
	}
}

func TestKeysOfAClaimIncludeItsTokensKey(t *testing.T) {
	for name, c := range map[string]struct {
		options       identity.SessionsOptions
		token, issuer string
		keys          int
	}{
		"one issuer":        {identity.SessionsOptions{Issuer: "shop"}, hs256(claims("iss", "shop", "org", "acme")), "", 1},
		"any issuer, named": {identity.SessionsOptions{}, rs256(claims("iss", "a", "org", "acme")), "a", 1},
		"no issuer":         {identity.SessionsOptions{BudgetPerToken: true}, hs256(claims("org", "acme")), "", len(allKeys())},
	} {
		r, _ := verifier(t, c.options)
		counted, _ := key(caller(r, bearing(c.token)), "claim:org")
		c.options.Keys = allKeys()
		keys, err := must(identity.NewSessions(c.options)).ClaimKeysOf(c.issuer, "acme")
		if err != nil || len(keys) != c.keys || !slices.Contains(keys, counted) {
			t.Errorf("%s: %q, %v; the token's is %q", name, keys, err, counted)
		}
	}
	sessions := must(identity.NewSessions(identity.SessionsOptions{Keys: allKeys(), Issuer: "shop"}))
	if keys, err := sessions.ClaimKeysOf("evil", "acme"); err == nil {
		t.Errorf("another issuer: %q", keys)
	}
	if keys, err := sessions.ClaimKeysOf("", ""); err == nil {
		t.Errorf("an empty value: %q", keys)
	}
}

// One claim of a session is remembered. Another one, another session's, and one that is no value
// are read all the same.
func TestAClaimIsThatOfItsNameAndSession(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	long := strings.Repeat("x", 300)
	of := func(name string, pairs ...any) *identity.HTTPRequest {
		return bearing(hs256(claims(append([]any{"iss", "a", "sid", name}, pairs...)...)))
	}
	one, two, none := of("1", "org", "acme", "plan", "gold", "n", 7, "long", long), of("2", "org", "other"), of("3", "plan", "")
	c := new(identity.Caller)
	for i, step := range []struct {
		req    *identity.HTTPRequest
		source string
		want   string
	}{
		{one, "claim:long", long},
		{one, "claim:org", "acme"}, {one, "claim:plan", "gold"}, {one, "claim:n", "7"}, {one, "claim:org", "acme"}, {one, "claim:sid", "1"},
		{one, "claim:missing", ""}, {one, "claim:long", long},
		{two, "claim:org", "other"}, {two, "claim:plan", ""}, {one, "claim:org", "acme"}, {two, "claim:org", "other"},
		{none, "claim:plan", ""}, {none, "claim:org", ""}, {none, "claim:plan", ""}, {none, "claim:sid", "3"},
	} {
		for range 2 { // as it is read, and as it is remembered
			r.Start(c, step.req)
			before := []byte("key")
			got, ok := c.AppendKey(before, step.source)
			if ok != (step.want != "") || !strings.HasPrefix(string(got), "key") || !strings.HasSuffix(string(got), step.want) || !ok && len(got) != len(before) {
				t.Errorf("step %d, %s: %q, %v; want %q", i, step.source, got, ok, step.want)
			}
		}
	}
}

// What is remembered of a session ends with it: when it expires, within the leeway, and when its
// key is withdrawn. Another token of the same value does not change that.
func TestARememberedClaimEndsWithItsSession(t *testing.T) {
	set := &keySet{keys: map[string]crypto.PublicKey{"k": &ecdsaKey().PublicKey}}
	r, clock := verifier(t, identity.SessionsOptions{Lookup: set.lookup, Leeway: time.Second})
	one := bearing(withKid("k", claims("iss", "a", "sid", "1", "org", "acme", "plan", "gold")))
	two := bearing(withKid("k", claims("iss", "a", "sid", "2", "org", "acme", "exp", noon.Add(2*time.Hour).Unix())))
	c := new(identity.Caller)
	has := func(req *identity.HTTPRequest, want bool) {
		t.Helper()
		for range 3 {
			r.Start(c, req)
			if _, ok := c.AppendKey(nil, "claim:org"); ok != want {
				t.Errorf("a value: %t, want %t", ok, want)
			}
			if plan, _ := c.Plan("claim:plan"); req == one && (plan == "gold") != want {
				t.Errorf("plan %q", plan)
			}
		}
	}
	has(one, true)
	has(two, true)
	clock.set(time.Hour + time.Second - 1)
	has(one, true)
	clock.set(time.Hour + time.Second)
	has(one, false)
	has(two, true)
	set.keys = nil
	clock.set(time.Hour + 10*time.Minute)
	has(two, false)
	has(one, false)
	if _, ok := key(caller(r, request("203.0.113.7:4711")), "claim:org"); ok {
		t.Error("a request without a credential has the value of an earlier one")
	}
}

// Requests with one session ask for different claims at the same time.
func TestClaimsOfOneSessionAreReadConcurrently(t *testing.T) { // for the race detector
	r, _ := verifier(t, identity.SessionsOptions{})
	req := hs256(claims("iss", "a", "sid", "s", "org", "acme", "plan", "gold", "n", 7))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			source, want := []string{"claim:org", "claim:plan", "claim:n"}[g%3], []string{"acme", "gold", "7"}[g%3]
			by := []string{"claim:plan", "claim:org"}[g%2]
			plan := map[string]string{"claim:plan": "gold", "claim:org": "acme"}[by]
			for range 200 {
				c := caller(r, bearing(req))
				if v, _ := key(c, source); !strings.HasSuffix(v, want) {
					t.Errorf("%s: %q, want %q", source, v, want)
				}
				if got, _ := c.Plan(by); got != plan {
					t.Errorf("plan by %s: %q, want %q", by, got, plan)
				}
			}
		})
	}
	all.Wait()
}
