package watch_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/watch"
)

func TestACallerUnderAPenaltyIsShownSo(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	l := byIP(t, "ask", 2)
	l.Penalty = weir.Penalty{After: 3, Per: time.Minute, For: time.Hour}
	desk := newDesk(t, c.now, l)
	r.Declare(desk.decider.Policy())
	for n := range 6 {
		r.Observe(desk.event("ask", "192.0.2.7"))
		last := limiter(t, r.Snapshot(watch.Query{Top: 1}), "ask")
		if n < 2 {
			continue
		}
		w, left := last.Refused[0].Last, last.Refused[0].Last.Reset-c.seconds.Load()
		if penalty := n >= 4; w.Penalty != penalty || penalty && left != 3600 || !penalty && left != 60 {
			t.Errorf("request %d: %+v, which ends in %d s", n+1, w, left)
		}
	}
}
