package watch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
)

// A clock is set by tests.
type clock struct{ seconds atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.seconds.Store(1_800_000_000)
	return c
}

func (c *clock) now() time.Time       { return time.Unix(c.seconds.Load(), 0) }
func (c *clock) move(d time.Duration) { c.seconds.Add(int64(d / time.Second)) }

func byIP(t testing.TB, name string, limit int64) weir.Limiter {
	return weir.Limiter{Name: name, Windows: []weir.Window{window(t, limit, "minute", "ip")}}
}

func TestEveryRequestIsCountedOnce(t *testing.T) {
	const workers, each = 8, 3000
	c := newClock()
	r := newRecorder(t, c.now)
	var wg, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					r.Snapshot(watch.Query{})
				}
			}
		})
	}
	for w := range workers {
		desk := newDesk(t, c.now, byIP(t, "ask", each/2), byIP(t, "tell", each))
		wg.Go(func() {
			for i := range each {
				// the first half is admitted, a fifth of that near
				r.Observe(desk.event("ask", "192.0.2.1"))
				e := desk.event("tell", fmt.Sprint("192.0.2.", i%3))
				e.Outcome = []answer.Outcome{answer.Unauthenticated, answer.Unavailable, 99}[i%3]
				r.Observe(e)
				r.Observe(answer.Observation{Outcome: answer.Unlimited})
				if i%500 == 0 && w == 0 {
					c.move(time.Second)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	readers.Wait()

	s := r.Snapshot(watch.Query{})
	const half = workers * each / 2
	if got, want := limiter(t, s, "ask").Totals, (watch.Counts{Admitted: half, Refused: half, Near: half / 5}); got != want {
		t.Errorf("ask: %+v, not %+v", got, want)
	}
	const third = workers * each / 3
	if got, want := limiter(t, s, "tell").Totals, (watch.Counts{Unauthenticated: third, Unavailable: third}); got != want {
		t.Errorf("tell: %+v, not %+v", got, want)
	}
	if got, want := limiter(t, s, "").Totals, (watch.Counts{Admitted: workers * each}); got != want {
		t.Errorf("unlimited: %+v, not %+v", got, want)
	}
	for _, l := range s.Limiters {
		if got := sum(l.Series.Admitted); got != l.Totals.Admitted {
			t.Errorf("the seconds of %q have %d admitted requests, the totals %d", l.Name, got, l.Totals.Admitted)
		}
	}
}

func sum(series []uint32) (n uint64) {
	for _, v := range series {
		n += uint64(v)
	}
	return n
}

func TestASecondIsRememberedForFiveMinutes(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 1000))
	r.Declare(desk.decider.Policy())
	r.Observe(desk.event("ask", "192.0.2.1"))
	c.move(10 * time.Second)
	r.Observe(desk.event("ask", "192.0.2.1"))
	r.Observe(desk.event("ask", "192.0.2.1"))

	for _, step := range []struct {
		move        time.Duration
		first, last uint32 // the requests of the oldest second, and of the present one
		all         uint64
	}{
		{0, 0, 2, 3},
		{289 * time.Second, 1, 0, 3},
		{1 * time.Second, 0, 0, 2},
		{9 * time.Second, 2, 0, 2},
		{1 * time.Second, 0, 0, 0},
		{1000 * time.Hour, 0, 0, 0},
	} {
		c.move(step.move)
		l := limiter(t, r.Snapshot(watch.Query{}), "ask")
		series := l.Series.Admitted
		if series == nil {
			series = make([]uint32, 300)
		}
		if series[0] != step.first || series[299] != step.last || sum(series) != step.all {
			t.Errorf("%v later: oldest %d, latest %d, all %d; not %d, %d, %d", step.move, series[0], series[299], sum(series), step.first, step.last, step.all)
		}
		if l.Totals.Admitted != 3 {
			t.Errorf("%v later the total is %d, not 3", step.move, l.Totals.Admitted)
		}
	}
}

func TestTheStoresClockIsTheOneThatIsShown(t *testing.T) {
	here, there := newClock(), newClock()
	there.move(time.Hour)
	r := newRecorder(t, here.now)
	desk := newDesk(t, there.now, byIP(t, "ask", 1000))
	r.Observe(desk.event("ask", "192.0.2.1"))
	r.Observe(answer.Observation{Outcome: answer.Unlimited})
	both := func(want int64) {
		t.Helper()
		s := r.Snapshot(watch.Query{Seconds: 2})
		if s.Now != want {
			t.Errorf("it is %d, not %d", s.Now, want)
		}
		for _, name := range []string{"", "ask"} {
			if got := limiter(t, s, name).Series.Admitted; !slices.Equal(got, []uint32{0, 1}) {
				t.Errorf("the last seconds of %q: %v, not one request in this one", name, got)
			}
		}
	}
	both(there.seconds.Load())

	e := desk.event("ask", "192.0.2.1") // and when it is set back, that is where it goes on
	e.Decision.Now -= 86400
	r.Observe(e)
	r.Observe(answer.Observation{Outcome: answer.Unlimited})
	both(there.seconds.Load() - 86400)
	here.move(time.Second)
	if got := r.Snapshot(watch.Query{}).Now; got != there.seconds.Load()-86400+1 {
		t.Errorf("a second later it is %d", got)
	}
}

func TestNearAndExemptAreAmongTheAdmitted(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 10))
	// 2, 1 and 0 are left after the last three that are admitted: 20 % is not less than that
	for range 12 {
		r.Observe(desk.event("ask", "192.0.2.1"))
	}
	e := desk.event("ask", "192.0.2.1")
	e.Decision.Exempt, e.Decision.Allowed, e.Outcome = true, true, answer.Admitted
	r.Observe(e)
	want := watch.Counts{Admitted: 11, Refused: 2, Near: 2, Exempt: 1}
	if got := limiter(t, r.Snapshot(watch.Query{}), "ask").Totals; got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

func TestALimiterThatWasRemovedGoesWhenItsSecondsHave(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 10), byIP(t, "tell", 10))
	r.Declare(desk.decider.Policy())
	r.Observe(desk.event("ask", "192.0.2.1"))
	r.Observe(desk.event("tell", "192.0.2.1"))
	r.Declare(weir.Policy{Limiters: []weir.Limiter{byIP(t, "tell", 10)}})
	names := func() (names []string) {
		for _, l := range r.Snapshot(watch.Query{}).Limiters {
			names = append(names, fmt.Sprint(l.Name, " ", l.InForce))
		}
		return names
	}
	c.move(299 * time.Second)
	if got := names(); !slices.Equal(got, []string{" true", "ask false", "tell true"}) {
		t.Errorf("after 299 seconds: %q", got)
	}
	c.move(time.Second)
	if got := names(); !slices.Equal(got, []string{" true", "tell true"}) {
		t.Errorf("after 300 seconds: %q", got)
	}
	if kept := r.Snapshot(watch.Query{}).CallersKept; kept <= 0 || kept > 200 {
		t.Errorf("%d bytes are kept of the one caller that is left", kept)
	}
	r.Observe(desk.event("ask", "192.0.2.1")) // it is back
	if got := limiter(t, r.Snapshot(watch.Query{}), "ask").Totals.Admitted; got != 1 {
		t.Errorf("a limiter that is back has %d requests, not 1", got)
	}
}

func TestThereAreNeverMoreThanAThousandLimiters(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	desk := newDesk(t, c.now, byIP(t, "ask", 1<<30))
	declare := func(prefix string) {
		var p weir.Policy
		for i := range 1000 {
			p.Limiters = append(p.Limiters, weir.Limiter{Name: fmt.Sprint(prefix, i)})
		}
		r.Declare(p)
	}
	observe := func(prefix string, n int) {
		for i := range n {
			e := desk.event("ask", "192.0.2.1")
			e.Limiter = fmt.Sprint(prefix, i)
			r.Observe(e)
		}
	}
	declare("a")
	observe("a", 1000)
	observe("b", 7)
	s := r.Snapshot(watch.Query{Seconds: -1, Top: -1})
	if len(s.Limiters) != 1001 || s.NotWatched != 7 {
		t.Errorf("%d limiters with the unlimited requests, %d requests not watched; not 1001 and 7", len(s.Limiters), s.NotWatched)
	}
	declare("b") // those of the policy before make room at once
	observe("b", 1000)
	observe("a", 1)
	s = r.Snapshot(watch.Query{})
	if len(s.Limiters) != 1001 || s.NotWatched != 8 || limiter(t, s, "b999").Totals.Admitted != 1 {
		t.Errorf("%d limiters, %d requests not watched after another policy; not 1001 and 8", len(s.Limiters), s.NotWatched)
	}
}

func TestShadowLimitersAreCountedApart(t *testing.T) {
	c := newClock()
	r := newRecorder(t, c.now)
	tried := byIP(t, "tried", 2)
	desk := newDesk(t, c.now, tried)
	tried.Mode = weir.Shadow
	r.Declare(weir.Policy{Limiters: []weir.Limiter{tried}})
	for range 5 {
		r.Shadow(weir.Shadowed{Limiter: &tried, Decision: desk.event("tried", "192.0.2.1").Decision})
	}
	r.Shadow(weir.Shadowed{Limiter: &tried, Decision: desk.event("tried", "192.0.2.2").Decision, Rejects: true})
	r.Shadow(weir.Shadowed{Limiter: &tried, Skipped: true})
	r.Shadow(weir.Shadowed{})
	l := limiter(t, r.Snapshot(watch.Query{Seconds: 1}), "tried")
	got, err := json.Marshal(l.Shadow)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"on":true,"would_admit":2,"would_refuse":4,"skipped":1,"series":{"would_admit":[2],"would_refuse":[4],"skipped":[1]}}`
	if string(got) != want || l.Totals != (watch.Counts{}) {
		t.Errorf("%s and %+v, not %s and nothing", got, l.Totals, want)
	}
}
