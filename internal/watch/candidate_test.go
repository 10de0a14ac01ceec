package watch_test

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/watch"
)

// compared decides a request under two policies.
func compared(live, candidate *desk, liveLimiter, candidateLimiter, ip string) weir.Compared {
	a, b := live.event(liveLimiter, ip), candidate.event(candidateLimiter, ip)
	return weir.Compared{Live: a.Decision, Candidate: b.Decision, LiveWho: a.Who, CandidateWho: b.Who}
}

func TestWhatWouldChangeIsReportedByLimiter(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	live := newDesk(t, c.now, byIP(t, "ask", 3), byIP(t, "tell", 5))
	candidate := newDesk(t, c.now, byIP(t, "ask", 5), byIP(t, "fresh", 5), byIP(t, "tell-less", 1))
	for i := range 10 {
		ip := fmt.Sprint("192.0.2.", i%2)
		// of 5 requests of a caller 3 and 5 are admitted
		r.Candidate(compared(live, candidate, "ask", "ask", ip))
		r.Candidate(compared(live, candidate, "tell", "tell-less", ip)) // 5 and 1
	}
	unlimited := &weir.Decision{Allowed: true, Outcome: weir.Unlimited}
	r.Candidate(weir.Compared{Live: unlimited, Candidate: unlimited})
	e := candidate.event("tell-less", "192.0.2.1")
	r.Candidate(weir.Compared{Live: unlimited, Candidate: e.Decision, CandidateWho: e.Who})
	e = candidate.event("fresh", "192.0.2.1") // admitted as before, under a limiter that is new
	r.Candidate(weir.Compared{Live: unlimited, Candidate: e.Decision, CandidateWho: e.Who})
	r.Candidate(weir.Compared{})
	reports := func(want string) {
		t.Helper()
		got, err := json.Marshal(r.Snapshot(watch.Query{}).Candidate)
		if err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	since := c.seconds.Load()
	reports(fmt.Sprintf(`{"since":%d,"limiters":[`+
		`{"limiter":"","same":1,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":0,"callers_newly_admitted":0},`+
		`{"limiter":"ask","same":6,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":4,"callers_newly_refused":0,"callers_newly_admitted":2},`+
		`{"limiter":"fresh","same":1,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":0,"callers_newly_admitted":0},`+
		`{"limiter":"tell","same":2,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":0,"callers_newly_admitted":0},`+
		`{"limiter":"tell-less","same":0,"newly_refused":9,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":2,"callers_newly_admitted":0}]}`, since))

	c.move(time.Hour)
	r.ResetCandidate()
	reports(fmt.Sprintf(`{"since":%d,"limiters":[]}`, since+3600))
	r.Candidate(compared(live, candidate, "ask", "ask", "192.0.2.1"))
	r.ResetCandidate() // drops earlier comparisons, flushed or not
	for range 2 {
		r.Candidate(compared(live, candidate, "ask", "ask", "192.0.2.1"))
		r.Candidate(compared(live, candidate, "tell", "tell-less", "192.0.2.1"))
	}
	reports(fmt.Sprintf(`{"since":%d,"limiters":[`+
		`{"limiter":"ask","same":2,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":0,"callers_newly_admitted":0},`+
		`{"limiter":"tell","same":1,"newly_refused":0,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":0,"callers_newly_admitted":0},`+
		`{"limiter":"tell-less","same":0,"newly_refused":1,"newly_unauthenticated":0,"newly_admitted":0,"callers_newly_refused":1,"callers_newly_admitted":0}]}`, since+3600))
}

// The candidate's limiter requires a credential that the caller lacks.
func TestNewlyRefusedForACredentialIsCountedApart(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	live, candidate := newDesk(t, c.now, byIP(t, "ask", 100)), newDesk(t, c.now, byIP(t, "ask", 100))
	for range 2 {
		v := compared(live, candidate, "ask", "ask", "192.0.2.1")
		v.CandidateRejects = true
		r.Candidate(v)
		v.LiveRejects = true
		r.Candidate(v)
		v.CandidateRejects = false
		r.Candidate(v)
	}
	got := r.Snapshot(watch.Query{}).Candidate.Limiters
	want := watch.Difference{Limiter: "ask", Same: 2, NewlyRefused: 2, NewlyUnauthenticated: 2, NewlyAdmitted: 2, CallersNewlyRefused: 1, CallersNewlyAdmitted: 1}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestDistinctCallersAreCountedByAllCores(t *testing.T) {
	const workers = 4
	for _, callers := range []int{1, 100, 3000, 100_000} {
		c := newClock()
		r := newRecorder(t, c.now)
		var wg sync.WaitGroup
		for range workers {
			live, candidate := newDesk(t, c.now, byIP(t, "ask", 9)), newDesk(t, c.now, byIP(t, "ask", 1))
			compared(live, candidate, "ask", "ask", "192.0.2.1")
			v := compared(live, candidate, "ask", "ask", "192.0.2.1")
			wg.Go(func() {
				for i := range callers {
					v.CandidateWho = fmt.Appendf(v.CandidateWho[:0], "caller %d", i)
					r.Candidate(v)
				}
			})
		}
		wg.Wait()
		got := r.Snapshot(watch.Query{}).Candidate.Limiters[0]
		if got.NewlyRefused != uint64(workers*callers) {
			t.Errorf("%d requests would be refused newly, not %d", got.NewlyRefused, workers*callers)
		}
		off := math.Abs(float64(got.CallersNewlyRefused) - float64(callers))
		if callers <= 3000 && off > 3 || off > 0.04*float64(callers) {
			t.Errorf("%d callers are counted as %d", callers, got.CallersNewlyRefused)
		}
	}
}
