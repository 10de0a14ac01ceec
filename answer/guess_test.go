package answer_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// openTo returns a door with one limiter, and requests with sessions of an agent.
func openTo(t *testing.T, requires string, change func(*weir.Limiter), windows ...string) *plannedDoor {
	row := "api /api"
	if requires != "" {
		row += " requires " + requires
	}
	p := limiters(t, map[string][]string{row: windows})
	if change != nil {
		change(&p.Limiters[0])
	}
	return openSigned(t, p, weir.Options{})
}

func (d *plannedDoor) sendBy(agent, session string) (a *answer.Answer, unchecked bool) {
	d.Helper()
	r := from("192.0.2.1", "Authorization", "Bearer "+session)
	r.header["X-Agent-Id"] = []string{agent}
	return d.judged("/api", r)
}

// Whatever refuses a guesser, a hundred of its signatures are verified a second, and half of them
// are for sessions that come again (D16).
func TestWhateverRefusesAGuesserBoundsItsChecks(t *testing.T) {
	penalty := func(l *weir.Limiter) { l.Penalty = weir.Penalty{After: 1, Per: time.Minute, For: 15 * time.Minute} }
	slots := func(l *weir.Limiter) { l.InFlight = inFlight(1) }
	for _, test := range []struct {
		name     string
		requires string
		change   func(*weir.Limiter)
		windows  []string
	}{
		{"a window by session or ip", "", nil, []string{"5 per hour by session or ip"}},
		{"a window by ip", "", nil, []string{"5 per hour by ip", "1000 per hour by session or ip"}},
		{"a shorter window by ip", "", nil, []string{"5 per hour by ip", "3 per minute by session or ip"}},
		{"a window by ip beside one for everyone", "session", nil, []string{"5 per hour by ip", "100000 per hour by everyone"}},
		{"a window for everyone", "", nil, []string{"5 per hour by everyone", "1000 per hour by session or ip"}},
		{"a window by an agent", "", nil, []string{"5 per hour by ip+agent", "1000 per hour by session or ip"}},
		{"a window by session or agent", "", nil, []string{"5 per hour by session or ip+agent"}},
		{"a penalty", "", penalty, []string{"5 per hour by session or ip"}},
		{"a limit in flight", "", slots, []string{"1000 per hour by session or ip"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := openTo(t, test.requires, test.change, test.windows...)
			checked := 0
			for second := range 5 {
				for range 300 {
					a, unchecked := d.sendBy("a", d.forged())
					if a.Status == 429 && !unchecked {
						checked++
					}
				}
				if second == 0 && (checked < 50 || checked > 51) {
					t.Errorf("%d signatures of refused requests were checked at once, want 50", checked)
				}
				d.clock.Advance(time.Second)
			}
			if checked > 500 {
				t.Errorf("%d signatures of refused requests were checked in five seconds", checked)
			}
		})
	}
}

// A failing store does not answer.
type failing struct{}

func (failing) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("it fails")
}

func TestAStoreThatDoesNotAnswerBoundsTheChecks(t *testing.T) {
	d := openTo(t, "", nil, "5 per hour by session or ip")
	p := d.decider.Policy()
	p.Limiters[0].OnStoreFailure = weir.FailDeny
	decider, err := weir.New(p, failing{}, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.judge, err = answer.New(decider, answer.Options{Identity: d.who}); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for range 300 {
		a, unchecked := d.sendBy("a", d.forged())
		if a.Status != 503 {
			t.Fatalf("the answer is %d", a.Status)
		}
		if !unchecked {
			checked++
		}
	}
	if checked > 51 {
		t.Errorf("%d of 300 signatures were checked, want 51", checked)
	}
}

// A request that would be admitted without its session has the session verified, however many
// forged ones its address sends, and is charged once (D16).
func TestAnAddressWithBudgetHasEverySessionVerified(t *testing.T) {
	d := openTo(t, "session", nil, "5 per hour by ip+agent", "3 per minute by session or ip+agent")
	for range 300 {
		d.sendBy("guesser", d.forged())
	}
	for n := range 5 {
		if _, unchecked := d.sendBy("guesser", d.forged()); !unchecked {
			t.Fatal("a check is left: the test shows nothing")
		}
		a, _ := d.sendBy("b", d.session(fmt.Sprint("stranger ", n), ""))
		if a.Status != 0 {
			t.Fatalf("session %d of an agent with budget is answered %d", n, a.Status)
		}
		for _, s := range a.Decision.Standings() {
			if want := map[int64]int64{5: int64(4 - n), 3: 2}[s.Limit]; s.Remaining != want {
				t.Errorf("session %d has %d of %d left, want %d", n, s.Remaining, s.Limit, want)
			}
		}
	}
	if a, _ := d.sendBy("b", d.session("one more", "")); a.Status != 429 {
		t.Errorf("a sixth request is answered %d", a.Status)
	}
	if a, _ := d.sendBy("c", d.forged()); a.Status != 401 {
		t.Errorf("a forged session of an agent with budget is answered %d", a.Status)
	}
}

// A token that is put off with the session beside it comes again in a second, and not at the reset,
// if the limiter has another rule for some tokens.
func TestATokenBesideAnUncheckedSessionComesAgainInASecond(t *testing.T) {
	guesser, guesserID, guesserHash, err := identity.NewToken(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	exempt, id, hash, err := identity.NewToken(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range map[string]func(l *weir.Limiter){
		"exempt": func(l *weir.Limiter) { l.Exempt = []weir.Who{{Token: id}} },
		"override": func(l *weir.Limiter) {
			l.Overrides = []weir.Override{{Limit: 9, Per: time.Hour, For: weir.Who{Token: id}}}
		},
		"none": nil,
	} {
		d := openTo(t, "", rule, "5 per hour by ip")
		d.tokens[guesserID] = identity.StoredToken{ID: guesserID, Hash: guesserHash}
		d.tokens[id] = identity.StoredToken{ID: id, Hash: hash}
		send := func(key, session string) (status int, wait string) {
			r := from("192.0.2.1", "Authorization", "Bearer "+session)
			r.header["X-Api-Key"] = []string{key}
			a, _ := d.judged("/api", r)
			for _, f := range a.AppendFields(nil) {
				if f.Name == "Retry-After" {
					wait = f.Value
				}
			}
			return a.Status, wait
		}
		for range 300 {
			send(guesser, d.forged())
		}
		fresh := d.session("fresh", "")
		wantWait, wantStatus := "1", 0
		if rule == nil {
			wantWait, wantStatus = "3600", 429
		}
		if status, wait := send(exempt, fresh); status != 429 || wait != wantWait {
			t.Errorf("%s: %d, Retry-After %s, want %s", name, status, wait, wantWait)
		}
		d.clock.Advance(time.Second)
		if status, _ := send(exempt, fresh); status != wantStatus {
			t.Errorf("%s: a second later the status is %d, want %d", name, status, wantStatus)
		}
	}
}

// Trials verify a bounded number of forged sessions, which makes no difference to the policy in
// force: neither does what they verify (D16).
func TestATrialBoundsWhatItVerifiesAndChangesNothing(t *testing.T) {
	rows := map[string][]string{"api /api": {"1000 per hour by ip"}, "other /other requires session": {"5 per hour by session or ip"}}
	tried := limiters(t, map[string][]string{"tried /api requires session": {"1000 per hour by session or ip"}}).Limiters[0]
	var shadow, candidate []bool // whether each counts a caller as one without a session
	o := weir.Options{
		OnShadow:    func(s weir.Shadowed) { shadow = append(shadow, s.Rejects) },
		OnCandidate: func(c weir.Compared) { candidate = append(candidate, c.CandidateRejects) },
	}
	for _, by := range []string{"nothing", "a shadow", "a candidate"} {
		t.Run("by "+by, func(t *testing.T) {
			p, rejects := limiters(t, rows), &shadow
			if by == "a shadow" {
				s := tried
				s.Mode = weir.Shadow
				p.Limiters = append(p.Limiters, s)
			}
			d := openSigned(t, p, o)
			if by == "a candidate" {
				rejects = &candidate
				if err := d.decider.SetCandidate(&weir.Policy{Limiters: []weir.Limiter{tried}}, d.store()); err != nil {
					t.Fatal(err)
				}
			}
			last := func() bool { return (*rejects)[len(*rejects)-1] }
			fresh, known := d.session("fresh", ""), d.session("known", "")
			if d.send(known); by != "nothing" && last() {
				t.Error("a good session is taken for none")
			}
			for range 200 {
				d.send(d.forged())
			}
			if d.send(fresh); by != "nothing" && !last() {
				t.Error("a good session is verified after 200 forged ones: nothing bounds them")
			}
			if d.send(known); by != "nothing" && last() {
				t.Error("a session that was verified before is taken for none")
			}
			// the other limiter has the checks that it would have without trials
			for range 6 {
				d.sendTo("/other", "")
			}
			for n := range 60 {
				if _, unchecked := d.sendTo("/other", d.forged()); unchecked != (n >= 50) {
					t.Fatalf("forged session %d of the other limiter: unchecked %v", n, unchecked)
				}
			}
			if a, _ := d.sendTo("/other", known); a.Status != 429 || a.Decision.Standings()[0].Limit != 5 {
				t.Errorf("a session that only a trial knows is answered %d", a.Status)
			}
			d.clock.Advance(time.Second)
			if a, _ := d.sendTo("/other", known); a.Status != 0 {
				t.Errorf("a second later it is answered %d", a.Status)
			}
			if d.send(fresh); by != "nothing" && last() {
				t.Error("a good session is taken for none a second later")
			}
		})
	}
}
