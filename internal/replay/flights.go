package replay

import (
	"container/heap"
	"context"
	"unsafe"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/accesslog"
)

// What a request has cost, and when it has ended.
//
// A server learns both after it has admitted a request: from its answer, and at its end. A line of
// a log has all of it. So a request whose limiter settles, or holds slots, is decided at its begin
// and stays in flight until its end, when its status and its cost are reported to the decider.
// Without a duration in the log it ends at once, and holds a slot for no time.

// An end is what a line says about the end of its request.
type end struct {
	status   int   // 0: unknown
	cost     int64 // units; -1: unknown
	reserved int64 // units that the server charged before; 0: unknown
	duration int64 // nanoseconds; -1: unknown
}

// statusGone is what Weir's log, and that of other servers, has for a client that left before there
// was an answer.
const statusGone = 499

// endOf returns the end of a line.
func (o *Options) endOf(l *accesslog.Line) end {
	e := end{status: l.Status, cost: -1, reserved: l.Reserved, duration: min(l.Duration, int64(maxPatience))}
	cost := l.Cost
	if o.Cost != nil {
		cost = o.Cost(l)
	}
	e.cost = unitsOf(cost)
	return e
}

// reserve returns the weir.Request.Cost of a request that a limiter covers: what the request has
// reported of its cost, as far as the log has it. 0 is the limiter's own.
func (e *end) reserve(l *weir.Limiter) int64 {
	if l == nil || l.Reserve.From == (weir.Reading{}) {
		return 0
	}
	return min(e.reserved, max(l.Cost, 1))
}

// answered returns the status of the answer, as it is reported to the decider: 0 if there was none.
func (e *end) answered() int {
	if e.status == statusGone {
		return 0
	}
	return e.status
}

// unitsOf reads a whole number of units up to weir.MaxLimit, as a server reads it in an answer; -1
// if it is none.
func unitsOf(text []byte) (units int64) {
	if len(text) == 0 || len(text) > 10 {
		return -1
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		units = units*10 + int64(c-'0')
	}
	if units > weir.MaxLimit {
		return -1
	}
	return units
}

// A flight is an admitted request that has not ended.
type flight struct {
	end
	at      int64 // when it ends, in Unix nanoseconds
	number  int64 // orders flights that end at the same time
	scratch *weir.Scratch
	judge   *weir.Decider
}

// flights are the requests in flight under one policy.
type flights struct {
	order []*flight // a heap by their ends
	spare []*weir.Scratch
	left  int64 // bytes
	next  int64
	early int64 // requests that were taken to have ended early, because there was no room
}

const flightBytes = int64(unsafe.Sizeof(flight{}) + unsafe.Sizeof(weir.Scratch{}))

// scratch returns working memory for the next decision.
func (f *flights) scratch() *weir.Scratch {
	if n := len(f.spare); n > 0 {
		s := f.spare[n-1]
		f.spare = f.spare[:n-1]
		return s
	}
	return new(weir.Scratch)
}

// begin takes over the request that was just decided with *s, if its end must be reported, and
// then replaces *s.
func (l *lane) begin(s **weir.Scratch, judge *weir.Decider, e end) {
	f := &l.flights
	if (*s).Awaits() == 0 {
		return
	}
	if e.duration <= 0 {
		l.conclude(*s, judge, e)
		return
	}
	for f.left < flightBytes && len(f.order) > 0 {
		f.early++
		l.endFirst()
	}
	f.left -= flightBytes
	heap.Push(f, &flight{end: e, at: l.now + e.duration, number: f.next, scratch: *s, judge: judge})
	f.next++
	*s = f.scratch()
}

// conclude reports to the decider what has become of a request.
func (l *lane) conclude(s *weir.Scratch, judge *weir.Decider, e end) {
	ctx := context.Background()
	judge.Answered(ctx, s, e.answered(), nil)
	if e.cost >= 0 && s.Awaits()&weir.AwaitsCost != 0 {
		judge.Spent(ctx, s, e.cost, nil)
	}
	judge.End(ctx, s)
}

// until advances the clock of the store to at, in Unix nanoseconds: requests in flight end, and
// those that wait are sent, each at its time.
func (l *lane) until(at int64) error {
	for {
		if l.waiting != nil {
			if err := l.waiting.until(at); err != nil {
				return err
			}
		}
		if !l.flights.due(at) {
			return nil
		}
		l.now = max(l.now, l.flights.order[0].at)
		l.endFirst()
	}
}

// due reports whether a request in flight ends by at.
func (f *flights) due(at int64) bool { return len(f.order) > 0 && f.order[0].at <= at }

// endFirst ends the request in flight that ends first.
func (l *lane) endFirst() {
	f := heap.Pop(&l.flights).(*flight)
	l.conclude(f.scratch, f.judge, f.end)
	l.flights.left += flightBytes
	l.flights.spare = append(l.flights.spare, f.scratch)
}

func (f *flights) Len() int { return len(f.order) }
func (f *flights) Less(i, j int) bool {
	a, b := f.order[i], f.order[j]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.number < b.number
}
func (f *flights) Swap(i, j int) { f.order[i], f.order[j] = f.order[j], f.order[i] }
func (f *flights) Push(x any)    { f.order = append(f.order, x.(*flight)) }
func (f *flights) Pop() any {
	last := len(f.order) - 1
	x := f.order[last]
	f.order[last] = nil
	f.order = f.order[:last]
	return x
}

// A settlement sums up what became of the reservations of a limiter.
type settlement struct{ reserved, wouldReserve, givenBack, overrun, unreported, noStatus, noDuration int64 }

// settled is for weir.Options.OnSettled.
func (l *lane) settled(v weir.Settled) {
	s := &l.named(v.Limiter.Name).settlement
	switch {
	case v.Unreported:
		s.unreported++
	case v.Used < v.Reserved:
		s.givenBack += v.Reserved - v.Used
	default:
		s.overrun += v.Used - v.Reserved
	}
}

// noteEnd counts what a limiter reserves or refuses, and what the log lacks of the end of what it
// admits. A denied request would have reserved nothing.
func (s *limiter) noteEnd(d *weir.Decision, e end) {
	if d.Outcome == weir.Denied || !s.rules.Settles() {
		return
	}
	n := &s.settlement
	if !d.Allowed {
		if s.rules.SettlesUnits() {
			n.wouldReserve += d.Cost
		}
		return
	}
	if s.rules.SettlesUnits() {
		n.reserved += d.Cost
	}
	if len(s.rules.Count.Statuses) > 0 && e.status == 0 {
		n.noStatus++
	}
	if s.rules.InFlight.Limit > 0 && e.duration < 0 {
		n.noDuration++
	}
}

// result returns what the report has of the settlement.
func (s *limiter) settledResult() *Settled {
	if !s.rules.Settles() {
		return nil
	}
	n := &s.settlement
	return &Settled{
		Reserved: n.reserved, WouldReserve: n.wouldReserve, GivenBack: n.givenBack, Overrun: n.overrun, Unreported: n.unreported,
		NoStatus: n.noStatus, NoDuration: n.noDuration,
	}
}
