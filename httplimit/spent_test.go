package httplimit_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// leadsBy returns a change to one limiter of three a minute for each value of a credential's
// source.
func leadsBy(source string) func(*edge, *httplimit.Options, *identity.Options, *weir.Policy) {
	return func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		p.Limiters = []weir.Limiter{{
			Name:     "widget-leads",
			Requires: "session",
			Routes:   []weir.Route{{Path: "/"}},
			Windows:  []weir.Window{{Limit: 3, Per: time.Minute, Key: weir.Key{{source, "ip"}}}},
		}}
	}
}

// anAddress is a caller without credentials, as an operator names one.
type anAddress netip.Addr

func (a anAddress) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "ip" {
		return dst, false
	}
	return append(dst, netip.Addr(a).AsSlice()...), true
}

// An address is marked as spent only while it has no budget (D16, D5). If it gets
// budget in any way, the next new credential from it is verified.
func TestAnAddressWithNewBudgetIsNoLongerSpent(t *testing.T) {
	local := anAddress(netip.MustParseAddr("127.0.0.1"))
	for name, test := range map[string]struct {
		give  func(*edge) error
		reset int64 // of the window that the session opens
	}{
		"a reset": {func(e *edge) error { return e.decider.Reset(context.Background(), "widget-leads", local) }, 60},
		"a grant": {func(e *edge) error {
			return e.decider.Grant(context.Background(), "widget-leads", local, []int64{5}, start+30)
		}, 60},
		"a policy with a higher limit": {func(e *edge) error {
			p := e.decider.Policy()
			p.Limiters[0].Windows[0].Limit = 5
			return e.decider.Swap(p)
		}, 60},
		"an override": {func(e *edge) error {
			p := e.decider.Policy()
			p.Limiters[0].Overrides = []weir.Override{{Limit: 5, Per: time.Minute, For: weir.Who{Network: netip.MustParsePrefix("127.0.0.0/8")}}}
			return e.decider.Swap(p)
		}, 60},
		"an exemption": {func(e *edge) error {
			p := e.decider.Policy()
			p.Limiters[0].Exempt = []weir.Who{{Network: netip.MustParsePrefix("127.0.0.0/8")}}
			return e.decider.Swap(p)
		}, 60},
		"the end of the window": {func(e *edge) error { e.clock.Advance(time.Minute - 900*time.Millisecond); return nil }, 120},
	} {
		for _, source := range []string{"session", "claim:sid"} { // a claim is read from a session
			t.Run(name+" by "+source, func(t *testing.T) {
				e := setUp(t, ok, leadsBy(source))
				fresh, other := e.signed("fresh"), e.signed("other")
				for range 3 {
					e.send("POST /", "Authorization: Bearer bad.bad.bad")
				}
				e.clock.Advance(900 * time.Millisecond)
				e.send("POST /", "Authorization: Bearer bad.bad.bad").want(429, 3, 0, 60)
				e.guess("POST /", 3, 60)
				e.send("POST /", fresh).want(429, 3, 0, 2) // the address has no check left for it
				if err := test.give(e); err != nil {
					t.Fatal(err)
				}
				for _, session := range []string{fresh, other} {
					a := e.send("POST /", session)
					if a.status != 200 {
						t.Errorf("a valid session is answered %d, though its address has budget: %s", a.status, a.body)
					}
				}
				if a := e.send("POST /", "Authorization: Bearer worse.bad.bad"); a.status != 401 {
					t.Errorf("an invalid one is answered %d", a.status)
				}
			})
		}
	}
}

// All sessions with one value of a claim share a budget, wherever they come from. A session without
// the claim and a caller without a session are counted by their address, and not answered 401.
func TestAClaimIsOneBudgetForItsSessions(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		p.Limiters = []weir.Limiter{{Name: "api", Routes: []weir.Route{{Path: "/"}},
			Windows: []weir.Window{{Limit: 3, Per: time.Minute, Key: weir.Key{{"claim:org.id", "ip"}}}}}}
	})
	bearing := func(sid string, org any) string {
		return e.bearing(jwt.MapClaims{"sid": sid, "org": map[string]any{"id": org}, "exp": e.clock.Now().Add(time.Hour).Unix()})
	}
	for n, caller := range []string{bearing("a", 5), bearing("b", "5"), bearing("a", 5)} {
		e.send("POST /", caller).want(200, 3, int64(2-n), 60)
	}
	e.send("POST /", bearing("c", "5")).want(429, 3, 0, 60)
	e.send("POST /", bearing("a", 6)).want(200, 3, 2, 60)
	for n, caller := range []string{bearing("a", true), bearing("a", []int{5}), "X-Nothing: x"} {
		e.send("POST /", caller).want(200, 3, int64(2-n), 60)
	}
	e.send("POST /", e.forged("a")).want(429, 3, 0, 60)
}
