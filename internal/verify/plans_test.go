package verify

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// A correct server whose callers have a plan keeps every clause that can be tested, whatever the
// plan of the verifier is. A proxy writes the plan.
func TestAServerWithPlansKeepsEveryClause(t *testing.T) {
	policy := onePolicy("20 per minute by ip, 200 per hour by ip") + "    plans: {by: header:X-Plan, gold: [30 per minute, 300 per hour], trial: 7 per minute}\n"
	for _, plan := range []string{"", "gold", "trial", "unknown"} {
		var report *Report
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			m, err := httplimit.New(decider(t, policyOf(t, policy)), httplimit.Options{Identity: resolver(t, identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})})
			if err != nil {
				t.Fatal(err)
			}
			handler := m.Wrap(http.HandlerFunc(fine))
			stop := n.serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("X-Forwarded-For")
				r.Header.Set("X-Plan", plan)
				handler.ServeHTTP(w, r)
			}))
			defer stop()
			report = verified(t, n.options(policyOf(t, policy)))
		})
		if report.Broken() {
			t.Errorf("plan %q: a clause is broken:\n%s", plan, table(report))
		}
		for _, clause := range []string{"admitted", "window"} {
			if got := verdictOf(t, report, clause); got.Verdict != Kept {
				t.Errorf("plan %q: %s is %s: %s", plan, clause, got.Verdict, got.Detail)
			}
		}
	}
}

// A limit that neither the windows nor a plan have is found.
func TestALimitOfNoPlanIsFound(t *testing.T) {
	served := onePolicy("25 per minute by ip")
	said := onePolicy("20 per minute by ip") + "    plans: {by: header:X-Plan, gold: 30 per minute}\n"
	var report *Report
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		defer n.serving(limited(t, served, http.HandlerFunc(fine)))()
		report = verified(t, n.options(policyOf(t, said)))
	})
	if !report.Broken() {
		t.Errorf("a limit of 25 was not found:\n%s", table(report))
	}
}
