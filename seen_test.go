package weir_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A told has what a Decider told of reservations and slots.
type told struct {
	settled []string
	held    map[string]int64
}

func newTold(t *testing.T, l ...weir.Limiter) (*weir.Decider, *told) {
	t.Helper()
	out := &told{held: map[string]int64{}}
	d, err := weir.New(policyOf(l...), newStore(t, storetest.StartManualClock()), weir.Options{
		OnSettled: func(s weir.Settled) {
			out.settled = append(out.settled, fmt.Sprintf("%s %d %d lost %d unreported %v", s.Limiter.Name, s.Reserved, s.Used, s.Lost, s.Unreported))
		},
		OnHeld: func(l *weir.Limiter, slots int64) { out.held[l.Name] += slots },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, out
}

func (w *told) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.settled, want) {
		t.Errorf("settled %q, want %q", w.settled, want)
	}
	w.settled = nil
}

func decideWith(t *testing.T, d *weir.Decider, s *weir.Scratch, limiter string) weir.Decision {
	t.Helper()
	out, err := d.Decide(t.Context(), weir.Request{Limiters: []string{limiter}, Keys: caller{"ip": "192.0.2.1"}, Scratch: s})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantCost(t *testing.T, s *weir.Scratch, of *weir.Limiter, want string) {
	t.Helper()
	reserved, used, ok := s.Cost(of)
	if got := fmt.Sprint(reserved, used, ok); got != want {
		t.Errorf("the cost is %s, want %s", got, want)
	}
}

// metered is a limiter whose cost the answer tells, with a window of requests in front.
func metered(name string) weir.Limiter {
	l := limiter(name, "9 per minute by ip", "100 per minute by ip")
	l.Windows[0].Requests = true
	l.Cost, l.Actual = 40, weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
	return l
}

func TestTheCostOfARequestIsKnownAfterItsEnd(t *testing.T) {
	d, w := newTold(t, metered("m"))
	var s weir.Scratch
	out := decideWith(t, d, &s, "m")
	wantCost(t, &s, out.Limiter(), "40 -1 true")
	d.Spent(t.Context(), &s, 7, nil)
	d.End(t.Context(), &s)
	wantCost(t, &s, out.Limiter(), "40 7 true")
	w.want(t, "m 40 7 lost 0 unreported false")

	out = decideWith(t, d, &s, "m")
	d.Spent(t.Context(), &s, 60, nil)
	wantCost(t, &s, out.Limiter(), "40 60 true")
	w.want(t, "m 40 60 lost 0 unreported false")

	if decideWith(t, d, &s, "m").Allowed {
		t.Error("admitted beyond the limit")
	}
	wantCost(t, &s, out.Limiter(), "40 0 false")
}

func TestACostThatIsNotToldStaysReserved(t *testing.T) {
	d, w := newTold(t, metered("m"))
	var s weir.Scratch
	out := decideWith(t, d, &s, "m")
	d.End(t.Context(), &s)
	wantCost(t, &s, out.Limiter(), "40 -1 true")
	w.want(t, "m 40 40 lost 0 unreported true")
}

// The window of requests is charged one unit, but the limiter's reservation is 40.
func TestAStatusThatDoesNotCountGivesTheWholeReservationBack(t *testing.T) {
	l := metered("m")
	l.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 500, High: 599}}}
	d, w := newTold(t, l)
	var s weir.Scratch
	out := decideWith(t, d, &s, "m")
	d.Answered(t.Context(), &s, 502, &out)
	d.End(t.Context(), &s)
	wantCost(t, &s, out.Limiter(), "40 0 true")
	w.want(t, "m 40 0 lost 0 unreported false")
}

func TestARequestThatSettlesNothingHasNoCostToTell(t *testing.T) {
	d, w := newTold(t, limiter("l", "9 per minute by ip"))
	var s weir.Scratch
	out := decideWith(t, d, &s, "l")
	wantCost(t, &s, out.Limiter(), "1 1 false")
	d.Spent(t.Context(), &s, 3, nil) // a handler that knows better
	wantCost(t, &s, out.Limiter(), "1 3 true")
	w.want(t, "l 1 3 lost 0 unreported false")
}

func TestSlotsAreReportedWhileTheyAreHeld(t *testing.T) {
	l := weir.Limiter{Name: "l", InFlight: weir.InFlight{Limit: 2, Key: windows("1 per minute by ip")[0].Key}}
	shadow := l
	shadow.Name, shadow.Mode = "shadow", weir.Shadow
	d, w := newTold(t, l, shadow)
	var one, two, three weir.Scratch
	for i, s := range []*weir.Scratch{&one, &two, &three} {
		decideWith(t, d, s, "l")
		decideWith(t, d, new(weir.Scratch), "shadow")
		if got, want := w.held["l"], int64(min(i+1, 2)); got != want {
			t.Errorf("%d requests hold %d slots, want %d", i+1, got, want)
		}
	}
	for range 2 { // the second time, it has ended
		d.End(t.Context(), &one)
		d.End(t.Context(), &three) // refused, so it holds none
	}
	if w.held["l"] != 1 {
		t.Errorf("%d slots are held, want 1", w.held["l"])
	}
	decideWith(t, d, &two, "l") // ends the request before it
	if w.held["l"] != 1 {
		t.Errorf("%d slots are held, want 1", w.held["l"])
	}
	d.End(t.Context(), &two)
	if w.held["l"] != 0 || w.held["shadow"] != 0 {
		t.Errorf("%v are held in the end", w.held)
	}
}

// A count of requests under way says nothing about a budget.
func TestSlotsReachNoPercentage(t *testing.T) {
	l := notifying("l", []int64{50, 100}, "4 per minute by ip")
	l.InFlight = weir.InFlight{Limit: 1, Key: l.Windows[0].Key}
	b, n := newNoted(t, policyOf(l))
	var s weir.Scratch
	decideWith(t, b.d, &s, "l")
	b.d.End(t.Context(), &s)
	n.want(t)
	decideWith(t, b.d, &s, "l")
	n.want(t, "l 50%: 2 of 4")
}

// Each limiter of a request has its own cost: what it reserved, and what its answer tells.
func TestEachLimiterHasItsOwnCost(t *testing.T) {
	first, second := metered("first"), metered("second")
	second.Cost, second.Actual.Name = 7, "X-Other-Cost"
	failures := limiter("failures", "5 per minute by ip")
	failures.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	calls := limiter("calls", "9 requests per minute by ip")
	d, _ := newTold(t, first, second, failures, calls)
	for _, names := range [][]string{{"first", "second", "failures", "calls"}, {"calls", "failures", "second", "first"}} {
		var s weir.Scratch
		out, err := d.Decide(t.Context(), weir.Request{Limiters: names, Keys: caller{"ip": "192.0.2.1"}, Scratch: &s})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]*weir.Limiter{}
		for _, w := range out.Standings() {
			of[w.Limiter.Name] = w.Limiter
		}
		want := func(costs ...string) {
			t.Helper()
			for i, name := range []string{"first", "second", "failures", "calls"} {
				wantCost(t, &s, of[name], costs[i])
			}
		}
		want("40 -1 true", "7 -1 true", "1 1 true", "1 1 false")
		d.Answered(t.Context(), &s, 200, &out)
		want("40 -1 true", "7 -1 true", "1 0 true", "1 1 false")
		d.SpentFrom(t.Context(), &s, second.Actual, 3, &out)
		want("40 -1 true", "7 3 true", "1 0 true", "1 1 false")
		d.SpentFrom(t.Context(), &s, first.Actual, 0, &out)
		d.End(t.Context(), &s)
		want("40 0 true", "7 3 true", "1 0 true", "1 1 false")
		wantCost(t, &s, nil, "0 0 false")
		other := limiter("other")
		wantCost(t, &s, &other, "0 0 false")
	}
}

// A reservation of one unit beside a window of requests is that of the window that counts units.
func TestTheCostIsThatOfTheWindowOfUnits(t *testing.T) {
	l := metered("m")
	l.Cost = 1
	for range 2 {
		d, _ := newTold(t, l)
		var s weir.Scratch
		out := decideWith(t, d, &s, "m")
		d.Spent(t.Context(), &s, 9, nil)
		wantCost(t, &s, out.Limiter(), "1 9 true")
		l.Windows[0], l.Windows[1] = l.Windows[1], l.Windows[0]
	}
}
