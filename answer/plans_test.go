package answer_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// A plannedDoor has plans by a claim of sessions that are signed by a public key.
type plannedDoor struct {
	*door
	decider *weir.Decider
	private ed25519.PrivateKey
	guesses int
}

func openWithPlans(t *testing.T, windows ...string) *plannedDoor {
	t.Helper()
	p := limiters(t, map[string][]string{"api /api": windows})
	p.Limiters[0].Plans = weir.Plans{By: "claim:plan", List: []weir.Plan{{Name: "gold", Rates: []weir.Rate{{Limit: 6, Per: time.Minute}}}}}
	return openSigned(t, p, weir.Options{})
}

// openSigned returns a door for sessions that are signed by a public key.
func openSigned(t *testing.T, p weir.Policy, o weir.Options) *plannedDoor {
	t.Helper()
	d := open(t, p, answer.Options{})
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.NewPublicKey("ed", public)
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		t.Fatal(err)
	}
	field, err := identity.ParsePlace("header:X-Api-Key")
	if err != nil {
		t.Fatal(err)
	}
	if d.who, err = identity.New(identity.Options{Sessions: sessions, Tokens: d.tokens, TokenFrom: []identity.Place{{}, field}, Now: d.clock.Now}); err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(p, d.store(), o)
	if err != nil {
		t.Fatal(err)
	}
	if d.judge, err = answer.New(decider, answer.Options{Identity: d.who}); err != nil {
		t.Fatal(err)
	}
	return &plannedDoor{door: d, decider: decider, private: private}
}

// session returns a session with a plan.
func (d *plannedDoor) session(id, plan string) string {
	d.Helper()
	claims := jwt.MapClaims{"sid": id, "plan": plan, "exp": d.clock.Now().Add(time.Hour).Unix()}
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(d.private)
	if err != nil {
		d.Fatal(err)
	}
	return text
}

// send asks about a request with a session, and returns the answer and whether the session was not
// checked. An empty session is none.
func (d *plannedDoor) send(session string) (a *answer.Answer, unchecked bool) {
	d.Helper()
	return d.sendTo("/api", session)
}

func (d *plannedDoor) sendTo(path, session string) (a *answer.Answer, unchecked bool) {
	d.Helper()
	if session == "" {
		return d.judged(path, from("192.0.2.1", ""))
	}
	return d.judged(path, from("192.0.2.1", "Authorization", "Bearer "+session))
}

func (d *plannedDoor) judged(path string, r *request) (a *answer.Answer, unchecked bool) {
	d.Helper()
	a = new(answer.Answer)
	var c identity.Caller
	d.who.Start(&c, r)
	if err := d.judge.Answer(d.Context(), &answer.Question{Caller: &c, Method: "GET", Path: path}, a); err != nil {
		d.Fatal(err)
	}
	return a, c.Unchecked()
}

// forged returns a session, another one each time, whose signature does not verify.
func (d *plannedDoor) forged() string {
	d.guesses++
	good := d.session(fmt.Sprint("forged ", d.guesses), "gold")
	return good[:len(good)-40] + strings.Repeat("A", 40)
}

// guess takes all checks of a spent address that are for new sessions.
func (d *plannedDoor) guess() {
	for range 60 {
		d.send(d.forged())
	}
}

// Plans by a claim must not let a spent address have any number of signatures verified (D16).
func TestASpentAddressWithPlansHasAFewSignaturesChecked(t *testing.T) {
	d := openWithPlans(t, "2 per minute by ip")
	for range 3 {
		d.send("")
	}
	known, fresh := d.session("known", "gold"), d.session("fresh", "gold")
	if a, _ := d.send(known); a.Outcome != answer.Admitted || a.Decision.Binding().Limit != 6 || a.Decision.Binding().Count != 3 {
		t.Fatalf("a gold session of an address that anonymous callers have spent: %v, %+v", a.Outcome, a.Decision.Binding())
	}
	checked := 0
	for range 120 {
		a, unchecked := d.send(d.forged())
		if a.Outcome != answer.Refused || a.Decision.Binding().Limit != 2 {
			t.Fatalf("a forged session: %v, %+v", a.Outcome, a.Decision.Binding())
		}
		if !unchecked {
			checked++
		}
	}
	if checked != 50 {
		t.Errorf("%d of 120 forged signatures were checked, want 50", checked)
	}
	if a, _ := d.send(known); a.Outcome != answer.Admitted {
		t.Errorf("a session that is known: %v", a.Outcome)
	}
	if a, unchecked := d.send(fresh); a.Outcome != answer.Refused || !unchecked {
		t.Errorf("a fresh session in the second of a flood: %v, unchecked %v", a.Outcome, unchecked)
	}
	d.clock.Advance(time.Second)
	if a, _ := d.send(fresh); a.Outcome != answer.Admitted || a.Decision.Binding().Count != 5 {
		t.Errorf("a fresh session a second later: %v, %+v", a.Outcome, a.Decision.Binding())
	}
}

// If an operator gives budget back, a session that was not checked is charged once.
func TestASessionWithAPlanIsChargedOnceAfterItsAddressWasSpent(t *testing.T) {
	d := openWithPlans(t, "2 per minute by ip")
	for range 3 {
		d.send("")
	}
	d.guess()
	var c identity.Caller
	d.who.Start(&c, from("192.0.2.1", ""))
	if err := d.decider.Reset(t.Context(), "api", &c); err != nil {
		t.Fatal(err)
	}
	a, _ := d.send(d.session("fresh", "gold"))
	if a.Outcome != answer.Admitted || a.Decision.Binding().Count != 1 {
		t.Errorf("%v, %+v: want one unit spent", a.Outcome, a.Decision.Binding())
	}
	a, _ = d.send(d.session("fresh", "gold"))
	if b := a.Decision.Binding(); b.Limit != 6 || b.Count != 2 {
		t.Errorf("%+v: want the plan's limit and two units spent", b)
	}
}

// A penalty by the address refuses every plan, so a session that was not checked has to wait for
// its end.
func TestAPlanEndsNoPenaltyOfTheAddress(t *testing.T) {
	d := openWithPlans(t, "2 per minute by ip")
	p := d.decider.Policy()
	p.Limiters[0].Penalty = weir.Penalty{After: 1, Per: time.Minute, For: time.Hour}
	if err := d.decider.Swap(p); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the third begins the penalty
		d.send("")
	}
	d.guess()
	a, unchecked := d.send(d.session("fresh", "gold"))
	if !unchecked {
		t.Fatal("the session was checked")
	}
	for name, value := range a.Fields() {
		if name == headers.RetryAfter && value != "3600" {
			t.Errorf("Retry-After: %s, want 3600", value)
		}
	}
}

// A decision with a plan takes at most 1.15 times one without.
func BenchmarkPlan(b *testing.B) {
	plans := func(by string) weir.Plans {
		return weir.Plans{By: by, List: []weir.Plan{{Name: "gold", Rates: []weir.Rate{{Limit: 1_900_000_000, Per: time.Minute}}}}}
	}
	for _, c := range []struct {
		name, window string
		plans        weir.Plans
	}{
		{"token/none", "2000000000 per minute by token", weir.Plans{}},
		{"token/plan", "2000000000 per minute by token", plans("token")},
		{"session/none", "2000000000 per minute by session", weir.Plans{}},
		{"session/plan", "2000000000 per minute by session", plans("claim:plan")},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := limiters(b, map[string][]string{"api /api": {c.window}})
			p.Limiters[0].Plans = c.plans
			d := open(b, p, answer.Options{})
			claims := jwt.MapClaims{"sid": "s", "plan": "gold", "exp": d.clock.Now().Add(time.Hour).Unix()}
			credential, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
			if err != nil {
				b.Fatal(err)
			}
			credential = "Bearer " + credential
			if c.window[len(c.window)-5:] == "token" {
				credential = d.token()
				for id, t := range d.tokens {
					t.Plan = "gold"
					d.tokens[id] = t
				}
			}
			r, q, a := from("192.0.2.1", "Authorization", credential), answer.Question{Caller: new(identity.Caller), Method: "GET", Path: "/api"}, new(answer.Answer)
			b.ReportAllocs()
			for b.Loop() {
				d.who.Start(q.Caller, r)
				if err := d.judge.Answer(b.Context(), &q, a); err != nil || a.Outcome != answer.Admitted {
					b.Fatal(a.Outcome, err)
				}
			}
		})
	}
}
