package verify

import (
	"strings"
	"testing"
	"testing/synctest"
)

const penalized = `limiters:
  - name: login
    routes: [POST /login]
    windows: [5 per minute by ip]
    penalty: {after: AFTER refusals per minute, refuse_for: 15 minutes}
  - name: rest
    routes: [/*]
    windows: [50 per minute by ip]
`

// A penalty that the tests would begin leaves its limiter untested, and the others are judged.
func TestALimiterWithAPenaltyIsNotTested(t *testing.T) {
	for _, test := range []struct {
		after    string
		untested bool
	}{
		{"20", true},
		{"100000", false}, // more than the verification sends
	} {
		synctest.Test(t, func(t *testing.T) {
			x := openProduct(t, policyOf(t, strings.Replace(penalized, "AFTER", test.after, 1)))
			defer x.close()
			o := x.network.options(x.policy)
			o.Real = true
			report := verified(t, o)
			if report.Broken() {
				t.Errorf("a clause is broken:\n%s", table(report))
			}
			tested := map[string]int{}
			for _, r := range report.Results {
				if r.Verdict != Untested {
					tested[r.Limiter]++
				} else if r.Limiter == "login" && test.untested && !strings.Contains(r.Detail, "it has a penalty") {
					t.Errorf("%s: %s", r.Clause, r.Detail)
				}
			}
			if (tested["login"] == 0) != test.untested || tested["rest"] == 0 {
				t.Errorf("after %s refusals: %v clauses were tested", test.after, tested)
			}
		})
	}
}
