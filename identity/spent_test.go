package identity_test

import (
	"crypto"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// from returns a caller from peer with a credential, about to be asked by limiter.
func from(r *identity.Resolver, peer, limiter, credential string) *identity.Caller {
	c := caller(r, request(peer, "Authorization", "Bearer "+credential))
	c.Limiter(limiter)
	return c
}

func spendingSet(t *testing.T) (*identity.Resolver, *clock, *keySet) {
	set := &keySet{keys: map[string]crypto.PublicKey{"k": &ecdsaKey().PublicKey}}
	r, clock := verifier(t, identity.SessionsOptions{Lookup: set.lookup})
	return r, clock, set
}

func TestASpentAddressHasNoNewCredentialChecked(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, clock, set := spendingSet(t)
	seen, fresh := withKid("k", claims("sid", "seen")), withKid("k", claims("sid", "fresh"))
	budget(t, r, seen)
	r.Spent(from(r, peer, "chat", "x"), "chat", time.Minute)
	before := set.asked

	for i := range 10 {
		if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
			t.Errorf("a new credential: %v", err)
		}
		if _, err := from(r, peer, "chat", withKid("k", claims("sid", fmt.Sprint(i)))).Session(); !errors.Is(err, identity.ErrNotChecked) {
			t.Errorf("another one: %v", err)
		}
	}
	if set.asked != before {
		t.Errorf("%d keys were looked for: signatures were checked", set.asked-before)
	}
	if _, err := from(r, peer, "chat", seen).Session(); err != nil {
		t.Errorf("one that was seen before: %v", err)
	}

	clock.set(time.Minute - 1)
	if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("just before the reset: %v", err)
	}
	clock.set(time.Minute)
	if _, err := from(r, peer, "chat", fresh).Session(); err != nil {
		t.Errorf("at the reset: %v", err)
	}
}

func TestOnlyThatAddressUnderThatLimiterIsSpent(t *testing.T) {
	r, _, _ := spendingSet(t)
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	r.Spent(from(r, "[2001:db8:1:1::1]:1", "chat", "x"), "chat", time.Minute)
	for i, c := range []struct {
		peer, limiter string
		spent         bool
	}{
		{"203.0.113.7:2", "chat", true},
		{"[::ffff:203.0.113.7]:2", "chat", true},
		{"[2001:db8:1:1::2]:2", "chat", true}, // the same network is the same caller (D12)
		{"[2001:db8:1:2::1]:2", "chat", false},
		{"203.0.113.8:1", "chat", false},
		{"203.0.113.7:1", "upload", false},
		{"203.0.113.7:1", "", false},
		{"@", "chat", false},
	} {
		_, err := from(r, c.peer, c.limiter, withKid("k", claims("sid", fmt.Sprint(i)))).Session()
		if errors.Is(err, identity.ErrNotChecked) != c.spent || !c.spent && err != nil {
			t.Errorf("%s under %q: %v", c.peer, c.limiter, err)
		}
	}
}

// One request may be judged twice (D16).
func TestACredentialIsLookedAtAgainForAnotherLimiter(t *testing.T) {
	r, _, _ := spendingSet(t)
	c := from(r, "203.0.113.7:1", "chat", withKid("k", claims("sid", "s")))
	r.Spent(c, "chat", time.Minute)
	if _, err := c.Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Fatal(err)
	}
	c.Limiter("upload")
	if _, err := c.Session(); err != nil {
		t.Error(err)
	}
}

func TestASpentAddressHasNoNewTokenLookedUp(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, s, clock := withTokens(t)
	seen, id := s.mint("")
	fresh, _ := s.mint("")
	if err := tokenError(r, seen); err != nil {
		t.Fatal(err)
	}
	r.Spent(from(r, peer, "api", "x"), "api", time.Minute)
	before := s.asked.Load()
	c := from(r, peer, "api", fresh)
	if _, err := c.Token(); !errors.Is(err, identity.ErrNotChecked) || s.asked.Load() != before {
		t.Errorf("a new token: %v after %d look-ups", err, s.asked.Load()-before)
	}
	c.Limiter("other")
	if _, err := c.Token(); err != nil {
		t.Errorf("for another limiter: %v", err)
	}
	for at := time.Duration(0); at < 50*time.Second; at += time.Second {
		clock.set(at)
		if _, err := from(r, peer, "api", seen).Token(); err != nil {
			t.Fatalf("one that was seen before, %v later: %v", at, err)
		}
	}

	// A revoked token is refused once, and then is as unknown as any other: it costs no more
	// look-ups.
	s.change(id, revoke)
	clock.set(51 * time.Second)
	if _, err := from(r, peer, "api", seen).Token(); err == nil || errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("revoked: %v", err)
	}
	before = s.asked.Load()
	clock.set(55 * time.Second)
	if _, err := from(r, peer, "api", seen).Token(); !errors.Is(err, identity.ErrNotChecked) || s.asked.Load() != before {
		t.Errorf("revoked a while ago: %v after %d look-ups", err, s.asked.Load()-before)
	}
}

// What was seen before keeps working (D16).
func TestASeenSessionOutlivesTheRecheckOfItsKeyAtASpentAddress(t *testing.T) {
	r, clock, set := spendingSet(t)
	seen := withKid("k", claims("sid", "seen"))
	budget(t, r, seen)
	clock.set(5*time.Minute + time.Second)
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); err != nil {
		t.Errorf("at its re-check: %v", err)
	}

	// With its key withdrawn it fails its re-check once, and is no longer one that was seen.
	set.keys = nil
	clock.set(11 * time.Minute)
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("withdrawn: %v", err)
	}
	before := set.asked
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); !errors.Is(err, identity.ErrNotChecked) || set.asked != before {
		t.Errorf("withdrawn a while ago: %v", err)
	}
}
