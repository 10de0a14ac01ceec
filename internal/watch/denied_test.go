package watch_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

// No window counts a denied request, so it has no caller to show; its limiter counts it.
func TestDeniedRequestsHaveAColumnOfTheirOwn(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	l := &weir.Limiter{Name: "ask", Windows: make([]weir.Window, 1)}
	for range 3 {
		r.Observe(answer.Observation{Outcome: answer.Denied, Status: 403, Limiter: "ask", Decision: &weir.Decision{Outcome: weir.Denied, DeniedBy: l}})
	}
	r.Shadow(weir.Shadowed{Limiter: l, Decision: &weir.Decision{Outcome: weir.Denied, DeniedBy: l}})
	r.Candidate(weir.Compared{Live: &weir.Decision{Allowed: true, Outcome: weir.Unlimited}, Candidate: &weir.Decision{Outcome: weir.Denied, DeniedBy: l}})
	got := limiter(t, r.Snapshot(watch.Query{}), "ask")
	if got.Totals != (watch.Counts{Denied: 3}) || len(got.Series.Denied) == 0 || got.Shadow == nil || got.Shadow.WouldRefuse != 1 {
		t.Errorf("%+v", got)
	}
}

// Requests that nobody serves here are apart from those that are served without a limit.
func TestMisdirectedRequestsHaveAColumnOfTheirOwn(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	for _, o := range []answer.Outcome{answer.Unlimited, answer.Misdirected, answer.Misdirected} {
		r.Observe(answer.Observation{Outcome: o})
	}
	got := limiter(t, r.Snapshot(watch.Query{}), "")
	if got.Totals != (watch.Counts{Admitted: 1, Misdirected: 2}) || len(got.Series.Misdirected) == 0 {
		t.Errorf("%+v", got)
	}
}
