package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

func plan(c *identity.Caller, by string) string {
	p, known := c.Plan(by)
	if !known {
		return "unknown"
	}
	return p
}

// A policy may count by a claim and have plans by it. Both read the same claim, or none.
func TestAPlanOfAClaimIsThatOfTheKeySource(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	all := claims("iss", "a", "sid", "s", "text", "gold", "empty", "", "one", 1, "many", int64(-9007199254740991), "beyond", int64(9007199254740992), "half", 0.5, "yes", true, "list", []any{"gold"},
		"null", nil, "org.id", "whole", "org", map[string]any{"id": "inner", "plan": "inner", "a.b": "dotted", "": "blank"}, "https://example.com/o", map[string]any{"plan": "gold"}, "a+b", "plus")
	for name, want := range map[string]string{
		"text": "gold", "empty": "", "one": "1", "many": "-9007199254740991", "beyond": "", "half": "", "yes": "", "list": "", "null": "", "org.id": "whole", "org.plan": "inner",
		"org.a.b": "dotted", "org": "", "org.": "blank", "https://example.com/o.plan": "gold", "none": "",
	} {
		c := caller(r, bearing(hs256(all)))
		got := plan(c, "claim:"+name)
		value, ok := key(c, "claim:"+name)
		if got != want || ok != (want != "") || !strings.HasSuffix(value, want) {
			t.Errorf("claim:%s: the plan is %q, and the key %q, %v; want %q", name, got, value, ok, want)
		}
	}
}

func TestAPlanOfAClaimNeedsAVerifiedSession(t *testing.T) {
	r, clock := verifier(t, identity.SessionsOptions{})
	all := claims("sid", "s", "plan", "gold", "level", 3, "plans", []any{"gold"}, "flat.name", "literal",
		"org", map[string]any{"plan": "silver", "unit": map[string]any{"plan": "bronze"}, "n": 1.5},
		"https://example.com/plan", "gold at a domain")
	for by, want := range map[string]string{
		"claim:plan": "gold", "claim:org.plan": "silver", "claim:org.unit.plan": "bronze", "claim:flat.name": "literal",
		"claim:https://example.com/plan": "gold at a domain",
		"claim:level":                    "3", "claim:plans": "", "claim:org": "", "claim:org.n": "", "claim:org.none": "", "claim:plan.more": "", "claim:none": "", "claim:.": "", "claim:": "",
		"token": "", "session": "", "ip": "", "": "",
	} {
		if got := plan(caller(r, bearing(hs256(all))), by); got != want {
			t.Errorf("%s: plan %q, want %q", by, got, want)
		}
	}
	good := hs256(all)
	forged := good[:len(good)-4] + "AAAA"
	for name, req := range map[string]*identity.HTTPRequest{"forged": bearing(forged), "none": request("192.0.2.1:1"), "two": request("192.0.2.1:1", "Authorization", "Bearer "+good, "Authorization", "Bearer "+good)} {
		if got := plan(caller(r, req), "claim:plan"); got != "" {
			t.Errorf("%s: the plan %q of a session that is not verified", name, got)
		}
	}
	if got := plan(caller(resolver(t, identity.Options{}), bearing(good)), "claim:plan"); got != "" {
		t.Errorf("the plan %q without a key", got)
	}
	clock.set(24 * time.Hour)
	if got := plan(caller(r, bearing(good)), "claim:plan"); got != "" {
		t.Errorf("the plan %q of a session that has expired", got)
	}
}

func TestATokensPlanMayChangeAndItsSecretIsNeeded(t *testing.T) {
	r, s, clock := withTokens(t)
	token, id := s.mint("acme")
	other, _ := s.mint("acme")
	if got := plan(caller(r, bearing(token)), "token"); got != "" {
		t.Errorf("a token without a plan has %q", got)
	}
	for i, want := range []string{"free", "gold", ""} {
		s.change(id, func(t *identity.StoredToken) { t.Plan = want })
		clock.set(time.Duration(i+1) * time.Second)
		if got := plan(caller(r, bearing(token)), "token"); got != want {
			t.Errorf("the plan is %q, want %q", got, want)
		}
	}
	s.change(id, func(t *identity.StoredToken) { t.Plan = "gold" })
	clock.set(5 * time.Second)
	mixed := token[:15] + other[15:] // another token's secret behind this id
	for _, credential := range []string{mixed, "wpt_" + id, id} {
		if got := plan(caller(r, bearing(credential)), "token"); got != "" {
			t.Errorf("%.12s… has the plan %q", credential, got)
		}
	}
	if got := plan(caller(r, bearing(token)), "claim:plan"); got != "" {
		t.Errorf("a token has the claim %q", got)
	}
}

func TestAPlanOfAFieldIsBelievedFromATrustedProxyAlone(t *testing.T) {
	behind := resolver(t, identity.Options{TrustedProxies: networks("10.0.0.0/8", "2001:db8::/32")})
	alone := resolver(t, identity.Options{})
	for _, c := range []struct {
		r      *identity.Resolver
		peer   string
		fields []string
		want   string
	}{
		{behind, "10.0.0.1:1", []string{"X-Plan", "gold"}, "gold"},
		{behind, "[2001:db8::7]:1", []string{"X-Plan", " gold\t"}, "gold"},
		{behind, "[::ffff:10.0.0.1]:1", []string{"X-Plan", "gold"}, "gold"},
		{behind, "10.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.7", "X-Plan", "gold"}, "gold"},
		{behind, "10.0.0.1:1", []string{"X-Plan", "gold", "X-Plan", "gold"}, ""},
		{behind, "10.0.0.1:1", []string{"X-Plan", "gold, free"}, "gold, free"}, // no plan's name
		{behind, "10.0.0.1:1", []string{"X-Plan", ""}, ""},
		{behind, "10.0.0.1:1", nil, ""},
		{behind, "192.0.2.1:1", []string{"X-Plan", "gold"}, ""},
		// a caller that claims to come from a proxy is none
		{behind, "192.0.2.1:1", []string{"X-Forwarded-For", "10.0.0.1", "X-Plan", "gold"}, ""},
		{behind, "@", []string{"X-Plan", "gold"}, ""},
		{alone, "192.0.2.1:1", []string{"X-Plan", "gold"}, ""},
		{alone, "127.0.0.1:1", []string{"X-Plan", "gold"}, ""},
	} {
		if got := plan(caller(c.r, request(c.peer, c.fields...)), "header:X-Plan"); got != c.want {
			t.Errorf("from %s with %q: plan %q, want %q", c.peer, c.fields, got, c.want)
		}
	}
}

func TestPlanProblemNamesWhatIsMissing(t *testing.T) {
	bare := resolver(t, identity.Options{})
	sessions, _ := verifier(t, identity.SessionsOptions{})
	tokens, _, _ := withTokens(t)
	proxied := resolver(t, identity.Options{TrustedProxies: trusted})
	for by, has := range map[string]*identity.Resolver{"claim:plan": sessions, "token": tokens, "header:X-Plan": proxied} {
		if problem := bare.PlanProblem(by); problem == "" || has.PlanProblem(by) != "" {
			t.Errorf("%s: %q, and %q where callers can have a plan", by, problem, has.PlanProblem(by))
		}
	}
}

func planned(t testing.TB) map[string]func() (*identity.Resolver, string, *identity.HTTPRequest) {
	return map[string]func() (*identity.Resolver, string, *identity.HTTPRequest){
		"claim": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			r, _ := verifier(t, identity.SessionsOptions{})
			return r, "claim:org.plan", bearing(es256(claims("sid", "s", "org", map[string]any{"plan": "gold"})))
		},
		"token": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			r, s, _ := withTokens(t)
			token, id := s.mint("acme")
			s.change(id, func(t *identity.StoredToken) { t.Plan = "gold" })
			return r, "token", bearing(token)
		},
		"header": func() (*identity.Resolver, string, *identity.HTTPRequest) {
			return resolver(t, identity.Options{TrustedProxies: trusted}), "header:X-Plan", request("10.0.0.1:1", "X-Plan", "gold")
		},
	}
}

func TestAKnownCallersPlanAllocatesNothing(t *testing.T) {
	for name, start := range planned(t) {
		r, by, req := start()
		c := new(identity.Caller)
		if n := testing.AllocsPerRun(100, func() {
			r.Start(c, req)
			if got := plan(c, by); got != "gold" {
				t.Fatal(strings.TrimSpace(got))
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for name, start := range planned(b) {
		b.Run(name, func(b *testing.B) {
			r, by, req := start()
			c := new(identity.Caller)
			b.ReportAllocs()
			for b.Loop() {
				r.Start(c, req)
				c.Plan(by)
			}
		})
	}
}

// A Caller is used again for the next request: it must not have the plan of another session, nor of
// another claim.
func TestAReusedCallerHasThePlanOfItsOwnRequest(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	gold, free := bearing(hs256(claims("sid", "a", "plan", "gold", "old", "bronze"))), bearing(hs256(claims("sid", "b", "plan", "free")))
	c := new(identity.Caller)
	for i, step := range []struct {
		req      *identity.HTTPRequest
		by, want string
	}{
		{gold, "claim:plan", "gold"}, {gold, "claim:old", "bronze"}, {free, "claim:old", ""}, {free, "claim:plan", "free"},
		{gold, "claim:plan", "gold"}, {request("192.0.2.1:1"), "claim:plan", ""}, {gold, "claim:plan", "gold"},
	} {
		r.Start(c, step.req)
		if got := plan(c, step.by); got != step.want {
			t.Errorf("request %d by %s: plan %q, want %q", i, step.by, got, step.want)
		}
	}
}
