package report

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/replay"
)

// refusing returns a report with so many refusals of so many requests.
func refusing(refused, requests int64) *replay.Report {
	return &replay.Report{Policy: replay.Outcome{Requests: requests, Refused: refused, Limiters: []replay.Limiter{{Name: "all", Requests: requests, Refused: refused}}}}
}

func judge(t *testing.T, text string, r *replay.Report) Verdict {
	t.Helper()
	c, err := ParseCondition(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c.Judge(r)
}

func TestAConditionIsJudgedExactly(t *testing.T) {
	for _, c := range []struct {
		text              string
		refused, requests int64
		holds             bool
	}{
		// three of a thousand are 0.3 %, and in floats a little more
		{"refused > 0.3%", 3, 1000, false},
		{"refused >= 0.3%", 3, 1000, true},
		{"refused == 0.3%", 3, 1000, true},
		{"refused < 0.3%", 3, 1000, false},
		{"refused<=0.3%", 3, 1000, true},
		{"refused > 0.3 %", 4, 1000, true},
		{"refused > 0.3%", 3_000_000_000_001, 1_000_000_000_000_000, true},
		{"refused > 0.3%", 3_000_000_000_000, 1_000_000_000_000_000, false},
		{"refused > 3", 3, 1000, false},
		{"refused > 2.5", 3, 1000, true},
		{"refused > 0", 0, 1000, false},
		{"refused == 0", 0, 0, true},
		{"refused > 100%", 10, 10, false},
		{"refused > 10%", 0, 0, true}, // there is no share of nothing: doubt refuses
		{"refused < 10%", 0, 0, true},
	} {
		if v := judge(t, c.text, refusing(c.refused, c.requests)); v.Holds != c.holds {
			t.Errorf("%s, with %d of %d: %v (%s), want %v", c.text, c.refused, c.requests, v.Holds, v.Measured, c.holds)
		}
	}
}

func TestEachMetricMeasuresWhatItsNameSays(t *testing.T) {
	r := made()
	r.Against.Delay = &replay.Delay{Delayed: 40, GaveUp: 2}
	r.Against.Limiters[0].Delay = &replay.Delay{Delayed: 39, GaveUp: 1}
	for text, want := range map[string]string{
		"refused > 1%":                     "62 of 10,000 requests (0.62%)", // the second policy's
		"widget-leads.refused > 1%":        "62 of 9,000 requests (0.688889%)",
		"touched > 1":                      "3 of 1,234 callers",
		"newly-refused > 0.3%":             "30 of 10,000 requests (0.3%)",
		"widget-leads.newly-refused > 1%":  "30 of 9,000 requests (0.333333%)",
		"widget-leads.newly-admitted > 99": "10 of 9,000 requests",
		"newly-admitted > 99":              "10 of 10,000 requests",
		"newly-touched > 1":                "2 of 1,234 callers",
		"freed > 5":                        "1 of 1,234 callers",
		"delayed > 1%":                     "40 of 10,000 requests (0.4%)",
		"gave-up > 1%":                     "2 of 10,000 requests (0.02%)",
		"widget-leads.delayed > 1%":        "39 of 9,000 requests (0.433333%)",
		"widget-other.refused > 1":         "0 of 988 requests, if it were enforced",
		"unlimited > 1%":                   "12 of 10,000 requests (0.12%)",
		"malformed > 1%":                   "3 of 10,003 lines (0.029991%)",
		"widget-leads.touched > 90%":       "3 of 1,234 callers (0.243112%) of 30 per minute by session or ip",
	} {
		t.Run(text, func(t *testing.T) {
			if got := judge(t, text, r).Measured; got != want {
				t.Errorf("%s measures %q, want %q", text, got, want)
			}
		})
	}
	if len(Metrics()) != 10 {
		t.Errorf("there are %d metrics, not those above", len(Metrics()))
	}
}

// Any of several windows may exceed a bound.
func TestTouchedIsJudgedByEveryWindow(t *testing.T) {
	r := made()
	r.Against = nil
	if v := judge(t, "widget-leads.touched < 1", r); !v.Holds || !strings.Contains(v.Measured, "of 1000 per day by ip") {
		t.Errorf("%+v; want it to hold for the window that touches nobody", v)
	}
	if v := judge(t, "widget-other.touched > 1", r); !v.Holds {
		t.Errorf("%+v; nothing was asked, so nothing can be judged", v)
	}
}

func TestAnEstimateIsJudgedOnTheDoubtfulSide(t *testing.T) {
	r := &replay.Report{Policy: replay.Outcome{Touched: replay.Count{N: 1000, Estimated: true}, Callers: replay.Count{N: 100_000, Estimated: true}}}
	for text, holds := range map[string]bool{
		// it may be 3 % more
		"touched > 1030": false, "touched > 1029": true, "touched >= 1030": true,
		"touched < 970": false, "touched < 971": true, "touched <= 970": true, // or less
		"touched == 1020": true, "touched == 1031": false,
		"touched > 1.06%": true, "touched > 1.07%": false, // 1,030 of 97,000 at most
		"touched < 0.95%": true, "touched < 0.94%": false,
	} {
		t.Run(text, func(t *testing.T) {
			v := judge(t, text, r)
			if v.Holds != holds || !strings.Contains(v.Measured, "estimated") {
				t.Errorf("%s: %+v, want %v, and that it is estimated", text, v, holds)
			}
		})
	}
}

// What cannot pass explains that itself, in every form.
func TestNoConditionPassesWhereFiguresSayNothing(t *testing.T) {
	for want, spoil := range map[string]func(r *replay.Report){
		"no limiter covers any request, so there is nothing to judge": func(r *replay.Report) {
			for i := range r.Against.Limiters {
				r.Against.Limiters[i].Requests = 0
			}
		},
		"there was too little memory for exact figures, so the result may differ":     func(r *replay.Report) { r.Against.Shared = 1 },
		"but there was too little memory for exact figures, so the result may differ": func(r *replay.Report) { r.Policy.Delay = &replay.Delay{NoRoom: 1} },
	} {
		for _, text := range []string{"refused > 99%", "widget-leads.refused > 99%", "newly-touched > 99%", "malformed > 99%", "unlimited > 99%"} {
			r := made()
			if v := judge(t, text, r); v.Holds {
				t.Errorf("%+v", v)
			}
			spoil(r)
			if v := judge(t, text, r); !v.Holds || !strings.HasSuffix(v.Measured, want) {
				t.Errorf("%+v; want that %s", v, want)
			}
		}
	}
}

// A policy with all limiters in shadow refuses nothing, so a condition on its sums would always
// pass.
func TestAShadowIsJudgedByItsName(t *testing.T) {
	r := made()
	r.Against.Requests, r.Against.Unlimited, r.Against.Refused = 988, 988, 0
	r.Against.Shadow = replay.Shadow{Requests: 988, Alone: 988, Refused: 247}
	r.Against.Limiters[1].Refused = 247
	for text, want := range map[string]Verdict{
		"refused > 50%":                  {Holds: true, Measured: "no limiter that is enforced covers any request, so there is nothing to judge; for one in shadow, use LIMITER.refused"},
		"newly-touched > 50%":            {Holds: true, Measured: "no limiter that is enforced covers any request, so there is nothing to judge; for one in shadow, use LIMITER.refused"},
		"unlimited > 1000":               {Measured: "988 of 988 requests"},
		"widget-other.refused > 20%":     {Holds: true, Measured: "247 of 988 requests (25%), if it were enforced"},
		"widget-other.refused > 25%":     {Measured: "247 of 988 requests (25%), if it were enforced"},
		"widget-other.newly-refused > 1": {Holds: true, Measured: "it is in shadow and refuses nothing, so there is nothing to judge; refused and touched count what it would refuse"},
	} {
		t.Run(text, func(t *testing.T) {
			want.Condition = text
			if v := judge(t, text, r); v != want {
				t.Errorf("%+v, want %+v", v, want)
			}
		})
	}
}

// A freed caller was refused something by the first policy; under the second it may be no caller at
// all.
func TestTheFreedAreAPartOfTheFirstPolicysCallers(t *testing.T) {
	r := made()
	r.Against.Callers, r.Policy.Callers, r.Difference.Freed = replay.Count{N: 1}, replay.Count{N: 80}, replay.Count{N: 40}
	if v := judge(t, "freed > 50%", r); v.Holds || v.Measured != "40 of 80 callers (50%)" {
		t.Errorf("%+v", v)
	}
}

func TestAnEstimatedShareIsNoMoreThanAll(t *testing.T) {
	r := made()
	r.Against.Callers, r.Difference.NewlyTouched = replay.Count{N: 1000, Estimated: true}, replay.Count{N: 1010, Estimated: true}
	if v := judge(t, "newly-touched > 99.9%", r); !v.Holds || v.Measured != "~1,010 of ~1,000 callers (~100%), estimated, and taken to be off by 3 %" {
		t.Errorf("%+v", v)
	}
	if v := judge(t, "newly-touched > 100%", r); v.Holds {
		t.Errorf("%+v", v)
	}
	// the difference of two estimates
	r.Difference.NewlyTouched = replay.Count{N: 10, Estimated: true, Off: 60}
	if v := judge(t, "newly-touched > 6%", r); !v.Holds || !strings.HasPrefix(v.Measured, "~10 of ~1,000 callers (~1%)") {
		t.Errorf("%+v: it may be 70", v)
	}
}

func TestWhatIsNoConditionIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "expected [LIMITER.]METRIC OP NUMBER[%]",
		"refused":               "expected [LIMITER.]",
		"refused > ":            "expected [LIMITER.]",
		"refused > 1e3":         "expected [LIMITER.]",
		"refused > -1":          "expected [LIMITER.]",
		"refused => 1":          "expected [LIMITER.]",
		"refused > 1 %%":        "expected [LIMITER.]",
		"refused > 1; touched":  "expected [LIMITER.]",
		"blocked > 1":           `there is no metric "blocked": expected refused, touched, newly-refused`,
		"refused > 101%":        "101% is more than all of the requests",
		"x.malformed > 1":       `malformed is only known of all limiters together: leave "x." out`,
		"x.newly-touched > 1 %": "newly-touched is only known of all",
	} {
		t.Run(text, func(t *testing.T) {
			if _, err := ParseCondition(text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		})
	}
	c, err := ParseCondition("a.b.newly-refused >= 7")
	if err != nil || c.Limiter() != "a.b" || !c.NeedsAgainst() || c.NeedsPaced() {
		t.Errorf("a limiter with a dot: %+v, %v", c, err)
	}
}

// A share is compared as the exact fraction.
func TestSharesAreComparedAsFractions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		requests := rapid.Int64Range(1, 1<<50).Draw(rt, "requests")
		refused := rapid.Int64Range(0, requests).Draw(rt, "refused")
		bound := rapid.StringMatching(`[0-9]{1,2}\.[0-9]{1,9}`).Draw(rt, "bound")
		limit, _ := new(big.Rat).SetString(bound)
		more := new(big.Rat).Mul(big.NewRat(refused, requests), big.NewRat(100, 1)).Cmp(limit) > 0
		if got := judge(t, "refused > "+bound+"%", refusing(refused, requests)).Holds; got != more {
			rt.Fatalf("%d of %d > %s%%: %v, want %v", refused, requests, bound, got, more)
		}
	})
}

func FuzzParseCondition(f *testing.F) {
	for _, seed := range []string{"newly-refused > 0.3%", "a.b.refused <= 7", "malformed == 0", "x > 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCondition(text)
		if err != nil {
			return
		}
		again, err := ParseCondition(c.String())
		if err != nil || again.bound.Cmp(c.bound) != 0 || again.metric.name != c.metric.name || again.limiter != c.limiter {
			t.Errorf("%q is read as %+v and again as %+v, %v", text, c, again, err)
		}
		c.Judge(&replay.Report{Against: &replay.Outcome{Delay: &replay.Delay{}}, Difference: &replay.Difference{}})
	})
}
