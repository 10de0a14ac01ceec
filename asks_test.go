package weir_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// asked decides a request with asks, and returns the count of each ask's window.
func asked(t *testing.T, d *weir.Decider, asks ...weir.Ask) (allowed bool, counts []int64) {
	t.Helper()
	s := new(weir.Scratch)
	got, err := d.Decide(t.Context(), weir.Request{Asks: asks, Scratch: s})
	if err != nil {
		t.Fatal(err)
	}
	counts = make([]int64, len(asks))
	for _, w := range got.Standings() {
		counts[s.Ask(&w)] = w.Count
	}
	return got.Allowed, counts
}

func TestAsksAreAllChargedOrNone(t *testing.T) {
	d := newDecider(t, policyOf(limiter("any", "1000 per minute by ip")))
	one, other := caller{"ip": "1"}, caller{"ip": "2"}
	ask := func(k weir.Keys, cost, limit int64) weir.Ask {
		return weir.Ask{Limiter: "any", Keys: k, Cost: cost, Limit: limit}
	}
	for i, step := range []struct {
		a, b    weir.Ask
		allowed bool
		want    [2]int64
	}{
		{ask(one, 2, 5), ask(other, 1, 2), true, [2]int64{2, 1}},
		{ask(one, 2, 5), ask(other, 1, 2), true, [2]int64{4, 2}},
		{ask(one, 1, 5), ask(other, 1, 2), false, [2]int64{4, 2}}, // the other is full
		{ask(one, 2, 5), ask(other, weir.Peek, 2), false, [2]int64{4, 2}},
		{ask(one, 1, 5), ask(other, weir.Peek, 2), true, [2]int64{5, 2}},
		{ask(one, 1, 6), ask(other, 1, 3), true, [2]int64{6, 3}}, // the limit is that of the ask
	} {
		allowed, counts := asked(t, d, step.a, step.b)
		if allowed != step.allowed || [2]int64(counts) != step.want {
			t.Errorf("step %d: allowed %v with counts %v, want %v with %v", i, allowed, counts, step.allowed, step.want)
		}
	}
}

func TestAnExemptAskCountsAndNeverRefuses(t *testing.T) {
	d := newDecider(t, policyOf(limiter("any", "1000 per minute by ip")))
	exempt := weir.Ask{Limiter: "any", Keys: caller{"ip": "1"}, Cost: 2, Limit: 1, Exempt: true}
	other := weir.Ask{Limiter: "any", Keys: caller{"ip": "2"}, Cost: 1, Limit: 2}
	asked(t, d, exempt, other)
	if allowed, counts := asked(t, d, exempt, other); !allowed || counts[0] != 4 {
		t.Errorf("allowed %v with counts %v, want the exempt one counted beyond its limit, to 4", allowed, counts)
	}
	if allowed, counts := asked(t, d, exempt, other); allowed || counts[0] != 4 {
		t.Errorf("allowed %v with counts %v, want a refusal by the other one, which leaves 4", allowed, counts)
	}
}

func TestAsksThatNoStoreCanChargeAreErrors(t *testing.T) {
	shadow := limiter("shadow", "5 per minute by ip")
	shadow.Mode = weir.Shadow
	d := newDecider(t, policyOf(limiter("any", "5 per minute by ip"), shadow))
	k := caller{"ip": "1"}
	for want, asks := range map[string][]weir.Ask{
		"asked twice for one caller": {{Limiter: "any", Keys: k}, {Limiter: "any", Keys: k}},
		"no limiter \"none\"":        {{Limiter: "none", Keys: k}},
		"mode shadow":                {{Limiter: "shadow", Keys: k}},
		"cost -2":                    {{Limiter: "any", Keys: k, Cost: -2}},
		"limit -1":                   {{Limiter: "any", Keys: k, Limit: -1}},
		"limit 2147483648":           {{Limiter: "any", Keys: k, Limit: weir.MaxLimit + 1}},
		"cost 6 exceeds":             {{Limiter: "any", Keys: k, Cost: 6}},
	} {
		if _, err := d.Decide(t.Context(), weir.Request{Asks: asks}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", asks, err, want)
		}
	}
	if allowed, counts := asked(t, d, weir.Ask{Limiter: "any", Keys: k}); !allowed || counts[0] != 1 {
		t.Errorf("allowed %v with counts %v, want that no error has charged anything", allowed, counts)
	}
}

func TestADecisionWithTwoAsksDoesNotAllocate(t *testing.T) {
	d, err := weir.New(policyOf(limiter("any", "2147483647 per minute by ip")), newStore(t, storetest.StartManualClock()), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := weir.Request{Scratch: new(weir.Scratch), Asks: []weir.Ask{
		{Limiter: "any", Keys: caller{"ip": "1"}, Cost: 1, Limit: 1 << 30}, {Limiter: "any", Keys: caller{"ip": "2"}, Cost: 1},
	}}
	var out weir.Decision
	if n := testing.AllocsPerRun(100, func() { _ = d.DecideInto(t.Context(), &r, &out) }); n != 0 {
		t.Errorf("%v allocations a decision, want none", n)
	}
}
