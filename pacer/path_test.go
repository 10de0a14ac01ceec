package pacer_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/pacer"
	"github.com/weirlimit/weir/policyfile"
)

// Requests whose paths have the same value of a parameter share a budget, however they
// are spelled.
func TestABudgetBelongsToAParameterOfThePath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const own = "limiters:\n  - name: tenants\n    routes: [\"/t/{tenant}/*\"]\n    windows: [20 per 10 seconds by path:tenant+ip]\n"
		file, err := policyfile.Parse("policy.yaml", []byte(own))
		if err != nil {
			t.Fatal(err)
		}
		routes, err := weir.NewRoutes(file.Policy)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, own, 0)
		p := pacer.New(&pacer.Options{Base: w, Routes: routes, Threshold: pacer.Keep(0)})
		for _, path := range []string{"/t/acme/x", "/t/ACME/y", "/t/acme.json"} {
			w.do(p, w.request("GET", path, ""))
		}
		for path, want := range map[string]int64{"/t/Acme/z": 17, "/t/other/x": 0} {
			if b := p.Budget(w.request("GET", path, "")); b.Limiter != "tenants" || b.Remaining != want || b.Known != (want > 0) {
				t.Errorf("%s: %+v, want %d left", path, b, want)
			}
		}
	})
}
