package watch_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/internal/watch"
	"github.com/weirlimit/weir/memstore"
)

// settling is a limiter whose answers report their cost, with at most two requests in flight.
func settling(t *testing.T) weir.Limiter {
	l := byIP(t, "llm", 1000)
	l.Cost, l.Actual = 100, weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
	l.InFlight = weir.InFlight{Limit: 2, Key: l.Windows[0].Key}
	return l
}

// newSettling returns a Recorder of a policy, and its Decider.
func newSettling(t *testing.T, c *clock, limiters ...weir.Limiter) (*watch.Recorder, *weir.Decider) {
	t.Helper()
	r := newRecorder(t, c.now)
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	d, err := weir.New(weir.Policy{Limiters: limiters}, store, weir.Options{OnSettled: r.Settled, OnHeld: r.Held})
	if err != nil {
		t.Fatal(err)
	}
	r.Declare(d.Policy())
	return r, d
}

// begin decides a request, and reports it as a door does.
func begin(t *testing.T, r *watch.Recorder, d *weir.Decider, limiter string) *weir.Scratch {
	t.Helper()
	s, caller := new(weir.Scratch), keys{"ip": "192.0.2.7"}
	out, err := d.Decide(t.Context(), weir.Request{Limiters: []string{limiter}, Keys: caller, Scratch: s})
	if err != nil {
		t.Fatal(err)
	}
	b := out.Binding()
	o := answer.Observation{Limiter: limiter, Window: b.Window, Outcome: answer.Admitted, Decision: &out, Who: s.Who(&b), Caller: caller}
	if !out.Allowed {
		o.Outcome = answer.Refused
	}
	r.Observe(o)
	return s
}

func settledOf(t *testing.T, r *watch.Recorder, name string) string {
	t.Helper()
	s := limiter(t, r.Snapshot(watch.Query{}), name).Settled
	if s == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d reserved %d back %d over %d stranded %d unreported %d slots", s.Reserved, s.GivenBack, s.Overrun, s.Stranded, s.Unreported, s.Slots)
}

func TestReservationsAreSummedUpByLimiter(t *testing.T) {
	r, d := newSettling(t, newClock(), settling(t), byIP(t, "plain", 9))
	want := func(name, want string) {
		t.Helper()
		if got := settledOf(t, r, name); got != want {
			t.Errorf("limiter %s: %s, want %s", name, got, want)
		}
	}
	want("llm", "0 reserved 0 back 0 over 0 stranded 0 unreported 0 slots")
	for _, spent := range []int64{30, 104, -1} {
		s := begin(t, r, d, "llm")
		const want = " 1 slots"
		if got := settledOf(t, r, "llm"); got[len(got)-len(want):] != want {
			t.Errorf("while one is in flight: %s", got)
		}
		if spent >= 0 {
			d.Spent(t.Context(), s, spent, nil)
		}
		d.End(t.Context(), s)
	}
	r.Settled(weir.Settled{Limiter: &weir.Limiter{Name: "llm"}, Reserved: 50, Used: 40, Lost: 10})
	r.Settled(weir.Settled{Limiter: &weir.Limiter{Name: "llm"}, Reserved: 50, Used: 40, Shadow: true})
	want("llm", "350 reserved 70 back 4 over 10 stranded 1 unreported 0 slots")
	begin(t, r, d, "plain")
	want("plain", "nothing")
}

func TestALimiterShowsAllItsWindowsAndItsLimitInFlight(t *testing.T) {
	l := settling(t)
	l.Windows = append(l.Windows, window(t, 5, "day", "ip"))
	l.Windows[1].Requests = true
	alone := weir.Limiter{Name: "alone", InFlight: l.InFlight}
	r, d := newSettling(t, newClock(), l, alone)
	begin(t, r, d, "alone")
	s := r.Snapshot(watch.Query{})
	if got, want := limiter(t, s, "llm").Windows, []string{"1000 per minute by ip", "5 requests per day by ip", "2 in flight by ip"}; !slices.Equal(got, want) {
		t.Errorf("the windows are %q, want %q", got, want)
	}
	got := limiter(t, s, "alone")
	if want := []string{"2 in flight by ip"}; !slices.Equal(got.Windows, want) || got.Totals.Admitted != 1 || got.Settled.Slots != 1 {
		t.Errorf("a limiter without windows is %+v", got)
	}
	if last := got.Spending[0].Last; !last.InFlight || last.Count != 1 || last.Limit != 2 {
		t.Errorf("its caller is at %+v", last)
	}
}

func TestARefusalInFlightIsMarked(t *testing.T) {
	r, d := newSettling(t, newClock(), settling(t))
	for range 3 {
		begin(t, r, d, "llm")
	}
	s := r.Snapshot(watch.Query{})
	if n := len(s.Refusals.List); n != 1 {
		t.Fatalf("%d refusals, want 1", n)
	}
	if got := s.Refusals.List[0].Last; !got.InFlight || got.Window != "2 in flight by ip" || got.Count != 2 || got.Remaining != 0 {
		t.Errorf("it is shown as %+v", got)
	}
}

func TestALostLimiterStaysWhileItsRequestsAreInFlight(t *testing.T) {
	c := newClock()
	r, d := newSettling(t, c, settling(t), byIP(t, "other", 9))
	held := begin(t, r, d, "llm")
	r.Declare(weir.Policy{Limiters: []weir.Limiter{byIP(t, "other", 9)}})
	c.move(time.Hour)
	begin(t, r, d, "other") // moves the clock
	if got := limiter(t, r.Snapshot(watch.Query{}), "llm"); got.InForce || got.Settled.Slots != 1 || got.Windows != nil {
		t.Errorf("the limiter is %+v", got)
	}
	d.End(t.Context(), held)
	r.Snapshot(watch.Query{})
	for _, l := range r.Snapshot(watch.Query{}).Limiters {
		if l.Name == "llm" {
			t.Errorf("it is still there: %+v", l)
		}
	}
}

func TestSlotsAddUpOverAllCores(t *testing.T) {
	r, _ := newSettling(t, newClock(), settling(t))
	l := &weir.Limiter{Name: "llm"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.Held(l, 1)
				if i%2 == 0 {
					r.Held(l, -1)
				}
			}
		})
	}
	wg.Wait()
	if got, want := settledOf(t, r, "llm"), "0 reserved 0 back 0 over 0 stranded 0 unreported 4000 slots"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
