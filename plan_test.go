package weir_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A subscriber is a caller with a plan, as Plans.By "token" reads it.
type subscriber struct {
	at
	plan string
}

func (s subscriber) Plan(by string) (plan string, known bool) {
	if by != "token" {
		return "", false
	}
	return s.plan, true
}

func subscribed(addr, token, plan string) subscriber { return subscriber{from(addr, token), plan} }

func rateOf(s string) weir.Rate {
	r, err := weir.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

// plansBy returns Plans from texts such as "gold: 600 per minute, 9000 per day".
func plansBy(by string, specs ...string) weir.Plans {
	p := weir.Plans{By: by}
	for _, spec := range specs {
		name, rates, _ := strings.Cut(spec, ": ")
		plan := weir.Plan{Name: name}
		for rate := range strings.SplitSeq(rates, ", ") {
			plan.Rates = append(plan.Rates, rateOf(rate))
		}
		p.List = append(p.List, plan)
	}
	return p
}

func (b *bench) as(who weir.Keys) weir.Decision {
	b.Helper()
	d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: who})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func TestAPlanReplacesTheLimitsOfItsLengths(t *testing.T) {
	l := limiter("l", "10 per minute by ip", "10 per minute by ip+agent", "100 per hour by ip", "1000 per minute by everyone")
	l.Plans = plansBy("token", "gold: 20 per minute, 500 per hour", "free: 5 per minute")
	b := newBench(t, policyOf(l))
	for plan, want := range map[string][4]int64{
		"gold": {20, 20, 500, 1000}, "free": {5, 5, 100, 1000},
		"Gold": {10, 10, 100, 1000}, "": {10, 10, 100, 1000}, "by": {10, 10, 100, 1000},
	} {
		d, err := b.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: subscribed("192.0.2.1", "t", plan), Cost: weir.Peek})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range d.Standings() {
			i := 0
			for &s.Limiter.Windows[i] != s.Window {
				i++
			}
			if s.Limit != want[i] || s.Remaining != want[i] {
				t.Errorf("plan %q has %d of %d of %v, want %d", plan, s.Remaining, s.Limit, s.Window, want[i])
			}
		}
	}
	// Keys that know no plans have the windows' own limits.
	b.want(b.as(from("192.0.2.9", "t")), "allowed 10 9 60 0")
}

func TestAGrantBeatsAnOverrideBeatsAPlanBeatsTheWindow(t *testing.T) {
	l := limiter("l", "10 per minute by token or ip")
	l.Plans = plansBy("token", "gold: 20 per minute")
	l.Overrides = []weir.Override{override("30 per minute for token vip")}
	l.Exempt = []weir.Who{whom("10.0.0.0/8")}
	b := newBench(t, policyOf(l))
	b.want(b.as(subscribed("192.0.2.1", "a", "")), "allowed 10 9 60 0")
	b.want(b.as(subscribed("192.0.2.1", "b", "gold")), "allowed 20 19 60 0")
	vip := subscribed("192.0.2.1", "vip", "gold")
	b.want(b.as(vip), "allowed 30 29 60 0")
	if err := b.d.Grant(context.Background(), "l", vip, []int64{40}, b.unix(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.want(b.as(vip), "allowed 40 38 60 0")
	granted := subscribed("192.0.2.1", "c", "gold") // a grant beats a plan without an override too
	if err := b.d.Grant(context.Background(), "l", granted, []int64{15}, b.unix(time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.want(b.as(granted), "allowed 15 14 60 0")
	for range 25 {
		if d := b.as(subscribed("10.1.2.3", "d", "gold")); !d.Allowed || !d.Exempt || d.Binding().Limit != 20 {
			t.Fatalf("an exempt caller: %+v", d)
		}
	}
}

func TestAnUpgradeKeepsTheCountAndADowngradeLeavesNothing(t *testing.T) {
	l := limiter("l", "3 per minute by token")
	l.Plans = plansBy("token", "gold: 5 per minute")
	b := newBench(t, policyOf(l))
	free, gold := subscribed("192.0.2.1", "a", "free"), subscribed("192.0.2.1", "a", "gold")
	for range 3 {
		b.as(free)
	}
	b.clock.Advance(10 * time.Second)
	b.want(b.as(free), "refused 3 0 50 50")
	b.want(b.as(gold), "allowed 5 1 50 0") // upgraded: at once, and 3 are spent already
	b.want(b.as(gold), "allowed 5 0 50 0")
	b.want(b.as(gold), "refused 5 0 50 50")
	b.want(b.as(free), "refused 3 0 50 50") // downgraded: never negative
	b.clock.Advance(50 * time.Second)
	b.want(b.as(free), "allowed 3 2 60 0")
}

// Plans change the limit of a calendar window, whatever its zone and day, and neither its count
// nor its end. A window of 31 days is as long as a month, and is another one.
func TestAPlanOfACalendarUnitKeepsTheCountAndTheEndOfItsSpan(t *testing.T) {
	l := limiter("l", "3 per calendar month in Europe/Berlin from day 15 by token", "100 per 31 days by token")
	without := policyOf(l)
	l.Plans = plansBy("token", "gold: 5 per calendar month")
	b := newBench(t, without)
	free, gold := subscribed("192.0.2.1", "a", ""), subscribed("192.0.2.1", "a", "gold")
	first := b.as(free)
	reset := first.Binding().Reset
	if err := b.d.Swap(policyOf(l)); err != nil {
		t.Fatal(err)
	}
	see := func(who weir.Keys, allowed bool, limit, remaining, reset int64) {
		t.Helper()
		d := b.as(who)
		if s := d.Binding(); d.Allowed != allowed || s.Limit != limit || s.Remaining != remaining || s.Reset != reset || s.Window.Calendar.Unit != weir.CalendarMonth {
			t.Errorf("allowed %v with %d of %d until %d in %v; want %v with %d of %d until %d", d.Allowed, s.Remaining, s.Limit, s.Reset, s.Window, allowed, remaining, limit, reset)
		}
		for _, s := range d.Standings() {
			if s.Window.Calendar.Unit == 0 && s.Limit != 100 {
				t.Errorf("%v has the limit %d", s.Window, s.Limit)
			}
		}
	}
	see(free, true, 3, 1, reset)
	b.clock.Advance(time.Hour)
	see(free, true, 3, 0, reset)
	see(free, false, 3, 0, reset)
	see(gold, true, 5, 1, reset)
	see(gold, true, 5, 0, reset)
	see(gold, false, 5, 0, reset)
	see(free, false, 3, 0, reset)
	now := b.as(free).Now
	b.clock.Advance(time.Duration(reset-now) * time.Second)
	next := b.as(gold)
	see(gold, true, 5, 3, next.Binding().Reset)
	if days := (next.Binding().Reset - reset) / 86400; days < 28 || days > 31 {
		t.Errorf("the next span has %d days", days)
	}
}

func TestARateNamesACalendarByItsUnit(t *testing.T) {
	r, err := weir.ParseRate("100000 per calendar month")
	if err != nil || r.String() != "100000 per calendar month" {
		t.Fatalf("%v, %v", r, err)
	}
	for spec, want := range map[string]bool{
		"5 per calendar month in Europe/Berlin from day 15 by ip": true,
		"5 per calendar month by ip":                              true,
		"5 per 31 days by ip":                                     false,
		"5 per calendar week by ip":                               false,
		"5 per calendar month by everyone":                        false,
	} {
		w, err := weir.ParseWindow(spec)
		if err != nil || r.Changes(&w) != want {
			t.Errorf("%v changes %q: %v, want %v; %v", r, spec, !want, want, err)
		}
	}
	for _, s := range []string{"9 per calendar month in Europe/Berlin", "9 per calendar month from day 15"} {
		if _, err := weir.ParseRate(s); err == nil || !strings.Contains(err.Error(), "zone and day belong to the window: write 9 per calendar month") {
			t.Errorf("%q: error %v", s, err)
		}
	}
}

func TestInspectTellsThePlanOrThatItIsUnknown(t *testing.T) {
	l := limiter("l", "10 per minute by token", "100 per hour by token", "1000 per day by everyone")
	l.Plans = plansBy("token", "gold: 20 per minute", "free: 5 per minute, 50 per hour")
	l.Overrides = []weir.Override{override("10 per minute for token vip")}
	b := newBench(t, policyOf(l))
	type state struct {
		limit    int64
		override bool
		plan     string
		unknown  bool
	}
	for _, c := range []struct {
		who  weir.Keys
		want [3]state
	}{
		{subscribed("192.0.2.1", "a", "gold"), [3]state{{20, false, "gold", false}, {100, false, "", false}, {1000, false, "", false}}},
		{subscribed("192.0.2.1", "a", "free"), [3]state{{5, false, "free", false}, {50, false, "free", false}, {1000, false, "", false}}},
		{subscribed("192.0.2.1", "a", "silver"), [3]state{{10, false, "", false}, {100, false, "", false}, {1000, false, "", false}}},
		{from("192.0.2.1", "a"), [3]state{{10, false, "", true}, {100, false, "", true}, {1000, false, "", false}}},
		// an override with the window's own limit is one too
		{subscribed("192.0.2.1", "vip", "gold"), [3]state{{10, true, "", false}, {100, false, "", false}, {1000, false, "", false}}},
	} {
		found, err := b.d.Inspect(context.Background(), "l", c.who)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range found {
			if got := (state{w.Declared, w.Override, w.Plan, w.PlanUnknown}); got != c.want[i] {
				t.Errorf("%+v, %v: %+v, want %+v", c.who, w.Window, got, c.want[i])
			}
		}
	}
}

func TestSavedKeysHaveThePlanThatWasInForce(t *testing.T) {
	l := limiter("l", "10 per minute by token")
	l.Plans = plansBy("token", "gold: 20 per minute")
	b := newBench(t, policyOf(l))
	limitOf := func(who weir.Keys) (limit int64, unknown bool) {
		found, err := b.d.Inspect(context.Background(), "l", who)
		if err != nil {
			t.Fatal(err)
		}
		return found[0].Limit, found[0].PlanUnknown
	}
	for plan, want := range map[string]int64{"gold": 20, "": 10, "silver": 10, strings.Repeat("x", 1000): 10} {
		saved := weir.SaveKeys(&l, subscribed("192.0.2.1", "a", plan))
		if limit, unknown := limitOf(saved); limit != want || unknown {
			t.Errorf("saved with the plan %.20q: limit %d, unknown %v; want %d", plan, limit, unknown, want)
		}
		if len(saved) != 2 || saved[0].IsPlan() || !saved[1].IsPlan() || len(saved[1].Value) > 64 {
			t.Errorf("saved %#v", []weir.SavedSource(saved))
		}
	}
	if limit, unknown := limitOf(weir.SaveKeys(&l, from("192.0.2.1", "a"))); limit != 10 || !unknown {
		t.Errorf("saved from keys without plans: limit %d, unknown %v", limit, unknown)
	}
	moved := l
	// A policy that reads the plan elsewhere does not take it from the old place.
	moved.Plans.By = "claim:plan"
	saved := weir.SaveKeys(&l, subscribed("192.0.2.1", "a", "gold"))
	if err := b.d.Swap(policyOf(moved)); err != nil {
		t.Fatal(err)
	}
	if limit, unknown := limitOf(saved); limit != 10 || !unknown {
		t.Errorf("saved under another by: limit %d, unknown %v", limit, unknown)
	}
}

// A shadow and a candidate see the same plan as the limiter that is in force.
func TestTrialsHaveThePlanToo(t *testing.T) {
	l := limiter("l", "10 per minute by token")
	l.Plans = plansBy("token", "gold: 20 per minute")
	shadow := l
	shadow.Mode = weir.Shadow
	var tried, would int64
	store := newStore(t, newBench(t, policyOf(l)).clock)
	d, err := weir.New(policyOf(shadow), store, weir.Options{
		OnShadow:    func(s weir.Shadowed) { tried = s.Decision.Binding().Limit },
		OnCandidate: func(c weir.Compared) { would = c.Candidate.Binding().Limit },
	})
	if err != nil {
		t.Fatal(err)
	}
	candidate := policyOf(l)
	if err := d.SetCandidate(&candidate, newStore(t, newBench(t, policyOf(l)).clock)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: subscribed("192.0.2.1", "a", "gold")}); err != nil {
		t.Fatal(err)
	}
	if tried != 20 || would != 20 {
		t.Errorf("the shadow has limit %d, the candidate %d", tried, would)
	}
}

func TestPlansAreChecked(t *testing.T) {
	many := weir.Plans{By: "token"}
	for i := range weir.MaxPlans + 1 {
		many.List = append(many.List, weir.Plan{Name: "p" + strings.Repeat("x", i%50) + string(rune('a'+i%26)), Rates: []weir.Rate{rateOf("1 per minute")}})
	}
	twice := plansBy("token", "gold: 20 per minute", "gold: 30 per minute")
	for _, c := range []struct {
		plans weir.Plans
		cost  int64
		want  string // part of the one problem's message; empty: there is none
	}{
		{plansBy("claim:org.plan", "gold: 20 per minute"), 0, ""},
		{plansBy("claim:https://example.com/plan", "gold: 20 per minute"), 0, ""},
		{plansBy("claim:urn:x?org=1", "gold: 20 per minute"), 0, "letters, digits and"},
		{plansBy("claim:$plan@example.com/a~b#c", "gold: 20 per minute"), 0, ""},
		{plansBy("header:X-Plan", "a.b_c-D: 20 per minute"), 0, ""},
		{weir.Plans{List: plansBy("", "gold: 20 per minute").List}, 0, "plans without by"},
		{plansBy("ip", "gold: 20 per minute"), 0, `plans by "ip": claim:NAME, token or header:NAME are allowed`},
		{plansBy("header:x-plan", "gold: 20 per minute"), 0, `write it as "header:X-Plan"`},
		{plansBy("header:Host", "gold: 20 per minute"), 0, "names no caller"},
		{plansBy("claim:", "gold: 20 per minute"), 0, "1 to 64 characters"},
		{plansBy("claim:a b", "gold: 20 per minute"), 0, "letters, digits and"},
		{weir.Plans{By: "token"}, 0, "names no plan"},
		{weir.Plans{By: "token", List: []weir.Plan{{Name: "gold"}}}, 0, "has no rate"},
		{plansBy("token", "go ld: 20 per minute"), 0, `plan "go ld"`},
		{plansBy("token", "by: 20 per minute"), 0, "not the word by"},
		{plansBy("token", "wpt_abc_def: 20 per minute"), 0, "letters, digits"},
		{plansBy("token", strings.Repeat("x", 65)+": 20 per minute"), 0, "at most 64"},
		{twice, 0, "occurs twice"},
		{many, 0, "1001 plans: at most 1000"},
		{plansBy("token", "gold: 20 per hour"), 0, "no window of this limiter has that length"},
		{plansBy("token", "gold: 20 per calendar day"), 0, "no window of this limiter has that length"},
		{plansBy("token", "gold: 20 per minute, 30 per 60 seconds"), 0, "two rates of one length"},
		{plansBy("token", "gold: 20 per minute"), 10, ""},
		{plansBy("token", "free: 5 per minute"), 10, "cost 10 exceeds the limit of plan"},
		{weir.Plans{By: "token", List: []weir.Plan{{Name: "g", Rates: []weir.Rate{{Limit: 0, Per: time.Minute}}}}}, 0, "out of range"},
	} {
		l := limiter("l", "10 per minute by ip")
		l.Cost, l.Plans = c.cost, c.plans
		var messages []string
		for _, p := range policyOf(l).Problems(nil) {
			messages = append(messages, p.Field+": "+p.Message)
		}
		switch all := strings.Join(messages, "\n"); {
		case c.want == "" && all != "", c.want != "" && (len(messages) != 1 || !strings.HasPrefix(all, "plans: ") || !strings.Contains(all, c.want)):
			t.Errorf("%.80v, cost %d: problems %q, want %q", c.plans, c.cost, all, c.want)
		}
	}
}

func TestThePolicyInForceIsNotChangedThroughItsPlans(t *testing.T) {
	l := limiter("l", "10 per minute by token")
	l.Plans = plansBy("token", "gold: 20 per minute")
	b := newBench(t, policyOf(l))
	before := b.d.Policy()
	l.Plans.List[0].Rates[0].Limit = 99
	b.d.Policy().Limiters[0].Plans.List[0].Name = "silver"
	if after := b.d.Policy(); !reflect.DeepEqual(before, after) {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestAPlanAllocatesNothing(t *testing.T) {
	l := limiter("l", "1000000 per minute by token", "1000000 per hour by ip")
	l.Plans = plansBy("token", "gold: 2000000 per minute", "free: 100000 per minute")
	b := newBench(t, policyOf(l))
	request, out := weir.Request{Limiters: []string{"l"}, Keys: subscribed("192.0.2.1", "a", "gold"), Scratch: new(weir.Scratch)}, new(weir.Decision)
	if n := testing.AllocsPerRun(1000, func() {
		if err := b.d.DecideInto(context.Background(), &request, out); err != nil || out.Binding().Limit == 100000 {
			t.Fatal(out, err)
		}
	}); n != 0 {
		t.Errorf("a decision with a plan allocates %v times", n)
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, plans := range []weir.Plans{{}, plansBy("token", "gold: 1900000000 per minute", "free: 60 per minute")} {
		name := "none"
		if plans.By != "" {
			name = "gold"
		}
		b.Run(name, func(b *testing.B) {
			l := limiter("l", "2000000000 per minute by token or ip")
			l.Plans = plans
			d := newBench(b, policyOf(l)).d
			request, out := weir.Request{Limiters: []string{"l"}, Keys: &fixedPlan{}, Scratch: new(weir.Scratch)}, new(weir.Decision)
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecideInto(context.Background(), &request, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type fixedPlan struct{ fixedKeys }

func (*fixedPlan) Plan(string) (string, bool) { return "gold", true }
