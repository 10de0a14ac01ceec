package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// If a request's credential is missing or invalid, the request is counted by
// address, under the same limiter, and answered 401 (D16).
func TestAMissingOrInvalidCredentialIs401CountedByAddress(t *testing.T) {
	e := setUp(t, ok)
	valid := e.session("alice")
	a := e.send("POST /api/v1/widget/leads").want(401, 3, 2, 60).wantFields("Content-Type", "application/json", "Cache-Control", "no-store",
		"WWW-Authenticate", `Bearer realm="session"`, "Retry-After", "")
	if want := `{"error":{"code":"unauthenticated","message":"This request needs a visitor session. POST /api/v1/widget/init returns one as \"token\"; send it as Authorization: Bearer <token>."}}`; a.body != want {
		t.Errorf("the body is %s\nwant %s", a.body, want)
	}
	a = e.send("POST /api/v1/widget/leads", "Authorization: Bearer bad.bad.bad").want(401, 3, 1, 60).wantFields(
		"WWW-Authenticate", `Bearer realm="session", error="invalid_token"`)
	if !strings.HasPrefix(a.body, `{"error":{"code":"unauthenticated","message":"The visitor session was not accepted: `) {
		t.Errorf("the body is %s", a.body)
	}
	// no session's own budget was charged
	e.send("POST /api/v1/widget/leads", valid).want(200, 3, 2, 60)
}

// Once the address's budget is spent, its bad credentials are answered 429. A good one is served,
// also if it was never seen before (D16).
func TestAGoodCredentialIsNotRefusedForItsNeighbours(t *testing.T) {
	e := setUp(t, ok)
	for range 3 {
		e.send("POST /api/v1/widget/leads", "Authorization: Bearer bad.bad.bad").wantFields("Retry-After", "")
	}
	for range 20 {
		e.send("POST /api/v1/widget/leads", "Authorization: Bearer bad.bad.bad").want(429, 3, 0, 60).wantFields("Retry-After", "60")
		e.send("POST /api/v1/widget/leads").want(429, 3, 0, 60).wantFields("Retry-After", "60")
	}
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		e.send("POST /api/v1/widget/leads", e.session(id)).want(200, 3, 2, 60)
		e.send("POST /api/v1/widget/leads", e.signed(id)).want(200, 3, 2, 60)
	}
	for range 24 {
		e.send("GET /v1/wp/status")
	}
	e.send("GET /v1/wp/status").want(429, 4, 0, 60)
	e.send("GET /v1/wp/status", e.token()).want(200, 4, 3, 60)
}

// Forged public-key signatures cost a bounded number of verifications a second. A good session that
// comes after them is told to come again in a second, and is served then, while forged ones go on
// (D16).
func TestAGoodSessionWaitsASecondForForgedOnes(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) { o.IETF = true })
	alice := e.signed("alice")
	e.send("POST /api/v1/widget/leads", alice).want(200, 3, 2, 60)
	for i := range 4 {
		e.send("POST /api/v1/widget/leads", e.forged(fmt.Sprint(i)))
	}
	e.send("POST /api/v1/widget/leads").want(429, 3, 0, 60).wantFields("Retry-After", "60")
	bob := e.signed("bob")
	e.guess("POST /api/v1/widget/leads", 3, 60)
	e.send("POST /api/v1/widget/leads", bob).want(429, 3, 0, 1).wantFields("Retry-After", "1", "RateLimit", `"widget-leads";r=0;t=1`)
	e.send("POST /api/v1/widget/leads", alice).want(200, 3, 1, 60) // it was verified before
	e.clock.Advance(time.Second)
	for i := range 120 { // the guesser goes on
		e.send("POST /api/v1/widget/leads", e.forged(fmt.Sprint("more ", i)))
	}
	e.send("POST /api/v1/widget/leads", bob).want(200, 3, 2, 61)
	e.send("POST /api/v1/widget/leads").want(429, 3, 0, 60).wantFields("Retry-After", "59")
}

// A window that counts by address refuses a good session too, so its reset is sent (D4).
func TestASessionThatIsNotVerifiedWaitsForAWindowByAddress(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l / requires session": {"1 per minute by session or ip", "1 per hour by ip"}})
	})
	e.send("GET /").want(401, 1, 0, 3600)
	for range 10 {
		e.send("GET /", e.forged("x")).want(429, 1, 0, 3600).wantFields("Retry-After", "3600")
	}
	e.send("GET /", e.signed("bob")).want(429, 1, 0, 3600).wantFields("Retry-After", "3600")
}

// A caller that spends its session's budget does not spend that of its address (D16).
func TestARefusedSessionSpendsNothingOfItsAddress(t *testing.T) {
	e := setUp(t, ok)
	alice := e.session("alice")
	for range 3 {
		e.send("POST /api/v1/widget/leads", alice)
	}
	e.send("POST /api/v1/widget/leads", alice).want(429, 3, 0, 60)
	e.send("POST /api/v1/widget/leads", e.session("bob")).want(200, 3, 2, 60)
}

// If callers without a session are counted by address and agent, one agent's spent budget does not
// affect another agent behind the same address (D16).
func TestASpentAgentDoesNotAffectOtherAgentsAtItsAddress(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l / requires session": {"1 per minute by session or ip+agent"}})
	})
	e.send("GET /", "X-Agent-Id: a").want(401, 1, 0, 60)
	e.send("GET /", "X-Agent-Id: a").want(429, 1, 0, 60)
	e.send("GET /", "X-Agent-Id: b", e.session("bob")).want(200, 1, 0, 60)
}

// The 401 for an API token has its own text (D15, D16).
func TestALimiterByTokenNeedsAnAPIToken(t *testing.T) {
	e := setUp(t, ok)
	e.send("GET /v1/wp/status", e.token()).want(200, 4, 3, 60)
	a := e.send("GET /v1/wp/status").want(401, 4, 3, 60).wantFields("WWW-Authenticate", `Bearer realm="token"`)
	if !strings.Contains(a.body, "workspace API token") || !strings.Contains(a.body, "weir token create") {
		t.Errorf("the body is %s", a.body)
	}
	// A credential of the other surface.
	e.send("GET /v1/wp/status", e.session("alice")).want(401, 4, 2, 60)
}

// A service can replace the sentence on how to get a credential.
func TestA401HasTheServicesHint(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
		o.Credentials = map[string]string{identity.Session: `Sign in at "/login".`}
	})
	if a := e.send("POST /api/v1/widget/leads").want(401, 3, 2, 60); a.body != `{"error":{"code":"unauthenticated","message":"This request needs a visitor session. Sign in at \"/login\"."}}` {
		t.Errorf("the body is %s", a.body)
	}
}

// Without a key no credential can be verified. Requests are counted by address, and
// pass (D17).
func TestUnverifiableCredentialsPass(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, who *identity.Options, _ *weir.Policy) {
		who.Sessions, who.Tokens = nil, nil
	})
	e.send("POST /api/v1/widget/leads", e.session("alice")).want(200, 3, 2, 60)
	e.send("POST /api/v1/widget/leads", e.session("bob")).want(200, 3, 1, 60)
	e.send("GET /v1/wp/status").want(200, 4, 3, 60)
}

// Counting is not authenticating: without requires, "token or ip" lets every caller in, and counts
// it by its token or by its address (D27).
func TestALimiterThatRequiresNothingNeverAnswers401(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l /": {"2 per minute by token or ip", "3 per minute by session or ip"}})
	})
	e.send("GET /").want(200, 2, 1, 60)
	e.send("GET /", "Authorization: Bearer wrong").want(200, 2, 0, 60)
	e.send("GET /", "Authorization: Bearer wrong").want(429, 2, 0, 60)
	e.send("GET /", e.token()).want(200, 3, 0, 60) // the other window counts its address
	e.send("GET /", e.token()).want(429, 3, 0, 60)
	e.clock.Advance(time.Minute)
	for range 2 {
		e.send("GET /", e.token()).want(200, 2, 1, 120)
	}
}

// A limiter can require a credential that it does not count by (D27).
func TestALimiterThatCountsByAddressCanRequireAToken(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l / requires token": {"3 per minute by ip"}})
	})
	e.send("GET /", e.token()).want(200, 3, 2, 60)
	e.send("GET /", e.session("alice")).want(401, 3, 1, 60).wantFields("WWW-Authenticate", `Bearer realm="token", error="invalid_token"`)
	e.send("GET /").want(401, 3, 0, 60)
	e.send("GET /", e.token()).want(429, 3, 0, 60)
}

// Either of several credentials is counted (D27).
func TestEitherOfSeveralCredentialsIsCounted(t *testing.T) {
	e := setUp(t, ok, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"l /": {"3 per minute by session or token"}})
	})
	e.send("GET /", e.token()).want(200, 3, 2, 60)
	e.send("GET /", e.session("alice")).want(200, 3, 2, 60)
	e.send("GET /").want(200, 3, 2, 60).wantFields("WWW-Authenticate", "")
}

// Charge requires no credential, but Serve does (D9, D10).
func TestAChargeNeedsNoCredential(t *testing.T) {
	e := setUp(t, ok)
	decider := e.decider
	e.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		match := decider.Match("GET", "", "/v1/wp/status")
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			httplimit.WriteError(w, http.StatusBadRequest, "invalid_request", "no safe reading")
		})
		if r.URL.Path == "/charge" {
			e.middleware.Charge(w, r, match, next)
		} else {
			e.middleware.Serve(w, r, match, next)
		}
	}))
	for i := range int64(3) {
		e.send("GET /charge").want(400, 4, 3-i, 60)
	}
	e.send("GET /serve").want(401, 4, 0, 60)
	e.send("GET /charge").want(429, 4, 0, 60)
}

// Handlers find the caller and the decision through any writer with an Unwrap
// method.
func TestHandlersFindTheCallerAndTheDecision(t *testing.T) {
	type wrapper struct{ http.ResponseWriter }
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, w := range []http.ResponseWriter{w, unwrapper{w}} {
			c, found := httplimit.CallerOf(w)
			if !found {
				t.Fatal("there is no caller")
			}
			if s, err := c.Session(); err != nil || s.ID != "alice" || c.Addr().String() != "127.0.0.1" {
				t.Errorf("the caller is %v %+v, %v", c.Addr(), s, err)
			}
			if d, found := httplimit.DecisionOf(w); !found || !d.Allowed || d.Binding().Limiter.Name != "widget-leads" {
				t.Errorf("the decision is %+v, %v", d, found)
			}
		}
		if _, found := httplimit.CallerOf(wrapper{w}); found {
			t.Error("a writer that does not unwrap has a caller")
		}
		_, _ = io.WriteString(w, "ok")
	})
	e.send("POST /api/v1/widget/leads", e.session("alice")).want(200, 3, 2, 60)
}

type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func TestEveryDecisionIsObserved(t *testing.T) {
	var seen []answer.Observation
	e := setUp(t, ok, func(e *edge, o *httplimit.Options, _ *identity.Options, _ *weir.Policy) {
		o.Observe = func(ob answer.Observation) {
			if (ob.Decision == nil) != (ob.Outcome == answer.Unlimited) {
				t.Errorf("outcome %v has the decision %+v", ob.Outcome, ob.Decision)
			}
			if (ob.Context == nil) != (ob.Outcome == answer.Unlimited) || ob.Context != nil && ob.Context.Value(http.ServerContextKey) == nil {
				t.Errorf("outcome %v has the context %v, want the request's", ob.Outcome, ob.Context)
			}
			if ob.Door != httplimit.Door {
				t.Errorf("the door is %q", ob.Door)
			}
			seen = append(seen, ob)
		}
		o.Now = func() time.Time { e.clock.Advance(time.Millisecond); return e.clock.Now() }
	})
	for _, target := range []string{"GET /else", "POST /api/v1/widget/typing", "POST /api/v1/widget/leads", "PUT /api/v1/widget/satisf", "PUT /api/v1/widget/satisf", "PUT /api/v1/widget/satisf"} {
		e.send(target)
	}
	e.server.Close()
	want := []struct {
		limiter string
		outcome answer.Outcome
		text    string
		status  int
	}{
		{"", answer.Unlimited, "unlimited", 0}, {"widget-typing", answer.Admitted, "admitted", 0},
		{"widget-leads", answer.Unauthenticated, "unauthenticated", 401}, {"widget-satisfaction", answer.Admitted, "admitted", 0},
		{"widget-satisfaction", answer.Admitted, "admitted", 0}, {"widget-satisfaction", answer.Refused, "refused", 429},
	}
	if len(seen) != len(want) {
		t.Fatalf("there are %d observations, want %d", len(seen), len(want))
	}
	for i, w := range want {
		got := seen[i]
		if got.Limiter != w.limiter || got.Outcome != w.outcome || got.Outcome.String() != w.text || got.Status != w.status {
			t.Errorf("%d: the observation is %+v, want %+v", i, got, w)
		}
		if w.limiter != "" && (got.Window == nil || got.Latency != time.Millisecond) {
			t.Errorf("%d: the window is %v, the latency %v", i, got.Window, got.Latency)
		}
	}
}
