package verify

import (
	"testing"
	"testing/synctest"

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
