package identity_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// A pace is how a guesser behind a spent address goes on.
type pace struct {
	name     string
	requests int                // a second
	token    func(n int) string // of the nth request
}

func newTokens(n int) string { return forged(n) }

// againAfter returns the tokens of a guesser that sends each one twice. Between both it sends that
// many others for the first time.
func againAfter(others int) func(n int) string {
	return func(n int) string {
		if first := n/2 - others; n%2 == 1 && first >= 0 {
			return forged(first)
		}
		return forged(n / 2)
	}
}

// follow runs a guesser on a spent address from start on, for that long. It calls between before
// and after each guess, with the clock set to its time.
func (p *pace) follow(r *identity.Resolver, clock *clock, start, span time.Duration, between func(now time.Duration)) (checked int) {
	results := make(map[string]bool)
	for n := 0; n < int(span.Seconds()*float64(p.requests)); n++ {
		now := start + time.Duration(n)*time.Second/time.Duration(p.requests)
		clock.set(now)
		between(now)
		token := p.token(n)
		if _, err := from(r, guessing, "chat", token).Session(); !errors.Is(err, identity.ErrNotChecked) {
			results[token] = true
		}
		between(now)
	}
	return len(results)
}

const guessing = "203.0.113.7:1"

// spentByGuesses returns a resolver for which the address of guessing is spent.
func spentByGuesses(t *testing.T) (*identity.Resolver, *clock) {
	r, clock, _ := spendingSet(t)
	r.Spent(from(r, guessing, "chat", "x"), "chat", time.Hour)
	(&guesser{r: r, peer: guessing, limiter: "chat", sent: 1 << 20}).guess()
	return r, clock
}

// A signature that did not verify is remembered for a minute: a client that sends it again and
// again takes one check, and is told that it is bad (D16).
func TestARepeatedForgedTokenIsCheckedOnce(t *testing.T) {
	r, clock := spentByGuesses(t)
	clock.set(time.Second)
	bad := forged(0)
	for i := range 1000 {
		if _, err := from(r, guessing, "chat", bad).Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
			t.Fatalf("try %d: %v", i, err)
		}
	}
	g := &guesser{r: r, peer: guessing, limiter: "chat", sent: 1}
	if n := g.guess(); n != 49 {
		t.Errorf("%d checks are left after one repeated token, want 49", n)
	}
	clock.set(61 * time.Second)
	if _, err := from(r, guessing, "chat", bad).Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
		t.Errorf("a minute later: %v", err)
	}
	if n := g.guess(); n != 49 {
		t.Errorf("%d checks are left after it was checked again, want 49", n)
	}
}

// A token that fails for its claims takes no check: whoever has an expired one could send it for
// ever (D16).
func TestAnExpiredTokenTakesNoCheck(t *testing.T) {
	r, clock := spentByGuesses(t)
	clock.set(time.Second)
	old := withKid("k", claims("sid", "s", "exp", noon.Add(-time.Hour).Unix()))
	for range 1000 {
		if _, err := from(r, guessing, "chat", old).Session(); err == nil || errors.Is(err, identity.ErrNotChecked) {
			t.Fatal(err)
		}
	}
	if n := (&guesser{r: r, peer: guessing, limiter: "chat"}).guess(); n != 50 {
		t.Errorf("%d checks are left, want 50", n)
	}
}
