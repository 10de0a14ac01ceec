package denial

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
)

// Slots have no reset, so the id of a refusal in flight has none, and says why.
func TestAnIDOfARefusalInFlightHasNoReset(t *testing.T) {
	w := newWorld(t, "100 per hour by ip")
	p := w.decider.Policy()
	p.Limiters[0].InFlight = weir.InFlight{Limit: 2, Key: p.Limiters[0].Windows[0].Key}
	if err := w.decider.Swap(p); err != nil {
		t.Fatal(err)
	}
	s, caller := sealerOf(t, w.secret), callerIs{"ip": "192.0.2.7"}
	var scratches [3]weir.Scratch
	for i := range scratches {
		d, err := w.decider.Decide(context.Background(), weir.Request{Keys: caller, Limiters: []string{"messages"}, Scratch: &scratches[i]})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != (i < 2) {
			t.Fatalf("request %d: allowed %v", i, d.Allowed)
		}
		if d.Allowed {
			continue
		}
		f := w.open(s, s.ID(&d, caller, &scratches[i]))
		if !f.InFlight || f.Reset != 0 || f.Count != 2 || f.Limit != 2 || f.Window != "2 in flight by ip" || f.At != d.Now {
			t.Errorf("the facts are %+v", f)
		}
	}
}
