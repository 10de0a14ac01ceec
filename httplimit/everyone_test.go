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

func requiring(credential string) setting {
	return func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		p.Limiters[0].Requires = credential
	}
}

// A limiter by everyone requires no credential. Its budget is shared, and the
// fields describe it (D4).
func TestEveryoneSharesOneBudgetAndNeedsNoCredential(t *testing.T) {
	e := setUp(t, ok, counting(t, "3 per minute by everyone"))
	e.send("GET /").want(200, 3, 2, 60)
	e.send("GET /", e.session("alice"), "X-Agent-Id: a").want(200, 3, 1, 60)
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(200, 3, 0, 60)
	e.send("GET /", e.token()).want(429, 3, 0, 60).wantFields("Retry-After", "60")
	e.clock.Advance(time.Minute)
	e.send("GET /").want(200, 3, 2, 120)
}

// A 401 spends nothing of a shared budget (D16). The request is limited by its
// address, with the same limits.
func TestA401SpendsNothingOfASharedBudget(t *testing.T) {
	e := setUp(t, ok, counting(t, "4 per minute by everyone", "5 per minute by session or ip"), requiring("session"))
	alice := e.session("alice")
	e.send("GET /", e.session("bob")).want(200, 4, 3, 60)
	for left := int64(3); left >= 0; left-- {
		e.send("GET /").want(401, 4, left, 60)
	}
	// Of the address, in the first window.
	e.send("GET /", "Authorization: Bearer bad.bad.bad").want(429, 4, 0, 60)
	e.send("GET /", alice).want(200, 4, 2, 60)
}

// The fallback to the address applies to "session or everyone", too (D16). Without
// a session a request is answered 401, and 429 once its address's budget is spent.
// A good session is served, and other addresses keep the whole shared budget.
func TestSessionOrEveryoneFallsBackToTheAddress(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), requiring("session"))
	seen, unseen := e.session("seen"), e.session("unseen")
	e.send("GET /", seen).want(200, 2, 1, 60)
	e.send("GET /").want(401, 2, 1, 60)
	e.send("GET /").want(401, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	e.send("GET /", unseen).want(200, 2, 1, 60)
	e.send("GET /", seen).want(200, 2, 0, 60)
}

// A budget that everyone shares can require a session. Forged ones cost a bounded number of
// verifications there too, and nothing of what is shared (D16, D27).
func TestASharedBudgetThatRequiresASessionBoundsGuessing(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by everyone"), requiring("session"))
	e.send("GET /").want(401, 2, 1, 60)
	e.send("GET /").want(401, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60).wantFields("Retry-After", "60")
	e.guess("GET /", 2, 60)
	good := e.signed("good")
	for _, session := range []string{e.forged("x"), good} { // neither is verified
		e.send("GET /", session).want(429, 2, 0, 1).wantFields("Retry-After", "1")
	}
	e.clock.Advance(time.Second)
	e.send("GET /", good).want(200, 2, 1, 61)
}

// If no session can be verified, all callers share one budget (D17).
func TestWithoutKeysSessionOrEveryoneIsOneBudgetForAll(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"), requiring("session"), func(_ *edge, _ *httplimit.Options, o *identity.Options, _ *weir.Policy) {
		o.Sessions = nil
	})
	e.send("GET /", "Authorization: Bearer a.b.c").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
}

// Anonymous requests that pass spend the shared budget. When it is spent, no
// address is marked as spent.
func TestAnonymousRequestsSpendTheSharedBudget(t *testing.T) {
	e := setUp(t, ok, counting(t, "2 per minute by session or everyone"))
	e.send("GET /").want(200, 2, 1, 60)
	e.send("GET /").want(200, 2, 0, 60)
	e.send("GET /").want(429, 2, 0, 60)
	for range 20 {
		e.send("GET /", e.forged("x")).want(429, 2, 0, 60)
	}
	e.send("GET /", e.signed("new")).want(200, 2, 1, 60) // verified: the address is not spent
}
