package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
	_ "time/tzdata" // the timelines have zones

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

// byClock returns a charge of cost units to a window that ends by the clock. span is as in a
// policy: "minute" is aligned, "calendar month in Europe/Berlin" is of a calendar. The window is
// named by span, and counted by who.
func byClock(who string, limit int64, span string, cost int64) weir.Charge {
	w, err := weir.ParseWindow(fmt.Sprintf("%d per %s by ip", limit, span))
	if err != nil {
		panic(err) // the suite's own text
	}
	ends, err := weir.NewEnds(&weir.Limiter{Align: weir.AlignClock}, &w)
	if err != nil {
		panic(err)
	}
	c := charge(span+" "+who, limit, time.Duration(ends.Longest())*time.Second, cost)
	c.Ends = ends
	return c
}

// moveTo sets the clock to a time of RFC 3339, and a fraction of a second.
func (h *harness) moveTo(at string) {
	h.Helper()
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		h.Fatal(err)
	}
	h.advance(t.Add(123_456_789).Sub(h.clock.Now()))
}

// restoreClock moves the clock at the end of the test to where it was at its start.
func (h *harness) restoreClock() {
	was := h.clock.Now()
	h.Cleanup(func() { h.advance(was.Sub(h.clock.Now())) })
}

// between checks a limit of 2 in the span from begin to end: it is opened at an instant after
// begin, spent, and restored at exactly end.
func (h *harness) between(span, begin, opened, end string) {
	h.Helper()
	seconds := func(from, to string) int64 {
		a, errA := time.Parse(time.RFC3339, from)
		b, errB := time.Parse(time.RFC3339, to)
		if errA != nil || errB != nil {
			h.Fatal(errA, errB)
		}
		return int64(b.Sub(a) / time.Second)
	}
	one := charges{byClock(begin, 2, span, 1)}
	h.moveTo(begin)
	h.advance(-time.Second) // the last second of the span before
	h.expect(true, one, [2]int64{1, 1})
	h.moveTo(begin)
	h.expect(true, charges{byClock(begin, 2, span, 0)}, [2]int64{0, 0})
	h.moveTo(opened)
	h.expect(true, one, [2]int64{1, seconds(opened, end)})
	h.expect(true, one, [2]int64{2, seconds(opened, end)})
	h.expect(false, one, [2]int64{2, seconds(opened, end)})
	h.moveTo(end)
	h.toFraction(0)
	h.advance(-time.Nanosecond)
	h.expect(false, one, [2]int64{2, 1})
	h.advance(time.Nanosecond)
	h.expect(true, charges{byClock(begin, 2, span, 2)}, [2]int64{2, h.toEnd(one[0])})
	if h.Failed() {
		h.Fatalf("per %s from %s", span, begin)
	}
}

// toEnd returns the seconds from now to the end of the span.
func (h *harness) toEnd(c weir.Charge) int64 {
	now := h.clock.Now().Unix()
	return c.End(now) - now
}

func alignedEnds(h *harness) {
	h.restoreClock()
	h.between("minute", "2026-11-23T10:36:00Z", "2026-11-23T10:36:00Z", "2026-11-23T10:37:00Z")
	h.between("minute", "2026-11-23T10:38:00Z", "2026-11-23T10:38:59Z", "2026-11-23T10:39:00Z")
	h.between("10 minutes", "2026-11-23T10:40:00Z", "2026-11-23T10:49:30Z", "2026-11-23T10:50:00Z")
	h.between("day", "2026-11-24T00:00:00Z", "2026-11-24T12:00:00Z", "2026-11-25T00:00:00Z")
}

// calendarEnds has the spans that a wrong calendar gets wrong.
func calendarEnds(h *harness) {
	h.restoreClock()
	for _, s := range []struct{ span, begin, opened, end string }{
		// and no 30th
		{"calendar day in Pacific/Apia", "2011-12-29T10:00:00Z", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"},
		{"calendar day in Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"calendar month from day 31", "2026-01-31T00:00:00Z", "2026-02-02T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"calendar month from day 31", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"calendar day in America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"calendar day in Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T00:30:00Z", "2026-03-29T22:00:00Z"},
		{"calendar day in Asia/Kathmandu", "2026-04-30T18:15:00Z", "2026-04-30T18:15:00Z", "2026-05-01T18:15:00Z"},
		// 31 days and an hour
		{"calendar month in Europe/Berlin", "2026-09-30T22:00:00Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		{"calendar day in Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"calendar day in America/New_York", "2026-11-01T04:00:00Z", "2026-11-01T06:30:00Z", "2026-11-02T05:00:00Z"},
		{"calendar week", "2026-11-23T00:00:00Z", "2026-11-29T23:59:59Z", "2026-11-30T00:00:00Z"},
		{"calendar month from day 31", "2028-01-31T00:00:00Z", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"calendar month in Europe/Berlin from day 15", "2028-03-14T23:00:00Z", "2028-04-01T00:00:00Z", "2028-04-14T22:00:00Z"},
	} {
		h.between(s.span, s.begin, s.opened, s.end)
	}
}

func clockAmongOthers(h *harness) {
	h.restoreClock()
	h.moveTo("2026-11-23T10:00:50Z")
	relative, aligned, month := charge("a", 4, time.Minute, 1), byClock("a", 3, "minute", 1), byClock("a", 5, "calendar month", 1)
	toMonth := h.toEnd(month)
	h.expect(true, charges{relative, aligned, month}, [2]int64{1, 60}, [2]int64{1, 10}, [2]int64{1, toMonth})
	h.expect(true, charges{month, relative, aligned}, [2]int64{2, toMonth}, [2]int64{2, 60}, [2]int64{2, 10})
	h.expect(true, charges{aligned, month}, [2]int64{3, 10}, [2]int64{3, toMonth})
	h.expect(false, charges{month, aligned, relative}, [2]int64{3, toMonth}, [2]int64{3, 10}, [2]int64{2, 60})
	h.advance(10 * time.Second) // the aligned minute ends, the other goes on
	aligned.Cost = 2
	h.expect(true, charges{relative, aligned, month}, [2]int64{3, 50}, [2]int64{2, 60}, [2]int64{4, toMonth - 10})
	month.Cost = 2
	h.expect(false, charges{relative, month}, [2]int64{3, 50}, [2]int64{4, toMonth - 10})
	month.Cost = 1
	h.expect(true, charges{month}, [2]int64{5, toMonth - 10})
}

func clockSetBackInCalendar(h *harness) {
	h.restoreClock()
	h.moveTo("2026-03-02T00:00:00Z")
	one, two := charges{byClock("a", 2, "calendar month", 1)}, charges{byClock("b", 2, "calendar month", 1), byClock("b", 9, "minute", 1)}
	h.expect(true, one, [2]int64{1, 30 * 86400})
	h.expect(true, two, [2]int64{1, 30 * 86400}, [2]int64{1, 60})
	h.moveTo("2026-02-27T00:00:00Z") // the reset, 33 days away, moves to the end of February
	h.expect(true, one, [2]int64{2, 2 * 86400})
	h.expect(false, one, [2]int64{2, 2 * 86400})
	h.expect(true, two, [2]int64{2, 2 * 86400}, [2]int64{2, 60})
	h.moveTo("2026-03-01T00:00:00Z")
	h.expect(true, one, [2]int64{1, 31 * 86400})
	// to a month whose end is nearer than a month is long
	h.moveTo("2026-02-28T23:59:00Z")
	h.expect(true, one, [2]int64{2, 60})
	h.expect(false, one, [2]int64{2, 60})
	h.moveTo("2026-02-28T00:00:00Z")
	h.expect(false, one, [2]int64{2, 86400})
}

func clockSetByDays(h *harness) {
	h.restoreClock()
	one := byClock("a", 1<<20, "calendar day in Europe/Berlin", 1)
	h.moveTo("2026-06-15T12:00:00Z")
	for i, days := range []int{1, 30, 400, 1, 1, 7, 3000} {
		h.advance(time.Duration(days)*24*time.Hour + time.Duration(i)*time.Hour)
		h.expect(true, charges{one}, [2]int64{1, h.toEnd(one)})
	}
}

// clockSpans are spans short enough to end often, and long ones.
var clockSpans = []string{"3 seconds", "5 seconds", "20 seconds", "minute", "calendar day in Europe/Berlin", "calendar month in America/New_York from day 31"}

func clockFollowsArithmetic(h *harness) {
	h.restoreClock()
	serial := 0
	rapid.Check(h.T, func(t *rapid.T) {
		serial++
		h.moveTo(rapid.SampledFrom([]string{"2026-10-25T22:59:50Z", "2026-03-29T21:59:50Z", "2026-03-31T03:59:50Z", "2028-02-29T04:59:50Z"}).Draw(t, "begins"))
		m := model{used: map[string]weir.Used{}}
		for range rapid.IntRange(1, 40).Draw(t, "takes") {
			h.advance(time.Duration(rapid.IntRange(0, 5000).Draw(t, "milliseconds")) * time.Millisecond)
			var in charges
			for _, span := range rapid.Permutation(clockSpans).Draw(t, "spans")[:rapid.IntRange(1, 3).Draw(t, "windows")] {
				who := fmt.Sprintf("%d/%s", serial, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"))
				in = append(in, byClock(who, rapid.Int64Range(1, 6).Draw(t, "limit"), span, rapid.Int64Range(0, 1).Draw(t, "cost")))
			}
			if rapid.Bool().Draw(t, "with another") {
				in = append(in, charge(fmt.Sprint(serial), 5, 20*time.Second, 1))
			}
			out := h.take(in...)
			ok, next := m.step(in, out)
			if !ok {
				t.Fatalf("take of %+v answered %+v, which the arithmetic does not give from %+v", in, out, m)
			}
			m = next
		}
	})
}

func linearizableByTheClock(h *harness) {
	h.restoreClock()
	for round := range 40 {
		h.moveTo("2026-10-25T22:59:57Z")
		history := record(h, round, func(random *rand.Rand) []weir.Charge {
			in := charges{byClock(fmt.Sprintf("%d/%d", round, random.IntN(2)), 3, "2 seconds", 1)}
			if random.IntN(2) == 0 {
				in = append(in, byClock(fmt.Sprintf("%d/common", round), 5, "calendar day in Europe/Berlin", 1))
			}
			return in
		}, func(string) {})
		if !porcupine.CheckOperations(linearModel(), history) {
			h.Fatalf("round %d: no order of the takes explains their answers", round)
		}
	}
}

// exactAcrossBoundary has callers take from one window across the end of a day. Each of the two
// days admits exactly the limit.
func exactAcrossBoundary(h *harness) {
	h.restoreClock()
	const callers, takes, limit = 6, 100, 100
	h.moveTo("2026-03-28T22:59:59Z")
	var days [2]atomic.Int64
	boundary := h.clock.Now().Unix() + 1
	one := byClock("all", limit, "calendar day in Europe/Berlin", 1)
	together(callers, func(i int) {
		for n := range takes {
			if i == 0 && n == takes/2 {
				h.advance(time.Second)
			}
			if r := h.take(one); r.Allowed {
				days[min(max(r.Now-boundary+1, 0), 1)].Add(1)
			}
		}
	})
	for range limit { // what the race has left of the second day
		if h.take(one).Allowed {
			days[1].Add(1)
		}
	}
	if days[0].Load() > limit || days[1].Load() != limit {
		h.Errorf("%d and %d were admitted on two days of %d", days[0].Load(), days[1].Load(), limit)
	}
}
