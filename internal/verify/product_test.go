package verify

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestTheProductKeepsEveryClause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openProduct(t, policyfile.Contract())
		defer x.close()
		o := x.network.options(x.policy)
		o.Agent, o.Tokens = "demo", x.others
		report := verified(t, o)
		if int64(report.Sent) != x.served.Load() {
			t.Errorf("%d requests arrived, the report has %d", x.served.Load(), report.Sent)
		}
		if report.Broken() {
			t.Errorf("a clause is broken:\n%s", table(report))
		}
	})
}

// A deployment that answers as its policy declares keeps every clause: another status, another
// form, and texts of its own.
func TestAnswersThatThePolicyDeclaresKeepEveryClause(t *testing.T) {
	for _, answers := range []string{
		"{refused: {status: 503, message: wait}, unauthenticated: {status: 403}}",
		"{format: problem, refused: {message: wait}}",
		"{format: problem, refused: {status: 403}}",
	} {
		synctest.Test(t, func(t *testing.T) {
			x := openProduct(t, policyOf(t, `limiters:
  - {name: leads, routes: [POST /api/v1/widget/leads], windows: [20 per minute by session or ip], requires: session}
  - {name: wp, routes: [/v1/wp/*], windows: [30 per minute by token or ip], requires: token}
  - {name: typing, routes: [POST /api/v1/widget/typing], windows: [40 per minute by ip]}
  - {name: rest, routes: [/api/v1/widget/*], windows: [1000 per minute by ip]}
messages: {wait: {en: "Wait {retry_after} s.", de: "Warten Sie."}}
answers: `+answers+"\n"))
			defer x.close()
			o := x.network.options(x.policy)
			o.Agent, o.Tokens = "demo", x.others
			report := verified(t, o)
			kept := 0
			for _, r := range report.Results {
				if r.Verdict == Kept && strings.HasPrefix(r.Clause, "refused-") {
					kept++
				}
			}
			if report.Broken() || kept < 12 {
				t.Errorf("under %s %d clauses about refusals are kept:\n%s", answers, kept, table(report))
			}
			x.policy.Responses = weir.Responses{}
			o.Policy = x.policy
			if report := verified(t, o); !report.Broken() {
				t.Errorf("under %s the contract's answers are reported as kept", answers)
			}
		})
	}
}
