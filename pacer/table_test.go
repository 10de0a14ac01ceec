package pacer_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/pacer"
	"github.com/weirlimit/weir/policyfile"
)

// limiterOf returns the limiter that a Transport assigns to a request.
func limiterOf(t *testing.T, o pacer.Options, method, path string) string {
	t.Helper()
	o.Base = &script{replies: []reply{{status: 200, header: fields("60", "59", "now+60")}}}
	r, err := http.NewRequest(method, "http://api.example.com"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pacer.New(&o).Budget(r).Limiter
}

func TestTheBuiltInTableMatchesTheContract(t *testing.T) {
	routes, err := weir.NewRoutes(policyfile.Contract())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range policyfile.Contract().Limiters {
		for _, r := range l.Routes {
			method := r.Method
			if method == "" {
				method = "GET"
			}
			for _, path := range []string{r.Path, r.Path + "x", r.Path + "/42", strings.ToUpper(r.Path), "/" + r.Path, strings.TrimSuffix(r.Path, "/")} {
				want := limiterOf(t, pacer.Options{Routes: routes}, method, path)
				if got := limiterOf(t, pacer.Options{}, method, path); got != want {
					t.Errorf("%s %s is under %q, the contract has %q", method, path, got, want)
				}
			}
		}
	}
	if got := limiterOf(t, pacer.Options{}, "GET", "/elsewhere"); got != "" {
		t.Errorf("a path outside the surfaces is under %q", got)
	}
	windows, want := pacer.ContractWindows(), []string(nil)
	for _, l := range policyfile.Contract().Limiters {
		for _, w := range l.Windows {
			want = append(want, l.Name+" "+w.String())
		}
	}
	slices.Sort(windows)
	slices.Sort(want)
	if !slices.Equal(windows, want) {
		t.Errorf("the windows are\n%v, the contract has\n%v", windows, want)
	}
}

func TestRoutesFromAnotherPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const own = "limiters:\n  - name: chat\n    routes: [POST /v1/chat*]\n    windows: [20 per 10 seconds by token or ip]\n    cost: 4\n"
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
		for range 15 { // five fit a window, to the last unit
			w.do(p, w.request("POST", "/v1/chat", ""))
		}
		if w.refused != 0 {
			t.Errorf("%d refusals", w.refused)
		}
		for i := 0; i < 15; i += 5 {
			if first, last := w.at[i], w.at[i+4]; last.Sub(first).Seconds() > 1 {
				t.Errorf("requests %d to %d are %v apart: a window holds them all", i+1, i+5, last.Sub(first))
			}
		}
	})
}

func TestUncoveredRequestsArePacedOnceTheyAreLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, "limiters:\n  - name: api\n    routes: [/elsewhere*]\n    windows: [60 per 10 seconds by token or ip]\n", 0)
		p := pacer.New(&pacer.Options{Base: w})
		for range 3 * usable(60) {
			w.do(p, w.request("GET", "/elsewhere/x", ""))
		}
		if w.refused != 0 {
			t.Errorf("%d refusals", w.refused)
		}
		if b := p.Budget(w.request("GET", "/elsewhere/y", "")); !b.Known || b.Limit != 60 || b.Limiter != "" {
			t.Errorf("%+v", b)
		}
	})
}

func TestAnInvalidPolicyIsAnError(t *testing.T) {
	if _, err := weir.NewRoutes(weir.Policy{Limiters: []weir.Limiter{{Name: "Bad Name"}}}); err == nil {
		t.Error("routes were made of a policy with problems")
	}
}
