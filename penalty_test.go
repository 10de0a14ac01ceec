package weir_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// penalized returns a limiter that refuses a caller for 15 minutes after three refusals per minute.
func penalized(name string, specs ...string) weir.Limiter {
	l := limiter(name, specs...)
	l.Penalty = weir.Penalty{After: 3, Per: time.Minute, For: 15 * time.Minute}
	return l
}

// expectPenalty asks once, and compares: "ok", "refused" or "penalty", and the seconds to the
// reset.
func (b *bench) expectPenalty(name string, c caller, want string) {
	b.Helper()
	d := b.ask(name, 0, c)
	w := d.Binding()
	got := "ok"
	switch {
	case w.Penalty:
		got = "penalty"
	case !d.Allowed:
		got = "refused"
	}
	if got += fmt.Sprint(" ", w.Reset-d.Now); got != want {
		b.Fatalf("%s, want %s", got, want)
	}
	if w.Penalty != (w.Penalty && w.Refused && w.Remaining == 0 && !d.Allowed) {
		b.Fatalf("under a penalty, the standing is %+v and allowed %v", w, d.Allowed)
	}
	if !d.Allowed && d.RetryAfter() != w.Reset-d.Now {
		b.Fatalf("Retry-After %d with a Reset in %d s", d.RetryAfter(), w.Reset-d.Now)
	}
}

func TestTheRefusalThatFillsTheNumberBeginsThePenalty(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "2 per minute by ip")))
	a, other := caller{"ip": "a"}, caller{"ip": "b"}
	b.expectPenalty("login", a, "ok 60")
	b.expectPenalty("login", a, "ok 60")
	b.expectPenalty("login", a, "refused 60")
	b.clock.Advance(10 * time.Second)
	b.expectPenalty("login", a, "refused 50")
	b.clock.Advance(10 * time.Second)
	b.expectPenalty("login", a, "penalty 900") // the third refusal
	b.expectPenalty("login", other, "ok 60")
	for i := range 14 { // the minute is long over; refusals by the penalty do not prolong it
		b.clock.Advance(time.Minute)
		b.expectPenalty("login", a, fmt.Sprint("penalty ", 840-60*i))
	}
	b.clock.Advance(59 * time.Second)
	b.expectPenalty("login", a, "penalty 1")
	b.clock.Advance(time.Second)
	b.expectPenalty("login", a, "ok 60")
	b.expectPenalty("login", a, "ok 60")
	b.expectPenalty("login", a, "refused 60") // counted from none again
	b.expectPenalty("login", a, "refused 60")
	b.expectPenalty("login", a, "penalty 900")
}

func TestRefusalsOutsideTheTimeBeginNoPenalty(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "1 per 10 minutes by ip")))
	a := caller{"ip": "a"}
	b.expectPenalty("login", a, "ok 600")
	for i := range int64(4) { // two refusals a minute
		b.expectPenalty("login", a, fmt.Sprint("refused ", 600-60*i))
		b.expectPenalty("login", a, fmt.Sprint("refused ", 600-60*i))
		b.clock.Advance(time.Minute)
	}
}

func TestThePenaltySpendsNothing(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "2 per hour by ip")))
	a := caller{"ip": "a"}
	b.expectPenalty("login", a, "ok 3600")
	b.expectPenalty("login", a, "ok 3600")
	for range 2 {
		b.expectPenalty("login", a, "refused 3600")
	}
	b.expectPenalty("login", a, "penalty 3600") // the hour ends later than the penalty
	b.clock.Advance(15 * time.Minute)
	b.expectPenalty("login", a, "refused 2700")
	if d := b.ask("login", weir.Peek, a); d.Binding().Count != 2 {
		t.Fatalf("%d units are spent, want the 2 that were admitted", d.Binding().Count)
	}
}

func TestAnyWindowOfTheLimiterCountsForThePenalty(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "10 per minute by ip", "1 per hour by header:X-User")))
	for i := range 3 { // a user each that others have used up
		user := caller{"ip": "z", "header:X-User": fmt.Sprint(i)}
		b.expectPenalty("login", user, "ok 3600")
	}
	for i := range 2 {
		b.expectPenalty("login", caller{"ip": "a", "header:X-User": fmt.Sprint(i)}, "refused 3600")
	}
	d := b.ask("login", 0, caller{"ip": "a", "header:X-User": "2"})
	for _, w := range d.Standings() {
		if first := w.Window.Key.String() == "ip"; w.Penalty != first || !w.Refused || first && w.Reset-d.Now != 900 {
			t.Errorf("%v stands at %+v", w.Window, w)
		}
	}
	d = b.ask("login", 0, caller{"ip": "a", "header:X-User": "new"})
	if w := d.Binding(); d.Allowed || !w.Penalty || w.Window.Key.String() != "ip" || w.Reset-d.Now != 900 {
		t.Errorf("with another user: %+v", w)
	}
	b.expectPenalty("login", caller{"ip": "b", "header:X-User": "new"}, "ok 3600")
}

// Otherwise whoever spends the shared budget could have others penalized.
func TestRefusalsByASharedWindowBeginNoPenalty(t *testing.T) {
	b := newBench(t, policyOf(penalized("model", "5 per minute by ip", "2 per minute by everyone", "9 per hour by session or everyone")))
	b.ask("model", 2, caller{"ip": "z", "everyone": ""})
	for range 10 {
		b.expectPenalty("model", caller{"ip": "a", "everyone": ""}, "refused 60")
	}
}

func TestAPenaltyOfOneRefusalAndOneShorterThanItsTime(t *testing.T) {
	l := limiter("login", "1 per 10 seconds by ip")
	l.Penalty = weir.Penalty{After: 1, Per: time.Hour, For: time.Minute}
	b := newBench(t, policyOf(l))
	a := caller{"ip": "a"}
	for range 3 { // each refusal of the hour begins it again
		b.expectPenalty("login", a, "ok 10")
		b.expectPenalty("login", a, "penalty 60")
		b.clock.Advance(time.Minute)
	}
}

func TestPeekShowsThePenaltyAndIsNotRefused(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "1 per second by ip")))
	a := caller{"ip": "a"}
	for range 4 {
		b.ask("login", 0, a)
	}
	b.clock.Advance(time.Minute)
	for range 5 {
		d := b.ask("login", weir.Peek, a)
		if w := d.Binding(); !d.Allowed || !w.Penalty || w.Refused || w.Remaining != 0 || w.Reset-d.Now != 840 {
			t.Fatalf("allowed %v with %+v", d.Allowed, w)
		}
	}
	b.clock.Advance(14 * time.Minute)
	d := b.ask("login", weir.Peek, a)
	if w := d.Binding(); w.Penalty || w.Remaining != 1 {
		t.Fatalf("after the penalty: %+v", w)
	}
}

// A caller whose first window is spent for longer than the penalty cannot be served at its end.
func TestPeekShowsASpentFirstWindowThatOutlastsThePenalty(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "2 per day by ip")))
	a := caller{"ip": "a"}
	for range 5 {
		b.ask("login", 0, a)
	}
	const day = 24 * 60 * 60
	b.expectPenalty("login", a, fmt.Sprint("penalty ", day))
	if w := b.ask("login", weir.Peek, a); !w.Binding().Penalty || w.Binding().Reset-w.Now != day {
		t.Errorf("a look has %+v, want a reset in %d s", w.Binding(), day)
	}
}

func TestExemptCallersHaveNoPenalty(t *testing.T) {
	l := penalized("login", "1 per hour by token")
	l.Exempt = []weir.Who{{Token: "vip"}}
	b := newBench(t, policyOf(l))
	for range 10 {
		if d := b.ask("login", 0, caller{"token": "vip"}); !d.Allowed || !d.Exempt || d.Binding().Penalty {
			t.Fatalf("an exempt caller was refused: %+v", d.Binding())
		}
	}
}

func TestAGrantDoesNotEndAPenaltyAndAResetDoes(t *testing.T) {
	b := newBench(t, policyOf(penalized("login", "1 per minute by ip", "9 per hour by ip")))
	a := caller{"ip": "a"}
	for range 4 {
		b.ask("login", 0, a)
	}
	ctx := context.Background()
	if err := b.d.Grant(ctx, "login", a, []int64{100, 0}, b.clock.Now().Unix()+3600); err != nil {
		t.Fatal(err)
	}
	b.expectPenalty("login", a, "penalty 900")
	states, err := b.d.Inspect(ctx, "login", a)
	if err != nil || len(states) != 2 {
		t.Fatalf("%d windows, %v", len(states), err)
	}
	if w := states[0]; !w.Penalty || w.PenaltyEnds-w.Now != 900 || w.Count != 1 || w.Remaining != 99 || states[1].Penalty {
		t.Fatalf("inspect: %+v", states)
	}
	if err := b.d.Grant(ctx, "login", a, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.d.Reset(ctx, "login", a); err != nil {
		t.Fatal(err)
	}
	if states, err = b.d.Inspect(ctx, "login", a); err != nil || states[0].Penalty || states[0].PenaltyEnds != 0 {
		t.Fatalf("after the reset: %+v, %v", states, err)
	}
	b.expectPenalty("login", a, "ok 60")
	b.expectPenalty("login", a, "refused 60") // and the refusals before it are forgotten
	b.expectPenalty("login", a, "refused 60")
	b.expectPenalty("login", a, "penalty 900")
}

func TestLimitersThatAreNamedTogetherHaveTheirOwnPenalties(t *testing.T) {
	b := newBench(t, policyOf(penalized("one", "1 per minute by ip"), penalized("two", "100 per minute by ip")))
	a := caller{"ip": "a"}
	for range 4 {
		if _, err := b.d.Decide(context.Background(), weir.Request{Keys: a, Limiters: []string{"two", "one"}}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := b.d.Decide(context.Background(), weir.Request{Keys: a, Limiters: []string{"two", "one"}})
	if err != nil || len(d.Standings()) != 2 || d.Binding().Limiter.Name != "one" || !d.Binding().Penalty {
		t.Fatalf("%+v, %v", d.Standings(), err)
	}
	b.expectPenalty("one", a, "penalty 900")
	b.expectPenalty("two", a, "ok 60")
	if d := b.ask("two", weir.Peek, a); d.Binding().Count != 2 {
		t.Errorf("%d units of two are spent, want 2", d.Binding().Count)
	}
}

func TestShadowAndCandidateHavePenaltiesOfTheirOwn(t *testing.T) {
	live := routed(penalized("login", "2 per minute by ip"), "/*")
	shadow := routed(penalized("strict", "1 per minute by ip"), "/*")
	shadow.Mode = weir.Shadow
	var shadowed, compared []string
	report := func(d *weir.Decision) string {
		if d.Binding().Penalty {
			return fmt.Sprint("penalty ", d.RetryAfter())
		}
		return fmt.Sprint(d.Allowed)
	}
	clock := storetest.StartManualClock()
	d, err := weir.New(policyOf(live, shadow), newStore(t, clock), weir.Options{
		OnShadow: func(s weir.Shadowed) { shadowed = append(shadowed, report(s.Decision)) },
		OnCandidate: func(c weir.Compared) {
			compared = append(compared, report(c.Live)+"/"+report(c.Candidate))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	candidate := policyOf(routed(penalized("login", "1 per minute by ip"), "/*"))
	if err := d.SetCandidate(&candidate, newStore(t, clock)); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := d.Decide(context.Background(), weir.Request{Path: "/x", Keys: caller{"ip": "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(shadowed, " "), "true false false penalty 900 penalty 900 penalty 900"; got != want {
		t.Errorf("the shadow: %s, want %s", got, want)
	}
	want := "true/true true/false false/false false/penalty 900 penalty 900/penalty 900 penalty 900/penalty 900"
	if got := strings.Join(compared, " "); got != want {
		t.Errorf("live and candidate: %s, want %s", got, want)
	}
}

// A store that answers a take and then fails does not begin a penalty, nor does one that refuses
// because it fails.
func TestAFailingStoreBeginsNoPenalty(t *testing.T) {
	clock := storetest.StartManualClock()
	store := &failing{Store: newStore(t, clock)}
	d, err := weir.New(policyOf(penalized("login", "1 per hour by ip")), store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, clock, d}
	a := caller{"ip": "a"}
	b.expectPenalty("login", a, "ok 3600")
	store.fails = func([]weir.Charge) bool { return true }
	for range 10 {
		if d := b.ask("login", 0, a); d.Outcome != weir.StoreUnavailable || d.Binding().Penalty {
			t.Fatalf("%v with %+v", d.Outcome, d.Binding())
		}
	}
	store.fails = func(c []weir.Charge) bool { return len(c) > 1 } // all but the refusals
	for range 10 {
		if d := b.ask("login", 0, a); d.Outcome != weir.StoreUnavailable || d.Binding().Penalty {
			t.Fatalf("%v with %+v", d.Outcome, d.Binding())
		}
	}
	store.fails = func(c []weir.Charge) bool { return len(c) == 1 } // the refusals
	for range 10 {
		b.expectPenalty("login", a, "refused 3600")
	}
	store.fails = func([]weir.Charge) bool { return false }
	b.expectPenalty("login", a, "refused 3600")
	b.expectPenalty("login", a, "refused 3600")
	// the take of the penalty alone
	store.fails = func(c []weir.Charge) bool { return len(c) == 1 && c[0].Per == 900 }
	b.expectPenalty("login", a, "refused 3600")
	store.fails = func([]weir.Charge) bool { return false }
	b.expectPenalty("login", a, "penalty 3600") // the next refusal begins what was lost
	b.clock.Advance(899 * time.Second)
	b.expectPenalty("login", a, "penalty 2701")
}

// failing is a store some of whose takes fail.
type failing struct {
	weir.Store
	fails func([]weir.Charge) bool // nil: none
}

func (s *failing) InProcess() {}

func (s *failing) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if s.fails != nil && s.fails(charges) {
		return context.DeadlineExceeded
	}
	return s.Store.Take(ctx, charges, r)
}

// However many are refused at once, the penalty begins at the number, and is one.
func TestPenaltyAmongConcurrentRequests(t *testing.T) {
	l := penalized("login", "5 per hour by ip")
	l.Penalty.After = 20
	b := newBench(t, policyOf(l))
	a := caller{"ip": "a"}
	for range 5 {
		b.ask("login", 0, a)
	}
	var plain, penalty, admitted atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			d, err := b.d.Decide(context.Background(), weir.Request{Keys: a, Limiters: []string{"login"}})
			switch {
			case err != nil || d.Allowed:
				admitted.Add(1)
			case d.Binding().Penalty:
				penalty.Add(1)
			default:
				plain.Add(1)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 0 || plain.Load() != 19 || penalty.Load() != 181 {
		t.Errorf("%d admitted, %d refused by the window and %d by the penalty, want 0, 19 and 181", admitted.Load(), plain.Load(), penalty.Load())
	}
}

func TestProblemsOfAPenalty(t *testing.T) {
	valid := weir.Penalty{After: 3, Per: time.Minute, For: time.Hour}
	for _, test := range []struct {
		change func(*weir.Limiter)
		want   string // empty: none
	}{
		{func(*weir.Limiter) {}, ""},
		{func(l *weir.Limiter) { l.Penalty.Per, l.Penalty.For = weir.MaxPer, weir.MaxPer }, ""},
		{func(l *weir.Limiter) { l.Penalty.After = 0 }, "after 0 refusals is out of range"},
		{func(l *weir.Limiter) { l.Penalty.After = weir.MaxLimit + 1 }, "out of range"},
		{func(l *weir.Limiter) { l.Penalty.Per = 0 }, "per 0s: whole seconds"},
		{func(l *weir.Limiter) { l.Penalty.Per = weir.MaxPer + time.Second }, "31 days"},
		{func(l *weir.Limiter) { l.Penalty.For = 1500 * time.Millisecond }, "refuses for 1.5s: whole seconds"},
		{func(l *weir.Limiter) { l.Penalty.For = -time.Second }, "whole seconds"},
		{func(l *weir.Limiter) { l.Windows = windows("3 per minute by everyone", "1 per minute by ip") }, "one of them could shut out all"},
		{func(l *weir.Limiter) { l.Windows = windows("3 per minute by session or everyone") }, "one of them could shut out all"},
		{func(l *weir.Limiter) { l.Windows = windows("1 per minute by ip", "3 per minute by everyone") }, ""},
	} {
		l := routed(limiter("login", "3 per minute by ip"), "/*")
		l.Penalty = valid
		test.change(&l)
		problems := policyOf(l).Problems(nil)
		switch {
		case test.want == "" && len(problems) > 0:
			t.Errorf("%v: %v", l.Penalty, problems)
		case test.want != "" && (len(problems) != 1 || problems[0].Field != "penalty" || !strings.Contains(problems[0].Message, test.want)):
			t.Errorf("%v by %v: %v, want one with %q", l.Penalty, l.Windows[0].Key, problems, test.want)
		}
	}
}

func TestPenaltyIsReadAsItIsWritten(t *testing.T) {
	for _, test := range []struct{ refusals, for_, canonical string }{
		{"20 refusals per minute", "15 minutes", "refused for 15 minutes after 20 refusals per minute"},
		{"1 refusal per 2 hours", "day", "refused for 1 day after 1 refusal per 2 hours"},
		{" 5  refusals  per 120 seconds ", "90 seconds", "refused for 90 seconds after 5 refusals per 2 minutes"},
	} {
		after, per, err := weir.ParseRefusals(test.refusals)
		if err != nil {
			t.Fatal(err)
		}
		length, err := weir.ParseRefuseFor(test.for_)
		if err != nil {
			t.Fatal(err)
		}
		p := weir.Penalty{After: after, Per: per, For: length}
		if p.String() != test.canonical {
			t.Errorf("%q, want %q", p, test.canonical)
		}
		again, per, err := weir.ParseRefusals(p.Refusals())
		length, err2 := weir.ParseRefuseFor(p.RefuseFor())
		if err != nil || err2 != nil || (weir.Penalty{After: again, Per: per, For: length}) != p {
			t.Errorf("%v is not read again: %v, %v", p, err, err2)
		}
	}
	for _, wrong := range []string{"", "20", "20 per minute", "20 refusals", "x refusals per minute", "0 refusals per minute", "3 refusals per fortnight", "3 refusals per calendar day", "3 refusals per 32 days"} {
		if _, _, err := weir.ParseRefusals(wrong); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", wrong)) {
			t.Errorf("refusals %q: %v", wrong, err)
		}
	}
	for _, wrong := range []string{"", "15", "0 minutes", "fifteen minutes", "15m", "32 days", "1 2 minutes"} {
		if _, err := weir.ParseRefuseFor(wrong); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", wrong)) {
			t.Errorf("refuse for %q: %v", wrong, err)
		}
	}
}

func BenchmarkDecideWithAPenalty(b *testing.B) {
	for _, l := range []weir.Limiter{limiter("without", "1000000000 per minute by ip"), penalized("with", "1000000000 per minute by ip")} {
		b.Run(l.Name, func(b *testing.B) {
			d := newDecider(b, policyOf(routed(l, "/*")))
			var s weir.Scratch
			var out weir.Decision
			r := weir.Request{Path: "/x", Keys: caller{"ip": "192.0.2.7"}, Scratch: &s}
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecideInto(context.Background(), &r, &out); err != nil || !out.Allowed {
					b.Fatal(err)
				}
			}
		})
	}
}
