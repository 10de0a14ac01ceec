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

// A limiter by everyone requires no credential. All callers share its budget, which the fields
// describe (D4).
func TestEveryoneSharesOneBudgetAndNeedsNoCredential(t *testing.T) {
	e := setUp(t, ok, counting(t, "3 per minute by everyone"))
	e.send("GET /").want(200, 3, 2, 60)
	e.send("GET /", e.session("alice"), "X-Agent-Id: a").want(200, 3, 1, 60)
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(200, 3, 0, 60)
	e.send("GET /", e.token()).want(429, 3, 0, 60).wantFields("Retry-After", "60")
	e.clock.Advance(time.Minute)
	e.send("GET /").want(200, 3, 2, 120)
}

// A request that is answered 401 does not spend a budget that all share (D16). It is limited by its
// address, with the same limits.
func TestWhoIsAnswered401SpendsNothingOfEveryonesBudget(t *testing.T) {
	e := setUp(t, ok, counting(t, "4 per minute by everyone", "5 per minute by session or ip"))
	alice := e.session("alice") // new: not verified from a spent address
	e.send("GET /", e.session("bob")).want(200, 4, 3, 60)
	for left := int64(3); left >= 0; left-- {
		e.send("GET /").want(401, 4, left, 60)
	}
	// Of the address, in the first window.
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(429, 4, 0, 60)
	e.send("GET /", alice).want(200, 4, 2, 60)
}

// The fallback to the address applies to "session or everyone" too (D16). Without a session the
// address is answered 401, and 429 when its budget is spent. Then no new signature from it is
// verified. Callers at other addresses keep the whole shared budget.
func TestSessionOrEveryoneFallsBackToTheAddressOfWhoIsTurnedAway(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"))
	seen, unseen := e.session("seen"), e.session("unseen")
	e.send("GET /", seen).want(200, 2, 1, 60)
	e.send("GET /").want(401, 2, 1, 60)
	e.send("GET /").want(401, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	e.send("GET /", unseen).want(429, 2, 0, 60) // valid, and not verified
	e.send("GET /", seen).want(200, 2, 0, 60)
}

// If no session can be verified, all callers share one budget (D17).
func TestWithoutKeysSessionOrEveryoneIsOneBudgetForAll(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), func(_ *edge, _ *httplimit.Options, o *identity.Options, _ *weir.Policy) {
		o.Sessions = nil
	})
	e.send("GET /", "Authorization: Bearer a.b.c").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
}

// Anonymous requests that pass spend the shared budget. When it is spent, no address is recorded as
// spent.
func TestWhatPassesAnonymouslyIsPartOfEveryone(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), func(_ *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
		o.PassAnonymous = true
	})
	e.send("GET /").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	e.send("GET /", e.session("new")).want(200, 2, 1, 60) // verified: the address is not spent
}
