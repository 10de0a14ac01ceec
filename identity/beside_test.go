package identity_test

import (
	"crypto"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// besideSessions returns a Resolver that knows acmeKey, otherKey and sessions, whose tokens are in
// Authorization: Bearer or X-Api-Key. keys is called for each look-up of a public key.
func besideSessions(t testing.TB, clock *clock, keys func()) (*identity.Resolver, keyStore) {
	t.Helper()
	sessions, err := identity.NewSessions(identity.SessionsOptions{Lookup: func(string, string) (crypto.PublicKey, error) {
		keys()
		return ecdsaKey().Public(), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	store := keyStore{}
	store.add("acme", acmeKey)
	store.add("other", otherKey)
	o := identity.Options{Sessions: sessions, Tokens: store, Now: clock.Now}
	for _, s := range []string{"bearer", "header:X-Api-Key", "query:api_key"} {
		p, err := identity.ParsePlace(s)
		if err != nil {
			t.Fatal(err)
		}
		o.TokenFrom = append(o.TokenFrom, p)
	}
	return resolver(t, o), store
}

// A session beside a key is no second key. Anything else beside it may be one to the backend.
func TestASessionBesideAKeyIsNoSecondKey(t *testing.T) {
	clock := newClock()
	lookUps := 0
	r, store := besideSessions(t, clock, func() { lookUps++ })
	good, registered := es256(claims("sid", "s")), es256(claims("sid", "key"))
	store.add("registered", registered)
	for _, c := range []struct {
		name, bearer, key, query string
		want                     string // the id, or a part of the error
		unread                   bool   // no signature may be verified
	}{
		{"a session", good, acmeKey, "", "acme", false},
		{"another session", es256(claims("sid", "t")), acmeKey, "", "acme", false},
		{"a session and the key twice", good, acmeKey, "api_key=" + acmeKey, "acme", false},
		{"a session and two keys", good, acmeKey, "api_key=" + otherKey, "two different tokens: send one", true},
		{"two keys", otherKey, acmeKey, "", "two different tokens: send one", true},
		{"an unknown key in bearer", "sk_live_unknown_4711", acmeKey, "", "two different tokens: send one", true},
		{"a forged session", forged(1), acmeKey, "", "not a valid session", false},
		{"an expired session", es256(claims("sid", "s", "exp", noon.Unix()-1)), acmeKey, "", "expired", false},
		{"a session and an unknown key", es256(claims("sid", "u")), "sk_live_unknown_4711", "", "unknown or was revoked", true},
		{"a session that is a key", registered, acmeKey, "", "two different tokens: send one", false},
		{"that key alone", registered, "", "", "registered", true},
		{"that key in both places", registered, registered, "", "registered", true},
		{"a session alone", es256(claims("sid", "v")), "", "", "unknown or was revoked", true},
	} {
		fields := []string{"Authorization", "Bearer " + c.bearer}
		if c.key != "" {
			fields = append(fields, "X-Api-Key", c.key)
		}
		req := request("192.0.2.1:4711", fields...)
		req.URL.RawQuery = c.query
		lookUps = 0
		got, err := caller(r, req).Token()
		text := got.ID
		if err != nil {
			text = err.Error()
		}
		if err == nil && text != c.want || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
		if c.unread && lookUps > 0 {
			t.Errorf("%s: a signature was verified", c.name)
		}
		if err != nil && (strings.Contains(text, "sk_live") || strings.Contains(text, c.bearer)) {
			t.Errorf("%s: the error has a credential: %s", c.name, text)
		}
	}
	// A JWT that becomes a key is one within a second.
	req := request("192.0.2.1:4711", "Authorization", "Bearer "+good, "X-Api-Key", acmeKey)
	store.add("late", good)
	clock.set(time.Second)
	if _, err := caller(r, req).Token(); err == nil {
		t.Error("a session that has become a key is none")
	}
}

// Without a key for sessions, nobody knows whether a JWT is one.
func TestAJWTBesideAKeyIsAnotherTokenWithoutSessions(t *testing.T) {
	req := request("192.0.2.1:4711", "Authorization", "Bearer "+hs256(claims("sid", "s")), "X-Api-Key", acmeKey)
	if _, err := caller(fromPlaces(t, "bearer", "header:X-Api-Key"), req).Token(); err == nil || !strings.Contains(err.Error(), "two different tokens") {
		t.Errorf("%v, want two different tokens", err)
	}
}

// A session that is not verified because its address is spent puts the key off as well, until the
// address has budget again.
func TestAKeyBesideAnUncheckedSessionWaits(t *testing.T) {
	clock := newClock()
	r, _ := besideSessions(t, clock, func() {})
	r.Spent(from(r, guessing, "chat", "x"), "chat", time.Hour)
	(&guesser{r: r, peer: guessing, limiter: "chat", sent: 1 << 20}).guess()
	c := caller(r, request(guessing, "Authorization", "Bearer "+es256(claims("sid", "fresh")), "X-Api-Key", acmeKey))
	c.Limiter("chat")
	if _, err := c.Token(); !errors.Is(err, identity.ErrNotChecked) || !c.Unchecked() {
		t.Fatalf("%v, want ErrNotChecked", err)
	}
	c.Resolve()
	if got, err := c.Token(); err != nil || got.ID != "acme" {
		t.Errorf("with budget again: %q, %v", got.ID, err)
	}
	c = caller(r, request(guessing, "X-Api-Key", acmeKey))
	c.Limiter("chat")
	if got, err := c.Token(); err != nil || got.ID != "acme" {
		t.Errorf("the key alone: %q, %v", got.ID, err)
	}
}

// What a trial may not verify, the policy in force still does.
func TestATrialPutsNoKeyOff(t *testing.T) {
	r, _ := besideSessions(t, newClock(), func() {})
	for n := range 200 { // more than trials verify of an address
		c := caller(r, request(guessing, "Authorization", "Bearer "+forged(n)))
		c.Trying(true)
		_, _ = c.Session()
	}
	c := caller(r, request(guessing, "Authorization", "Bearer "+es256(claims("sid", "fresh")), "X-Api-Key", acmeKey))
	c.Trying(true)
	if _, err := c.Token(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("in a trial: %v, want ErrNotChecked", err)
	}
	c.Trying(false)
	if got, err := c.Token(); err != nil || got.ID != "acme" {
		t.Errorf("after it: %q, %v", got.ID, err)
	}
}

func TestAKnownKeyBesideAKnownSessionAllocatesNothing(t *testing.T) {
	r, _ := besideSessions(t, newClock(), func() {})
	req := request("192.0.2.1:4711", "Authorization", "Bearer "+es256(claims("sid", "s")), "X-Api-Key", acmeKey)
	var c identity.Caller
	dst := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		r.Start(&c, req)
		if _, ok := c.AppendKey(dst, identity.Token); !ok {
			t.Fatal("no token")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
