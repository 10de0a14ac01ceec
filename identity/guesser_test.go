package identity_test

import (
	"errors"
	"fmt"
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

// A session that was put off is verified when it comes again a second later, while the guesser goes
// on at any rate, and at any phase of both (D16).
func TestASessionWaitsASecondWhateverItsAddressGuesses(t *testing.T) {
	cycle := make([]string, 100)
	for i := range cycle {
		cycle[i] = forged(i)
	}
	for _, p := range []pace{
		{"5 new tokens a second", 5, newTokens},
		{"20 new tokens a second", 20, newTokens},
		{"100 new tokens a second", 100, newTokens},
		{"1000 new tokens a second", 1000, newTokens},
		{"10,000 new tokens a second", 10_000, newTokens},
		{"20 new tokens a second, and again a second later", 40, againAfter(20)},
		{"100 new tokens a second, and again a second later", 200, againAfter(100)},
		{"100 new tokens a second, and again at once", 200, againAfter(0)},
		{"1000 new tokens a second, and again at once", 2000, againAfter(0)},
		{"1000 new tokens a second, and again half a second later", 2000, againAfter(500)},
		{"the same 100 tokens, twenty times a second each", 2000, func(n int) string { return cycle[n%100] }},
	} {
		t.Run(p.name, func(t *testing.T) {
			r, clock := spentByGuesses(t)
			type stranger struct {
				session string
				next    time.Duration
				tries   int
			}
			var strangers []*stranger
			for i := range 20 {
				strangers = append(strangers, &stranger{withKid("k", claims("sid", fmt.Sprint(i))), 500*time.Millisecond + time.Duration(i)*27*time.Millisecond, 0})
			}
			p.follow(r, clock, 0, 2500*time.Millisecond, func(now time.Duration) {
				for i, s := range strangers {
					if s.next > now || s.tries < 0 {
						continue
					}
					s.tries++
					_, err := from(r, guessing, "chat", s.session).Session()
					switch {
					case err == nil:
						s.tries = -s.tries
					case s.tries == 2 || !errors.Is(err, identity.ErrNotChecked):
						t.Fatalf("session %d, try %d: %v", i, s.tries, err)
					default:
						s.next = now + time.Second
					}
				}
			})
			for i, s := range strangers {
				if s.tries >= 0 {
					t.Errorf("session %d was not verified in %d tries", i, s.tries)
				}
			}
		})
	}
}

// Whatever a guesser does, a hundred of its signatures are checked a second, and a hundred at once
// (D16).
func TestAnAddressHasAHundredSignaturesCheckedASecond(t *testing.T) {
	for _, p := range []pace{
		{"new tokens", 2000, newTokens},
		{"each again after a second", 2000, againAfter(1000)},
		{"each again at once", 2000, againAfter(0)},
		{"each again half a second later", 2000, againAfter(500)},
	} {
		r, clock := spentByGuesses(t)
		if n := p.follow(r, clock, 0, 5*time.Second, func(time.Duration) {}); n < 450 || n > 600 {
			t.Errorf("%s: %d signatures are checked in five seconds, want about 500", p.name, n)
		}
	}
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
