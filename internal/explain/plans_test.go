package explain

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func planned(t *testing.T, by string) weir.Policy {
	t.Helper()
	f, err := policyfile.Parse("plans.yaml", []byte(`limiters:
  - name: api
    routes: [/api/*]
    windows: [60 per minute by session or ip, 1000 per hour by ip]
    plans: {by: "`+by+`", free: 30 per minute, gold: [600 per minute, 5000 per hour]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policy
}

func TestAnExplanationHasTheLimitsOfThePlan(t *testing.T) {
	for _, c := range []struct {
		plan   string
		limits [2]int64
		why    string
	}{
		{"gold", [2]int64{600, 5000}, "plan gold has 600 per minute and 5000 per hour, if the claim org.plan of the verified session says so"},
		{"free", [2]int64{30, 0}, "plan free has 30 per minute"},
		{"silver", [2]int64{0, 0}, "the limiter has no plan silver, so the limits are the windows' own; it has free, gold"},
		{"", [2]int64{0, 0}, "no plan is given, so they are the windows' own"},
	} {
		var who Caller
		who.SetPlan(c.plan)
		e, err := Request(planned(t, "claim:org.plan"), "GET", "/api/x", who)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int64{e.Windows[0].PlanLimit, e.Windows[1].PlanLimit}; got != c.limits || !strings.Contains(strings.Join(e.Why, "\n"), c.why) {
			t.Errorf("plan %q: limits %v, want %v; why %q, want %q", c.plan, got, c.limits, e.Why, c.why)
		}
	}
}

func TestTheExposureIsThatOfTheHighestPlanAPartyCanHave(t *testing.T) {
	for by, want := range map[string]map[string]Bound{
		"claim:plan":    {"one address": {1200, false, "plan gold"}, "one session": {1200, false, "plan gold"}},
		"token":         {"one address": {1200, false, "plan gold"}, "one session": {120, true, ""}},
		"header:X-Plan": {"one address": {1200, false, "plan gold"}, "one session": {1200, false, "plan gold"}},
	} {
		p := planned(t, by)
		p.Limiters[0].Windows = p.Limiters[0].Windows[:1]
		p.Limiters[0].Plans.List[1].Rates = p.Limiters[0].Plans.List[1].Rates[:1]
		for _, party := range Parties(weir.Policy{}) {
			w, ok := want[party.Name]
			if !ok {
				continue
			}
			if party.Name == "one address" { // a caller may have any number of sessions
				p.Limiters[0].Windows[0].Key = weir.Key{{"ip"}}
			} else {
				p.Limiters[0].Windows[0].Key = weir.Key{{"session", "ip"}}
			}
			if got := Exposure(&p.Limiters[0], party, 60); got == nil || *got != w {
				t.Errorf("by %s, %s: %+v, want %+v", by, party.Name, got, w)
			}
		}
	}
}

// Two whole months can fall into one minute.
func TestAPlanOfACalendarUnitIsInTheExposure(t *testing.T) {
	p := planned(t, "header:X-Plan")
	l := &p.Limiters[0]
	for spec, want := range map[string]Bound{
		"100 per calendar month in Europe/Berlin by ip": {1800, false, "plan gold"},
		"100 per 31 days by ip":                         {199, true, ""},
	} {
		w, err := weir.ParseWindow(spec)
		if err != nil {
			t.Fatal(err)
		}
		rate, err := weir.ParseRate("900 per calendar month")
		if err != nil {
			t.Fatal(err)
		}
		l.Windows, l.Plans.List = []weir.Window{w}, []weir.Plan{{Name: "gold", Rates: []weir.Rate{rate}}}
		if got := Exposure(l, Party{"one address", "ip"}, 60); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", spec, got, want)
		}
	}
}
