package httplimit_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

func counting(t *testing.T, windows ...string) setting {
	return func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l /": windows})
	}
}

// A limiter by everyone asks for no credential, and all callers see one budget go down (D4: the fields are that budget's).
func TestEveryoneSharesOneBudgetAndNeedsNoCredential(t *testing.T) {
	e := setUp(t, ok, counting(t, "3 per minute by everyone"))
	e.send("GET /").want(200, 3, 2, 60)
	e.send("GET /", e.session("alice"), "X-Agent-Id: a").want(200, 3, 1, 60)
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(200, 3, 0, 60)
	e.send("GET /", e.token()).want(429, 3, 0, 60).wantFields("Retry-After", "60")
	e.clock.Advance(time.Minute)
	e.send("GET /").want(200, 3, 2, 120)
}

// D16: whoever is answered 401 spends nothing that all share, and is bounded by its address under the same windows.
func TestWhoIsAnswered401SpendsNothingOfEveryonesBudget(t *testing.T) {
	e := setUp(t, ok, counting(t, "4 per minute by everyone", "5 per minute by session or ip"))
	alice := e.session("alice") // not seen yet: a spent address will not have it looked at
	e.send("GET /", e.session("bob")).want(200, 4, 3, 60)
	for left := int64(3); left >= 0; left-- {
		e.send("GET /").want(401, 4, left, 60)
	}
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(429, 4, 0, 60) // its address's four of the first window
	e.send("GET /", alice).want(200, 4, 2, 60)
}

// D16 holds for "session or everyone" too: without a session it is the address that is answered 401 and then 429, and once
// that is spent no signature is checked for it; other addresses' callers keep all they share.
func TestSessionOrEveryoneFallsBackToTheAddressOfWhoIsTurnedAway(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"))
	seen, unseen := e.session("seen"), e.session("unseen")
	e.send("GET /", seen).want(200, 2, 1, 60)
	e.send("GET /").want(401, 2, 1, 60)
	e.send("GET /").want(401, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	e.send("GET /", unseen).want(429, 2, 0, 60) // valid, and not looked at
	e.send("GET /", seen).want(200, 2, 0, 60)
}

// D17: where nobody can tell a good credential from a bad one, whoever has none that is known shares that one budget.
func TestWithoutKeysSessionOrEveryoneIsOneBudgetForAll(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), func(_ *edge, _ *httplimit.Options, o *identity.Options, _ *weir.Policy) {
		o.Sessions = nil
	})
	e.send("GET /", "Authorization: Bearer a.b.c").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
}

// What passes without a credential has its part in what all share, and when that is spent no address is to blame.
func TestWhatPassesAnonymouslyIsPartOfEveryone(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), func(_ *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
		o.PassAnonymous = true
	})
	e.send("GET /").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	e.send("GET /", e.session("new")).want(200, 2, 1, 60) // its address did not spend it alone: it is looked at
}
