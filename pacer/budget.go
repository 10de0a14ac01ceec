package pacer

import "math"

// A budget is what is known of one window of one caller. It holds the whole arithmetic of pacing,
// in the terms of D26, without a clock or I/O. now is a local time in nanoseconds. Units are what a
// window counts.
type budget struct {
	phase     phase
	limit     int64 // 0: not known yet
	remaining int64 // units left after the request of the newest response
	reset     int64 // Unix seconds on the server's clock
	ends      int64 // local time by which reset has passed for certain
	length    int64 // seconds; the largest distance of Reset that was seen in this window
	lengthWas int64 // the same of the window before
	// remaining, or minRemaining, is an upper bound: answers in flight at that time still reduce it
	upperBound bool
	// units certainly left while the phase is unknown: a window that binds had that many
	minRemaining  int64
	silentAnswers int64 // consecutive answers without fields where fields are expected
	blocked       int64 // local time before which no call starts, after a 429 without fields
	// local time of the last update; if it is over a second ahead of now, the local clock was set
	// back
	seen int64
	// local time at which this window was first seen, or, while unknown, at which the one before
	// ended
	opened int64
	clock  clock

	// started counts the starts, and so orders them: a response is newer than another if its
	// request started after the other was read. newest is started when the last response was read;
	// turned is started when a window ended.
	started, newest, turned uint64
	flights                 []flight
	// units of requests without an answer, which may have been charged
	lost   int64
	lostAt uint64 // started when the last of them was lost

	// requests that were sent to learn what is left of a new window, and are not answered
	probes  int64
	probing int64 // local time of the first of them, or of the last answer to one

	// Since the first response in this window: units that this side was charged, and units that
	// others must have been charged. Both are halved from window to window.
	own, foreign float64
	base         int64 // units left before the first of own
	charged      int64 // own, in this window only
}

// A phase is how much is known of a budget.
type phase uint8

const (
	unknown phase = iota // the first response will show it
	known                // until reset
	silent               // responses have no fields, so no call waits
)

// A flight is what one process has in flight, and how many calls it has waiting.
type flight struct {
	process uint64
	units   int64
	waiting int64 // waiting calls
	taken   int64 // units started in this window
	at      int64 // local time of the last update
}

// flightLife is how long the flight of another process is kept without an update: after that the
// process has ended, or the server has charged it long ago.
const flightLife = 60 * second

// A verdict is whether a call may start.
type verdict struct {
	start bool
	until int64 // local time at which to ask again
	why   Reason
}

// inFlight returns the units in flight, of all processes.
func (b *budget) inFlight() (n int64) {
	for _, f := range b.flights {
		n += f.units
	}
	return n
}

// setFlight sets the units in flight and the waiting calls of a process, and drops processes that
// have ended.
func (b *budget) setFlight(process uint64, units, waiting, now int64) {
	kept, own := b.flights[:0], flight{process: process}
	for _, f := range b.flights {
		switch {
		case f.process == process:
			own = f
		case now-f.at < flightLife:
			kept = append(kept, f)
		}
	}
	own.units, own.waiting, own.at = units, waiting, now
	b.flights = append(kept, own)
}

// fair reports whether a process may start more calls in the first second of a window for which
// calls of several processes wait. Each process first gets its share; otherwise the quickest would
// spend everything.
func (b *budget) fair(a ask, now int64) bool {
	if len(b.flights) < 2 || now-b.opened >= second {
		return true
	}
	wanting, taken := int64(1), int64(0)
	for _, f := range b.flights {
		switch {
		case f.process == a.process:
			taken = f.taken
		case f.waiting > 0 && now-f.at < second:
			wanting++
		}
	}
	return wanting == 1 || taken < max((b.limit-a.mustLeave(b.limit)+1)/wanting, a.cost)
}

// expire ends a window that is over. A probe then learns what is left of the next.
func (b *budget) expire(now int64) {
	if b.phase == known && (now >= b.restored(now) || now < b.seen-second) {
		b.phase, b.probes, b.minRemaining, b.turned, b.opened = unknown, 0, 0, b.started, now
		b.decay()
	}
}

// decay moves this window's counts into the averages of earlier windows.
func (b *budget) decay() {
	b.own, b.foreign = (b.own+float64(b.charged))/2, (b.foreign+float64(b.spentByOthers()))/2
	b.base, b.charged, b.lost = b.remaining, 0, 0
	for i := range b.flights {
		b.flights[i].taken = 0
	}
}

// restored returns the local time of reset.
func (b *budget) restored(now int64) int64 {
	return min(b.clock.reaches(b.reset, now), b.ends)
}

// An ask is what a call asks of a budget: its units, and the units that must be left for a limit.
type ask struct {
	cost      int64
	back      int64 // units that have come back since the newest response, by an estimate
	certain   bool  // none is used
	threshold func(limit int64) int64
	process   uint64
	declared  declared
}

// canStart decides whether a call may start now.
func (b *budget) canStart(a ask, now int64) verdict {
	if now < b.seen-second {
		b.blocked = 0 // the local clock was set back
	}
	if now < b.blocked {
		return verdict{until: b.blocked, why: Refused}
	}
	b.expire(now)
	switch {
	case b.phase == silent, b.phase == unknown && b.minRemaining > 0 && b.fits(b.minRemaining, a):
		return verdict{start: true}
	case b.phase == unknown:
		return b.mayProbe(a, now)
	case !b.fits(min(b.remaining+a.back, max(b.limit, b.remaining)), a):
		return verdict{until: b.restored(now), why: BudgetSpent}
	case !b.fair(a, now):
		return verdict{until: min(b.opened+second, b.restored(now)), why: BudgetSpent}
	}
	return verdict{start: true}
}

// mayProbe admits one request as a probe. While it is not answered, twice as many are admitted
// after each second, so that a slow endpoint does not delay all calls.
func (b *budget) mayProbe(a ask, now int64) verdict {
	elapsed := (now - b.probing) / second
	if b.probes == 0 || elapsed < 0 {
		return verdict{start: true}
	}
	limit, length := b.limit, max(b.length, b.lengthWas)
	if limit == 0 {
		limit, length = a.declared.limit, a.declared.length
	}
	// a probe that is a whole window old does not count any more
	over := now-b.opened >= length*second
	if b.probes < 1<<min(elapsed, 30) && (limit == 0 || over || b.fits(limit-b.charged, a)) {
		return verdict{start: true}
	}
	return verdict{until: b.probing + (elapsed+1)*second, why: Probing}
}

// fits reports whether a call may start if so many units were left. Units in flight may or may not
// have been charged. If others spend too, their share of the spending gives an estimate of their
// units in flight, doubled: what they had in flight when the newest response was decided, and what
// they have sent since.
func (b *budget) fits(left int64, a ask) bool {
	mine := b.inFlight() + b.lost
	theirs := min(math.Ceil(2*b.others()*float64(mine+a.cost)), float64(b.limit/2))
	return left-mine-int64(theirs) >= a.mustLeave(b.limit)
}

// mustLeave returns how many units must be left when the call starts: the threshold, or its own.
func (a ask) mustLeave(limit int64) int64 { return max(a.threshold(limit), a.cost) }

// others returns how many units others spend while this side spends one.
func (b *budget) others() float64 {
	own, foreign := b.own+float64(b.charged), b.foreign+float64(b.spentByOthers())
	if own < 1 || foreign < 1 {
		return 0
	}
	return foreign / own
}

// spentByOthers returns how many units of this window others were certainly charged since its first
// response.
func (b *budget) spentByOthers() int64 {
	return max(b.base-b.remaining-b.charged-b.inFlight()-b.lost, 0)
}

// begin counts a start, and returns its position in the order. The caller has set the flight.
func (b *budget) begin(a ask, now int64) uint64 {
	for i := range b.flights {
		if b.flights[i].process == a.process {
			b.flights[i].taken += a.cost
		}
	}
	if b.phase == unknown {
		if b.probes == 0 {
			b.probing = now
		}
		if b.opened == 0 {
			b.opened = now
		}
		b.probes++
	}
	b.started++
	return b.started
}

// A sent request is what a budget needs to know of a request that has returned. The caller has set
// the flight.
type sent struct {
	cost   int64
	place  uint64 // what begin returned
	at     int64  // local time of the start
	now    int64  // local time of the response
	length int64  // seconds; the declared length of the window, or 0
	tick   uint64 // of the start
}

// fitted reports whether the reported budget had room for the request. If the request was refused
// all the same, another limit did it, such as GitHub's secondary one.
func (s sent) fitted(f report) bool { return f.Remaining >= s.cost }

// noFields handles an answer without fields. It does not come from the limiter, which sends them
// with every answer (contract, section 1).
func (b *budget) noFields(s sent) {
	if b.phase != unknown || s.place <= b.turned {
		return
	}
	const enough = 3 // for a known limiter: its proxy may answer in its place now and then
	if b.silentAnswers++; b.limit == 0 || b.silentAnswers >= enough {
		b.phase, b.probes = silent, 0
		return
	}
	b.notSent(s)
}

// noAnswer handles a request without an answer. It may have been charged.
func (b *budget) noAnswer(s sent) {
	if b.phase == known {
		b.lost += s.cost
		b.lostAt = b.started
	}
	b.notSent(s)
}

// notSent handles a request that never reached the server: another one can probe in its place.
func (b *budget) notSent(s sent) {
	if b.phase == unknown && s.place > b.turned {
		b.probes = max(b.probes-1, 0)
	}
}

// otherBound handles a request that was charged while another window of its limiter has less left,
// so that window's Remaining is a lower bound for this one.
func (b *budget) otherBound(s sent, binding report, refused bool) {
	left := &b.minRemaining
	switch {
	case b.phase == known:
		left = &b.remaining
	case b.phase == silent:
		b.phase, b.probes, b.minRemaining = unknown, 0, 0
	}
	b.notSent(s)
	b.probing = s.now
	if !refused {
		*left = max(*left-s.cost, 0)
		b.charged += s.cost
	}
	b.upperBound = true
	if s.place > max(b.newest, b.turned) {
		*left = max(*left, binding.Remaining)
	}
	b.newest = b.started
}

// observe handles the fields of a response. It returns the local time of its Reset, or 0 if that is
// not credible; then only the phase may change.
func (b *budget) observe(s sent, f report, refused bool) (until int64) {
	date := f.Date
	if f.Limit == 0 && f.after > 0 { // no limit is stated: it is at least the most that was left
		f.Limit = max(b.limit, f.Remaining, 1)
	}
	if date == 0 && f.RetryAfter > 0 && !s.fitted(f) {
		date = f.Reset - f.RetryAfter // Retry-After is Reset minus the second of the refusal (D1)
	}
	left, ok := b.distance(f, s, date)
	if !ok {
		b.noFields(s)
		return 0
	}
	if date > 0 && b.clock.saw(date, s.at, s.now) {
		b.length, b.lengthWas = 0, 0 // they were measured with another clock
	}
	if f.Remaining = min(f.Remaining, f.Limit); refused && !s.fitted(f) {
		f.Remaining = 0
	}
	if s.place > b.lostAt { // the remaining units show whether they were charged
		b.charged, b.lost = b.charged+b.lost, 0
	}
	b.silentAnswers = 0
	until = b.ending(&f, s, left)
	b.expire(s.now)
	switch newer := s.place > b.newest; {
	case b.clock.set && b.clock.reaches(f.Reset, s.now) <= s.now:
		b.notSent(s) // the window is already over
		return max(s.now, 1)
	case b.phase != known:
		if !newer { // it may not include what was answered since
			f.Remaining = min(f.Remaining, max(f.Remaining-b.charged, b.minRemaining-s.cost, 0))
		}
		b.open(f, s.now)
		b.upperBound = !newer
	case f.Reset == b.reset && f.Limit == b.limit:
		b.goOn(s, f.Remaining, refused, newer)
	case newer:
		b.open(f, s.now)
		b.upperBound = false
	default: // of a window that is over, or of one that began earlier than expected
		if f.Limit == b.limit && f.Reset > b.reset {
			b.remaining = min(b.remaining, f.Remaining)
		}
		b.newest = b.started
		return max(b.clock.reaches(f.Reset, s.now), 1)
	}
	b.newest, b.seen = b.started, s.now
	b.ends = until
	b.length = max(b.length, left)
	return max(b.restored(s.now), 1)
}

// ending returns the local time by which the Reset of a response has passed for certain. If the
// response states the time left, ending sets Reset so that it is the same for all responses of one
// window, which differ by rounding.
func (b *budget) ending(f *report, s sent, left int64) int64 {
	if f.after == 0 {
		return s.now + (left+1)*second
	}
	date := f.Date
	if date == 0 {
		date = b.clock.now(s.now)
	}
	f.Reset = date + left + 1
	until := s.now + f.after
	if b.phase == known && f.Limit == b.limit && f.Reset-b.reset <= 1 && b.reset-f.Reset <= 1 {
		f.Reset, until = b.reset, min(until, b.ends)
	}
	return until
}

// distance returns how many seconds Reset is ahead, if that is credible.
func (b *budget) distance(f report, s sent, date int64) (seconds int64, ok bool) {
	if f.Limit < 1 || f.Reset < 1 && f.after < 1 {
		return 0, false
	}
	switch {
	case f.after > 0:
		seconds = (f.after-1)/second + 1
	case date > 0:
		seconds = f.Reset - date
	case b.clock.set:
		seconds = f.Reset - b.clock.now(s.now)
	default:
		seconds = f.Reset - s.now/second
		if s.length > 0 {
			seconds = min(seconds, s.length) // the local clock is slow
		}
	}
	return seconds, 0 < seconds && seconds <= longestWindow
}

// open starts a window from the first response that describes it.
func (b *budget) open(f report, now int64) {
	if b.phase == known {
		b.decay()
	}
	if b.lengthWas = b.length; b.limit != f.Limit {
		b.lengthWas = 0
	}
	b.length = 0
	b.phase, b.probes, b.opened = known, 0, now
	b.limit, b.remaining, b.reset = f.Limit, f.Remaining, f.Reset
	b.base, b.charged = f.Remaining, 0
}

// goOn handles another response of the same window. It keeps the smaller Remaining, unless it is
// certain which is newer.
func (b *budget) goOn(s sent, remaining int64, refused, newer bool) {
	if !refused {
		b.charged += s.cost
	}
	switch {
	case newer:
		b.base += max(remaining-b.remaining, 0) // units were given back
		b.remaining, b.upperBound = remaining, false
	case b.upperBound && !refused:
		b.remaining = max(min(b.remaining-s.cost, remaining), 0)
	default:
		b.remaining = min(b.remaining, remaining)
	}
}

// block stops all starts for a time, after a 429 that states only how long to wait.
func (b *budget) block(now, wait int64) {
	b.blocked, b.seen = max(b.blocked, now+wait), now
	if b.phase == silent {
		b.phase, b.probes = unknown, 0
	}
}

// blockedByAnother blocks the budget after a 429 of a limit without fields. It returns the local
// time at which requests can start again: after wait nanoseconds, or, if the 429 states no wait,
// after a minute or when the budget is restored, whichever is sooner.
func (b *budget) blockedByAnother(now, wait, restored int64) (until int64) {
	if wait == 0 {
		wait = min(60*second, max(restored-now, 0))
	}
	b.block(now, wait)
	return max(now+wait, 1)
}

// capacity returns how many calls of this cost could start between now and then, if no one else
// spent anything.
func (b *budget) capacity(a ask, now, then int64) int64 {
	switch {
	case then < b.blocked && now >= b.seen-second:
		return 0
	case b.phase == silent || b.limit == 0:
		return endless
	}
	calls := func(left int64) int64 {
		if left < a.mustLeave(b.limit) {
			return 0
		}
		return (left-a.mustLeave(b.limit))/a.cost + 1
	}
	from, n := now, int64(0)
	if b.phase == known && now < b.restored(now) && now >= b.seen-second {
		from, n = b.restored(now), calls(b.remaining-b.inFlight()-b.lost)
	}
	if then >= from {
		windows := 1 + (then-from)/(max(b.length, b.lengthWas, 1)*second)
		n += min(max(calls(b.limit), 1), endless/windows) * windows
	}
	return min(n, endless)
}

// endless is a number of calls that is never reached.
const endless = math.MaxInt64 / 4
