package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
)

// A call is one line: when it begins and how long it takes, in seconds, its status and its cost.
type call struct {
	at, takes float64 // takes is negative if the log has no durations
	status    int
	cost      string
}

// reserving is what a log has as the reservations of calls.
func reserving(units ...int64) func(int) int64 { return func(i int) int64 { return units[i] } }

// ended returns the results of calls of one address under one limiter.
func ended(t *testing.T, o Options, l weir.Limiter, calls ...call) Limiter {
	t.Helper()
	return endedOf(t, o, l, func(int) int64 { return 0 }, calls...)
}

// endedOf is ended with what the log has as reserved for each call.
func endedOf(t *testing.T, o Options, l weir.Limiter, reserved func(call int) int64, calls ...call) Limiter {
	t.Helper()
	o.Policy = policyOf(l)
	cost := ""
	o.Cost = func(*accesslog.Line) []byte { return []byte(cost) }
	r := start(t, o)
	for i, c := range calls {
		line := lineAt(c.at, "192.0.2.7")
		line.Reserved = reserved(i)
		line.Status, line.Duration, cost = c.status, int64(c.takes*float64(time.Second)), c.cost
		if c.takes < 0 {
			line.Duration = -1
		}
		if err := r.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	return report(t, r).Policy.Limiters[0]
}

func wantSettled(t *testing.T, l Limiter, refused int64, settled string) {
	t.Helper()
	if l.Settled == nil {
		t.Fatal("the report has no settlement")
	}
	if got := fmt.Sprintf("%+v", *l.Settled); l.Refused != refused || got != "{"+settled+"}" {
		t.Errorf("%d refused, %s\nwant %d, {%s}", l.Refused, got, refused, settled)
	}
}

// Three failed logins a minute: those that succeed are given back.
func TestALogIsCountedByItsStatuses(t *testing.T) {
	l := limiterOf(t, "login", "3 per minute by ip")
	l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	got := ended(t, Options{}, l,
		call{0, 0, 401, ""}, call{1, 0, 200, ""}, call{2, 0, 401, ""}, call{3, 0, 200, ""}, call{4, 0, 401, ""},
		call{5, 0, 401, ""}, call{6, 0, 200, ""}, // refused
		call{60, 0, 200, ""})
	wantSettled(t, got, 2, "Reserved:6 WouldReserve:2 GivenBack:3 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
	if w := got.Windows[0]; w.Peak != 3 || w.Recommend != nil {
		t.Errorf("the window is %+v", w)
	}
	wantSettled(t, ended(t, Options{}, l, call{0, -1, 0, ""}), 0, "Reserved:1 WouldReserve:0 GivenBack:0 Overrun:0 Unreported:0 NoStatus:1 NoDuration:0")
}

// While requests run, what is reserved for them is charged.
func TestAReservationIsHeldUntilTheRequestEnds(t *testing.T) {
	l := limiterOf(t, "llm", "100 per hour by ip", "50 requests per hour by ip")
	l.Cost, l.Actual = 40, weir.Reading{Form: weir.ReadJSON, Name: "usage.total"}
	got := ended(t, Options{}, l,
		call{0, 10, 200, "5"}, call{1, 2, 200, "5"}, call{2, 1, 200, "5"}, // the third does not fit
		call{3, 1, 200, "5"},                            // the second has ended at that time
		call{20, 1, 200, "60"},                          // beyond its reservation: 75 in all
		call{30, 0, 200, "5"},                           // does not fit
		call{3600, 0, 200, "x"}, call{3601, 0, 200, ""}) // not reported
	wantSettled(t, got, 2, "Reserved:240 WouldReserve:80 GivenBack:105 Overrun:20 Unreported:2 NoStatus:0 NoDuration:0")
	if units, requests := got.Windows[0], got.Windows[1]; units.Peak != 85 || requests.Peak != 4 || requests.Refused != 0 {
		t.Errorf("the windows are %+v and %+v", units, requests)
	}
}

// A log has what a request itself has reported. The policy bounds it, and a line without it
// reserves the most.
func TestWhatTheLogHasAsReservedIsReserved(t *testing.T) {
	l := limiterOf(t, "llm", "100 per hour by ip")
	l.Cost, l.Reserve = 60, weir.Reserve{From: weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"}}
	l.Actual = weir.Reading{Form: weir.ReadJSON, Name: "usage.total"}
	calls := []call{{0, 10, 200, "5"}, {1, 10, 200, "5"}, {2, 10, 200, "5"}, {20, 0, 200, "5"}, {30, 0, 200, ""}}
	reserved := reserving(30, 30, 30, 4000, 0)
	wantSettled(t, endedOf(t, Options{}, l, reserved, calls...), 0, "Reserved:210 WouldReserve:0 GivenBack:130 Overrun:0 Unreported:1 NoStatus:0 NoDuration:0")
	calls[2].at, calls[3].at = 1, 2 // does not fit, and waits until the first has ended
	paced := endedOf(t, Options{Paced: true}, l, reserving(50, 50, 30, 4000, 0), calls[:3]...)
	wantSettled(t, paced, 1, "Reserved:130 WouldReserve:30 GivenBack:115 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
	l.Reserve = weir.Reserve{} // the request reports nothing: the policy reserves
	wantSettled(t, endedOf(t, Options{}, l, reserved, calls[:2]...), 1, "Reserved:60 WouldReserve:60 GivenBack:55 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
}

// A client that leaves before the answer is counted, whatever the status is, as it was live.
func TestAClientThatHasLeftIsCounted(t *testing.T) {
	l := limiterOf(t, "login", "2 per minute by ip")
	l.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	got := ended(t, Options{}, l, call{0, 1, 499, ""}, call{2, 1, 499, ""}, call{4, 1, 401, ""})
	wantSettled(t, got, 1, "Reserved:2 WouldReserve:1 GivenBack:0 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
}

func TestRequestsInFlightAreThoseOfTheLog(t *testing.T) {
	l := weir.Limiter{Name: "poll", Routes: []weir.Route{{Path: "/", Prefix: true}}, InFlight: weir.InFlight{Limit: 2, Key: limiterOf(t, "x", "1 per hour by ip").Windows[0].Key}}
	calls := []call{{0, 10, 200, ""}, {1, 3, 200, ""}, {2, 1, 200, ""}, {4, 1, 200, ""}, {4.5, 9, 200, ""}, {5, 1, 200, ""}}
	got := ended(t, Options{Touch: 0.1}, l, calls...)
	wantSettled(t, got, 2, "Reserved:0 WouldReserve:0 GivenBack:0 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
	if w := got.Windows[0]; w.Window != "2 in flight by ip" || w.Peak != 2 || w.Refused != 2 || w.Callers.N != 1 || w.Touched.N != 1 || w.Recommend != nil {
		t.Errorf("the limit in flight is %+v", w)
	}
	if len(got.Worst) != 1 || got.Worst[0].Refused != 2 || got.Worst[0].Peak != 2 {
		t.Errorf("the callers are %+v", got.Worst)
	}
	for i := range calls {
		calls[i].takes = -1
	}
	wantSettled(t, ended(t, Options{}, l, calls...), 0, "Reserved:0 WouldReserve:0 GivenBack:0 Overrun:0 Unreported:0 NoStatus:0 NoDuration:6")
}

// A caller that waits gets the first slot that comes back.
func TestAPacedCallerWaitsForASlot(t *testing.T) {
	l := limiterOf(t, "poll", "100 per hour by ip")
	l.InFlight = weir.InFlight{Limit: 1, Key: l.Windows[0].Key}
	got := ended(t, Options{Paced: true}, l, call{0, 10, 200, ""}, call{1, 10, 200, ""}, call{2, 10, 200, ""})
	if d := got.Delay; d.Delayed != 2 || d.GaveUp != 0 || d.Max != 18 {
		t.Errorf("the delays are %+v", d)
	}
	if got.Refused != 2 || got.Windows[1].Peak != 1 {
		t.Errorf("refused %d, at most %d at a time", got.Refused, got.Windows[1].Peak)
	}
}

// Trials are settled as the limiters in force are.
func TestAShadowIsCountedByStatuses(t *testing.T) {
	l := limiterOf(t, "login", "2 per minute by ip")
	l.Mode, l.Count = weir.Shadow, weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
	got := ended(t, Options{}, l, call{0, 1, 200, ""}, call{2, 1, 200, ""}, call{4, 1, 401, ""}, call{6, 1, 401, ""}, call{8, 1, 401, ""})
	wantSettled(t, got, 1, "Reserved:4 WouldReserve:1 GivenBack:2 Overrun:0 Unreported:0 NoStatus:0 NoDuration:0")
}

// Without room, the request that ends first is taken to have ended.
func TestRequestsInFlightAreBounded(t *testing.T) {
	l := limiterOf(t, "poll", "1000000 per hour by ip")
	l.InFlight = weir.InFlight{Limit: 1 << 20, Key: l.Windows[0].Key}
	r := start(t, Options{Policy: policyOf(l), Memory: MinMemory})
	room := r.lanes[0].flights.left / flightBytes
	for i := range room + 10 {
		line := lineAt(float64(i)/1000, "192.0.2.7")
		line.Duration = int64(time.Hour)
		if err := r.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	if o := report(t, r).Policy; o.EndedEarly != 10 || o.Limiters[0].Windows[1].Peak != room+1 {
		t.Errorf("%d ended early, at most %d in flight; the room is for %d", o.EndedEarly, o.Limiters[0].Windows[1].Peak, room)
	}
}

// A policy without settlement pays nothing for it, and a limiter by agents drops its limit too.
func TestAnUnknownAgentHoldsNoSlot(t *testing.T) {
	l := limiterOf(t, "poll", "9 per hour by ip")
	l.InFlight = weir.InFlight{Limit: 1, Key: weir.Key{{"ip"}, {"agent"}}}
	r := start(t, Options{Policy: policyOf(l)})
	for i := range 3 {
		line := lineAt(float64(i), "192.0.2.7")
		line.HasAgent, line.Duration = false, int64(time.Hour)
		if err := r.Add(line); err != nil {
			t.Fatal(err)
		}
	}
	if got := report(t, r).Policy.Limiters[0]; got.Refused != 0 || got.Unknown != 3 || got.Windows[0].Peak != 3 || got.Windows[1].Unknown != 3 {
		t.Errorf("the limiter is %+v", got)
	}
}
