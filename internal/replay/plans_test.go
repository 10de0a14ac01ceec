package replay

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func withPlans(l weir.Limiter) weir.Limiter {
	minute := func(limit int64) []weir.Rate { return []weir.Rate{{Limit: limit, Per: time.Minute}} }
	l.Plans = weir.Plans{By: "claim:plan", List: []weir.Plan{{Name: "gold", Rates: minute(4)}, {Name: "same", Rates: minute(2)}, {Name: "trial", Rates: minute(1)}}}
	return l
}

// ofPlans returns n lines of an address for each plan.
func ofPlans(n int, plans ...string) (lines []string) {
	for _, plan := range plans {
		for range n {
			lines = append(lines, logged("192.0.2."+string(rune('1'+slices.Index(plans, plan))), "-", plan, "-"))
		}
	}
	return lines
}

func TestAPlanOfTheLogSetsTheLimit(t *testing.T) {
	l := withPlans(limiterOf(t, "all", "2 per minute by ip"))
	out := fromLog(t, Options{Policy: policyOf(l), Forwarded: -1, Keys: map[string]int{PlanKey: 1}, Touch: 1}, ofPlans(5, "gold", "trial", "same", "silver")...)
	w := out.Policy.Limiters[0].Windows[0]
	if out.Policy.Refused != 1+4+3+3 || w.Touched.N != 4 {
		t.Errorf("refused %d, want 11; %+v", out.Policy.Refused, w)
	}
	if len(out.Log.Lacks) != 0 {
		t.Errorf("the log has the plan, and lacks %+v", out.Log.Lacks)
	}
	// only the caller without a plan of the limiter follows the window's limit
	if w.Recommend == nil || w.Recommend.Callers.N != 1 {
		t.Errorf("%+v", w.Recommend)
	}
}

func TestALogWithoutPlansIsReported(t *testing.T) {
	l := withPlans(limiterOf(t, "all", "2 per minute by ip"))
	shadow := withPlans(limiterOf(t, "tried", "3 per minute by ip"))
	shadow.Mode = weir.Shadow
	for name, keys := range map[string]map[string]int{"no field": nil, "an empty field": {PlanKey: 2}} {
		out := fromLog(t, Options{Policy: policyOf(l, shadow), Forwarded: -1, Keys: keys}, ofPlans(5, "gold")...)
		if len(out.Log.Lacks) != 1 {
			t.Fatalf("%s: lacks %+v", name, out.Log.Lacks)
		}
		lack := out.Log.Lacks[0]
		if lack.Source != "plan" || lack.Instead != "the windows' own limits" || lack.Requests != 10 || !slices.Equal(lack.Limiters, []string{"all", "tried"}) {
			t.Errorf("%s: lacks %+v", name, lack)
		}
		if out.Policy.Refused != 3 {
			t.Errorf("%s: %d refused by the window's own limit, want 3", name, out.Policy.Refused)
		}
	}
}

// Callers who wait are sent again under their own plan.
func TestAPacedCallerKeepsItsPlan(t *testing.T) {
	l := withPlans(limiterOf(t, "all", "2 per minute by ip"))
	out := fromLog(t, Options{Policy: policyOf(l), Forwarded: -1, Keys: map[string]int{PlanKey: 1}, Paced: true}, ofPlans(9, "gold")...)
	if d := out.Policy.Delay; d == nil || d.Delayed != 5 || d.Max > 121 {
		t.Errorf("%+v: four at once, four a minute later, and one after that", d)
	}
}

// The decider for requests with an unknown agent has the plans that change its windows.
func TestPlansOfWindowsByAgentAreUnknownWithThem(t *testing.T) {
	l := withPlans(limiterOf(t, "all", "2 per minute by ip+agent", "100 per hour by ip"))
	l.Plans.List[0].Rates = append(l.Plans.List[0].Rates, weir.Rate{Limit: 3, Per: time.Hour})
	out := fromLog(t, Options{Policy: policyOf(l), Forwarded: -1, Keys: map[string]int{PlanKey: 1}}, ofPlans(5, "gold")...)
	if o := out.Policy; o.Refused != 2 || o.Unknown != 3 {
		t.Errorf("refused %d, unknown %d: the hour of gold admits 3", o.Refused, o.Unknown)
	}
}
