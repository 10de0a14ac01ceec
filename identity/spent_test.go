package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// from returns a caller from peer with a credential, under limiter.
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

// forged returns a session whose signature does not verify. n makes it another one.
func forged(n int) string {
	h := header("ES256")
	h["kid"] = "k"
	return signed(h, claims("sid", fmt.Sprint("forged ", n)), func([]byte) []byte { return make([]byte, 64) })
}

// A guesser sends forged sessions, each once.
type guesser struct {
	r             *identity.Resolver
	peer, limiter string
	sent          int
}

// send sends one and reports whether it was checked.
func (g *guesser) send() (checked bool) {
	g.sent++
	_, err := from(g.r, g.peer, g.limiter, forged(g.sent)).Session()
	return !errors.Is(err, identity.ErrNotChecked)
}

// guess spends the checks of a spent address that are for new tokens, and returns how many there
// were, at most 200.
func (g *guesser) guess() (checked int) {
	for i := range 200 {
		if !g.send() {
			return i
		}
	}
	return 200
}

// Guessing costs a hundred verifications a second at most, and half of them are for sessions that
// come again (D16).
func TestASpentAddressHasAFewSignaturesChecked(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, clock, _ := spendingSet(t)
	seen := withKid("k", claims("sid", "seen"))
	budget(t, r, seen)
	g := &guesser{r: r, peer: peer, limiter: "chat"}
	if n := g.guess(); n != 200 {
		t.Errorf("%d of 200 signatures are checked before the address is spent", n)
	}
	r.Spent(from(r, peer, "chat", "x"), "chat", time.Minute)

	for i := range 120 {
		fresh := withKid("k", claims("sid", fmt.Sprint("fresh ", i)))
		if _, err := from(r, peer, "chat", fresh).Session(); err != nil {
			t.Fatalf("good session %d of a spent address: %v", i, err)
		}
	}
	if n := g.guess(); n != 50 {
		t.Errorf("%d bad signatures are checked at once, want 50", n)
	}
	fresh := withKid("k", claims("sid", "fresh"))
	if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("a good session after them: %v", err)
	}
	if _, err := from(r, peer, "chat", seen).Session(); err != nil {
		t.Errorf("a session that was verified before: %v", err)
	}

	clock.set(10*time.Millisecond - 1)
	if n := g.guess(); n != 0 {
		t.Errorf("%d bad signatures are checked before 10 ms", n)
	}
	clock.set(10 * time.Millisecond)
	if n := g.guess(); n != 1 {
		t.Errorf("%d bad signatures are checked at 10 ms, want 1", n)
	}
	if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("the good session that comes again at once: %v", err)
	}
	clock.set(900 * time.Millisecond)
	if n := g.guess(); n != 50 {
		t.Errorf("%d bad signatures are checked then, want 50", n)
	}
	if _, err := from(r, peer, "chat", fresh).Session(); err != nil {
		t.Errorf("the good session that comes again after a second: %v", err)
	}
	clock.set(time.Minute)
	if n := g.guess(); n != 200 {
		t.Errorf("%d of 200 signatures are checked at the reset", n)
	}
}

// The Reset of the answer is the next second, which may begin at once.
func TestASessionThatComesAgainAtItsResetIsChecked(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, clock, _ := spendingSet(t)
	r.Spent(from(r, peer, "chat", "x"), "chat", time.Minute)
	g := &guesser{r: r, peer: peer, limiter: "chat"}
	clock.set(823 * time.Millisecond)
	g.guess()
	fresh := withKid("k", claims("sid", "fresh"))
	if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Fatalf("its first try: %v", err)
	}
	clock.set(999 * time.Millisecond)
	g.guess()
	if _, err := from(r, peer, "chat", fresh).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("in the same second: %v", err)
	}
	clock.set(time.Second)
	g.guess()
	if _, err := from(r, peer, "chat", fresh).Session(); err != nil {
		t.Errorf("at its Reset: %v", err)
	}
}

// A clock that is set back does not lock an address out (D16).
func TestASpentAddressIsCheckedAfterTheClockWasSetBack(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, clock, _ := spendingSet(t)
	r.Spent(from(r, peer, "chat", "x"), "chat", 2*time.Hour)
	g := &guesser{r: r, peer: peer, limiter: "chat"}
	clock.set(30 * time.Minute)
	if n := g.guess(); n != 50 {
		t.Errorf("%d bad signatures are checked before, want 50", n)
	}
	clock.set(0)
	if n := g.guess(); n != 0 {
		t.Errorf("%d bad signatures are checked at once, want none", n)
	}
	clock.set(time.Second)
	if n := g.guess(); n != 50 {
		t.Errorf("%d bad signatures are checked a second later, want 50", n)
	}
}

// A symmetric signature costs little, so it is always verified (D16).
func TestASpentAddressHasEverySymmetricSignatureChecked(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	(&guesser{r: r, peer: "203.0.113.7:1", limiter: "chat"}).guess()
	for i := range 100 {
		bad := hs256(claims("sid", "bad"))
		if _, err := from(r, "203.0.113.7:1", "chat", bad[:len(bad)-4]+"AAAA").Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
			t.Fatalf("bad session %d: %v", i, err)
		}
	}
	if _, err := from(r, "203.0.113.7:1", "chat", hs256(claims("sid", "good"))).Session(); err != nil {
		t.Errorf("a good session: %v", err)
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
		g := &guesser{r: r, peer: c.peer, limiter: c.limiter, sent: 1000 * i}
		if n := g.guess(); (n < 200) != c.spent {
			t.Errorf("%s under %q: %d of 200 bad signatures are checked (case %d)", c.peer, c.limiter, n, i)
		}
	}
}

// An address has one budget of checks, whatever limiters it asks (D16).
func TestTheChecksOfAnAddressAreForAllLimiters(t *testing.T) {
	r, _, _ := spendingSet(t)
	for _, limiter := range []string{"chat", "upload"} {
		r.Spent(from(r, "203.0.113.7:1", limiter, "x"), limiter, time.Minute)
	}
	g := &guesser{r: r, peer: "203.0.113.7:1", limiter: "chat"}
	a := g.guess()
	g.limiter = "upload"
	if b := g.guess(); a != 50 || b != 0 {
		t.Errorf("%d and %d bad signatures are checked, want 50 and 0", a, b)
	}
}

// One request may be decided twice (D16).
func TestACredentialIsCheckedAgainForAnotherLimiter(t *testing.T) {
	r, _, _ := spendingSet(t)
	c := from(r, "203.0.113.7:1", "chat", withKid("k", claims("sid", "s")))
	r.Spent(c, "chat", time.Minute)
	r.Spent(c, "search", time.Minute)
	(&guesser{r: r, peer: "203.0.113.7:1", limiter: "chat"}).guess()
	for _, limiter := range []string{"chat", "search"} { // which is no second try of it
		c.Limiter(limiter)
		if _, err := c.Session(); !errors.Is(err, identity.ErrNotChecked) {
			t.Fatalf("%s: %v", limiter, err)
		}
	}
	c.Limiter("upload")
	if _, err := c.Session(); err != nil {
		t.Error(err)
	}
}

// The secret of a token is always verified (D16).
func TestASpentAddressHasEveryTokenLookedUp(t *testing.T) {
	const peer = "203.0.113.7:1"
	r, s, _ := withTokens(t)
	bad, id := s.mint("")
	s.change(id, revoke)
	r.Spent(from(r, peer, "api", "x"), "api", time.Minute)
	for i := range 100 {
		if _, err := from(r, peer, "api", bad).Token(); err == nil || errors.Is(err, identity.ErrNotChecked) {
			t.Fatalf("bad token %d: %v", i, err)
		}
	}
	fresh, _ := s.mint("")
	if _, err := from(r, peer, "api", fresh).Token(); err != nil {
		t.Errorf("a good token: %v", err)
	}
}

// A credential that was seen before still works (D16).
func TestAKnownSessionIsRecheckedAtASpentAddress(t *testing.T) {
	r, clock, set := spendingSet(t)
	seen := withKid("k", claims("sid", "seen"))
	budget(t, r, seen)
	clock.set(5*time.Minute + time.Second)
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); err != nil {
		t.Errorf("at its re-check: %v", err)
	}

	// If its key is withdrawn, it fails one re-check, and then counts as unseen.
	set.keys = map[string]crypto.PublicKey{"k": &must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).PublicKey}
	clock.set(11 * time.Minute)
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	(&guesser{r: r, peer: "203.0.113.7:1", limiter: "chat"}).guess()
	r.Spent(from(r, "203.0.113.7:1", "chat", "x"), "chat", time.Minute)
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("withdrawn: %v", err)
	}
	if _, err := from(r, "203.0.113.7:1", "chat", seen).Session(); !errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("withdrawn a while ago: %v", err)
	}
}
