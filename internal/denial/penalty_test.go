package denial

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A refusal by a penalty has an id of its own, even if the window ends as late and has the same
// count.
func TestAnIDReportsAPenalty(t *testing.T) {
	w := newWorld(t, "1 per hour by ip")
	p := w.decider.Policy()
	p.Limiters[0].Penalty = weir.Penalty{After: 2, Per: time.Minute, For: time.Hour}
	if err := w.decider.Swap(p); err != nil {
		t.Fatal(err)
	}
	s, caller, ids := sealerOf(t, w.secret), callerIs{"ip": "192.0.2.7"}, map[string]bool{}
	var scratch weir.Scratch
	for i, want := range []bool{false, false, true, true} { // the first one is admitted
		d, err := w.decider.Decide(context.Background(), weir.Request{Keys: caller, Limiters: []string{"messages"}, Scratch: &scratch})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			continue
		}
		id := s.ID(&d, caller, &scratch)
		ids[id] = true
		if f, err := s.Open(id); err != nil || f.Penalty != want || f.Reset-f.At != 3600 {
			t.Errorf("request %d: %+v, %v, want penalty %v", i, f, err, want)
		}
	}
	if len(ids) != 2 {
		t.Errorf("%d ids, want one of the window and one of the penalty", len(ids))
	}
}
