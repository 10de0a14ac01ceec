//go:build !race

// One goroutine does all this, which the race detector would only slow down.

package identity_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

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
