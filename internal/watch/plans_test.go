package watch_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/watch"
)

// A subscriber is a caller with a plan.
type subscriber struct {
	keys
	plan string
}

func (s subscriber) Plan(string) (plan string, known bool) { return s.plan, true }

// What an operator sees of a caller follows its plan: another limit would be granted otherwise.
func TestTheKeysOfACallerHaveItsLatestPlan(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	l := byIP(t, "ask", 30)
	l.Plans = weir.Plans{By: "token", List: []weir.Plan{
		{Name: "gold", Rates: []weir.Rate{{Limit: 90, Per: time.Minute}}}, {Name: "free", Rates: []weir.Rate{{Limit: 10, Per: time.Minute}}},
	}}
	desk := newDesk(t, c.now, l)
	r.Declare(desk.decider.Policy())
	planOf := func() string {
		t.Helper()
		top := limiter(t, r.Snapshot(watch.Query{}), "ask").Spending
		if len(top) != 1 {
			t.Fatalf("%d callers", len(top))
		}
		saved, ok := r.Caller("ask", top[0].Hash)
		if !ok {
			t.Fatal("the keys were not saved")
		}
		plan, _ := saved.Plan("token")
		return plan
	}
	for _, plan := range []string{"free", "gold", "", "not a name", "free"} {
		want := plan
		if plan == "not a name" {
			want = ""
		}
		for range 2 {
			r.Observe(desk.of("ask", subscriber{keys{"ip": "192.0.2.7"}, plan}, 0))
		}
		if got := planOf(); got != want {
			t.Errorf("the plan %q is saved as %q", plan, got)
		}
		c.move(time.Second)
	}
}
