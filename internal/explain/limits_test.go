package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

func TestTheOverrideThatHoldsIsNamed(t *testing.T) {
	r := policyfile.Reader{Networks: func(name string) (weir.Networks, error) {
		return policyfile.ParseNetworks(name, name, []byte(map[string]string{
			"wide.txt": "10.0.0.0/8\n10.1.0.0/16\n", "narrow.txt": "10.1.2.0/24\n",
		}[name]))
	}}
	f, err := r.Parse("l.yaml", []byte(`limiters:
  - name: n
    routes: [/n]
    windows: [3 per minute by ip, 100 per hour by ip]
    deny: [10.9.0.0/16]
    overrides: ["11 per minute for @wide.txt", "22 per minute for @narrow.txt", 30 per minute for 10.0.0.0/8, 44 per minute for token acme]
    plans: {by: token, gold: [9 per minute, 900 per hour]}
`))
	if err != nil {
		t.Fatal(err)
	}
	const over, under = " holds", " applies too"
	for _, test := range []struct {
		address, token string
		limits         [2]int64
		by             [2]string
		why            []string
	}{
		{"10.1.2.3", "", [2]int64{22, 900}, [2]string{"override 22 per minute for @narrow.txt (10.1.2.0/24)", "plan gold"},
			[]string{"11 per minute for @wide.txt (10.1.0.0/16)" + under, "22 per minute for @narrow.txt (10.1.2.0/24)" + over, "30 per minute for 10.0.0.0/8" + under}},
		{"10.2.0.1", "", [2]int64{30, 900}, [2]string{"override 30 per minute for 10.0.0.0/8", "plan gold"},
			[]string{"11 per minute for @wide.txt (10.0.0.0/8)" + under, "30 per minute for 10.0.0.0/8" + over}},
		{"192.0.2.1", "acme", [2]int64{44, 900}, [2]string{"override 44 per minute for token acme", "plan gold"}, []string{"44 per minute for token acme" + over}},
		{"192.0.2.1", "", [2]int64{9, 900}, [2]string{"plan gold", "plan gold"}, nil},
		{"10.9.0.1", "", [2]int64{0, 0}, [2]string{}, nil}, // denied
	} {
		var who Caller
		if err := who.SetIP(test.address); err != nil {
			t.Fatal(err)
		}
		who.Set("token", test.token)
		who.SetPlan("gold")
		e, err := Request(f.Policy, "GET", "/n", who)
		if err != nil {
			t.Fatal(err)
		}
		var limits [2]int64
		var by [2]string
		for i, w := range e.Windows {
			limits[i], by[i] = w.CallerLimit, w.LimitBy
		}
		var why []string
		for _, reason := range e.Why {
			if text, ok := strings.CutPrefix(reason, "override "); ok {
				for _, end := range []string{under, over} {
					if head, _, found := strings.Cut(text, end); found {
						why = append(why, head+end)
						break
					}
				}
			}
		}
		if limits != test.limits || by != test.by || !slices.Equal(why, test.why) {
			t.Errorf("%s: limits %v by %q, why %q", test.address, limits, by, why)
		}
	}
}

// A route that beats another one does so by its method only if it has one and the other has none.
func TestOnlyARouteWithAMethodBeatsByIt(t *testing.T) {
	route := func(s string) weir.Route {
		r, err := weir.ParseRoute(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, test := range []struct {
		won, lost string
		method    bool
	}{
		{"GET /a", "/a", true},
		{"/*", "/login/{user}", false},
		{"GET /*", "POST /login/{user}", false},
	} {
		if got := advantage(route(test.won), route(test.lost)); strings.Contains(got, "method") != test.method {
			t.Errorf("%s beats %s: %s", test.won, test.lost, got)
		}
	}
}
