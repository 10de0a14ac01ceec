package admin_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/admin"
	"github.com/weirlimit/weir/internal/denial"
)

// storedTokens are tokens by id.
type storedTokens map[string]identity.StoredToken

func (s storedTokens) Lookup(id string) (identity.StoredToken, error) {
	t, ok := s[id]
	if !ok {
		return t, identity.ErrUnknownToken
	}
	return t, nil
}

// subscriber is a caller with a token and the plan of a claim.
type subscriber struct{ token, plan string }

func (s subscriber) AppendKey(dst []byte, source string) ([]byte, bool) {
	if source != "token" {
		return dst, false
	}
	return append(dst, s.token...), true
}

func (s subscriber) Plan(by string) (string, bool) { return s.plan, by == "claim:plan" }

func policyWithPlans(by string) call {
	text := "limiters:\n  - name: api\n    routes: [/api]\n    windows: [5 per minute by token or session or ip, 20 per hour by ip]\n    plans: {by: " + by + ", gold: 50 per minute, free: 2 per minute}\n"
	return call{method: "POST", path: "/policy", body: text, header: map[string]string{"Content-Type": "application/yaml"}}
}

type plannedWindows struct {
	Windows []struct {
		Lacks, Plan string
		Unknown     bool   `json:"plan_unknown"`
		Unlisted    string `json:"unlisted_plan"`
		Limit       int64
	}
}

func (p plannedWindows) String() string {
	var all []string
	for _, w := range p.Windows {
		s := fmt.Sprintf("%d %s", w.Limit, w.Plan)
		if w.Unknown {
			s += "unknown"
		}
		if w.Unlisted != "" {
			s += "unlisted " + w.Unlisted
		}
		if w.Lacks != "" {
			s = "lacks " + w.Lacks
		}
		all = append(all, strings.TrimSpace(s))
	}
	return strings.Join(all, ", ")
}

func TestAKeyHasThePlanOfItsTokenOrSaysThatItIsUnknown(t *testing.T) {
	sessions, err := identity.NewSessions(identity.SessionsOptions{Issuer: "shop", Keys: []identity.SessionKey{secretKey(t)}})
	if err != nil {
		t.Fatal(err)
	}
	tokens := storedTokens{"aaaaaaaaaa": {ID: "aaaaaaaaaa", Plan: "gold"}, "bbbbbbbbbb": {ID: "bbbbbbbbbb"}, "cccccccccc": {ID: "cccccccccc", Plan: "silver"}}
	f := newFixture(t, func(o *admin.Options) { o.Sessions, o.APITokens = sessions, tokens })
	for _, c := range []struct{ by, who, want string }{
		{"token", "token=aaaaaaaaaa&ip=192.0.2.7", "50 gold, 20"},
		{"token", "token=bbbbbbbbbb&ip=192.0.2.7", "5, 20"},
		{"token", "token=cccccccccc&ip=192.0.2.7", "5 unlisted silver, 20"},
		{"token", "token=dddddddddd&ip=192.0.2.7", "5 unknown, 20"}, // no such token
		{"token", "session=visit-1&ip=192.0.2.7", "5, 20"},
		{"token", "ip=192.0.2.7", "5 unknown, 20"},
		{"claim:plan", "token=aaaaaaaaaa&ip=192.0.2.7", "5, 20"},
		{"claim:plan", "session=visit-1&ip=192.0.2.7", "5 unknown, 20"},
		{"header:X-Plan", "token=aaaaaaaaaa&ip=192.0.2.7", "5 unknown, 20"},
	} {
		f.answered(policyWithPlans(c.by), nil)
		var got plannedWindows
		f.answered(call{method: "GET", path: "/keys?limiter=api&" + c.who}, &got)
		if got.String() != c.want {
			t.Errorf("by %s, %s: %v, want %s", c.by, c.who, got, c.want)
		}
	}
}

func TestAGrantOfTimesNeedsAKnownPlan(t *testing.T) {
	f := newFixture(t, func(o *admin.Options) { o.APITokens = storedTokens{"aaaaaaaaaa": {ID: "aaaaaaaaaa", Plan: "gold"}} })
	f.answered(policyWithPlans("token"), nil)
	var got inspection
	f.answered(f.post("/keys/grant", `{"token":"aaaaaaaaaa","limiter":"api","times":2,"for":"1h","why":"x"}`), &got)
	if got.String() != "api 0/100 until +3600, api lacks ip" {
		t.Errorf("%v", got)
	}
	f.refused(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"api","times":2,"for":"1h","why":"x"}`), 422, "plan_unknown")
	f.answered(f.post("/keys/grant", `{"ip":"192.0.2.7","limiter":"api","limits":[9,0],"for":"1h","why":"x"}`), &got)
	if got.Windows[0].Limit != 9 {
		t.Errorf("%v", got)
	}
}

func TestADenialHasThePlanThatWasInForce(t *testing.T) {
	var sealer *denial.Sealer
	f := newFixture(t, func(o *admin.Options) {
		var err error
		if sealer, err = denial.New(func() []byte { return []byte(strings.Repeat("k", 32)) }, nil, rand.Reader, nil); err != nil {
			t.Fatal(err)
		}
		o.Denials = sealer.Open
	})
	f.answered(policyWithPlans("claim:plan"), nil)
	caller := subscriber{"aaaaaaaaaa", "free"}
	var d weir.Decision
	for range 3 {
		var err error
		if d, err = f.decider.Decide(t.Context(), weir.Request{Method: "GET", Path: "/api", Keys: caller}); err != nil {
			t.Fatal(err)
		}
	}
	if d.Allowed {
		t.Fatal("the caller was not refused")
	}
	id := sealer.ID(&d, caller, nil)
	var x struct {
		Kinds, Token, Plan string
		Limit              int64
	}
	f.answered(call{method: "GET", path: "/denials/" + id}, &x)
	if x.Kinds != "token" || x.Token != "aaaaaaaaaa" || x.Plan != "free" || x.Limit != 2 {
		t.Errorf("%+v", x)
	}
	var got plannedWindows
	f.answered(call{method: "GET", path: "/keys?denial=" + id}, &got)
	if !strings.HasPrefix(got.String(), "2 free, ") {
		t.Errorf("%v", got)
	}
}
