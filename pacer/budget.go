package pacer

import "math"

// A budget is what is known of one window of one caller: the whole arithmetic of pacing, in the terms of D26. It knows no clock
// and does no I/O. now is a local time in nanoseconds; units are what a window counts.
type budget struct {
	phase     phase
	limit     int64 // 0: never told
	remaining int64 // units left after the request that said so
	reset     int64 // Unix seconds on the server's clock
	ends      int64 // local time by which reset has come at the latest
	length    int64 // seconds; the farthest that Reset was away in this window
	lengthWas int64 // in the one before
	bound     bool  // remaining, or least, is a bound that answers of requests in flight then still take from
	least     int64 // units left at least while the phase is unknown: a window that binds had so many
	mute      int64 // answers without fields, in a row, where there should be some
	blocked   int64 // local time before which nothing starts, after a 429 without fields
	seen      int64 // local time of what is known; were it a second later than now, the local clock has been set back
	opened    int64 // local time at which this window was first heard of, or while it is unknown the one before ended
	clock     clock

	// started counts the starts, and so orders them: a response is newer than the others if its request started after they were
	// read. newest is started when one was read last, turned when a window came to its end.
	started, newest, turned uint64
	flights                 []flight
	lost                    int64  // units of requests without an answer: perhaps charged
	lostAt                  uint64 // started when the last of them was lost

	probes  int64 // requests that were sent to learn what is left of a new window, and have not said it yet
	probing int64 // local time of the first of them, or of the last answer to one

	// In this window, since its first response: units that this side was charged, and that others must have been. They are
	// halved from window to window.
	own, foreign float64
	base         int64 // units left before the first of own
	charged      int64 // own, of this window alone
}

// A phase is how much is known.
type phase uint8

const (
	unknown phase = iota // the first request will tell
	known                // until reset
	silent               // responses say nothing: nothing is waited for
)

// A flight is what one process has in flight, and what it wants.
type flight struct {
	process uint64
	units   int64
	waiting int64 // calls that wait
	taken   int64 // units started in this window
	at      int64 // local time of the last word
}

// What others have in flight is forgotten when they have not said anything for so long: they are gone, or the server has
// charged them long since.
const flightLife = 60 * second

// A verdict says whether a call may start.
type verdict struct {
	start bool
	until int64 // local time at which to ask again
	why   Reason
}

// inFlight is the number of units in flight, of all processes.
func (b *budget) inFlight() (n int64) {
	for _, f := range b.flights {
		n += f.units
	}
	return n
}

// flying sets what a process has in flight and how many of its calls wait, and forgets processes that are gone.
func (b *budget) flying(process uint64, units, waiting, now int64) {
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

// fair says whether a process may start more, in the first second of a window for which calls of several processes wait: each
// has its part first, or the quickest would spend all of it.
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
	return wanting == 1 || taken < max((b.limit-a.kept(b.limit)+1)/wanting, a.cost)
}

// turn begins a new window where the time has come: how much of it is left, a probe will tell.
func (b *budget) turn(now int64) {
	if b.phase == known && (now >= b.restored(now) || now < b.seen-second) {
		b.phase, b.probes, b.least, b.turned, b.opened = unknown, 0, 0, b.started, now
		b.fold()
	}
}

// fold makes this window one of those before.
func (b *budget) fold() {
	b.own, b.foreign = (b.own+float64(b.charged))/2, (b.foreign+float64(b.spentByOthers()))/2
	b.base, b.charged, b.lost = b.remaining, 0, 0
	for i := range b.flights {
		b.flights[i].taken = 0
	}
}

// restored is the local time of reset.
func (b *budget) restored(now int64) int64 {
	return min(b.clock.reaches(b.reset, now), b.ends)
}

// An ask is what a call asks of a budget: its units, and how many units are to be left of a limit.
type ask struct {
	cost      int64
	threshold func(limit int64) int64
	process   uint64
	declared  declared
}

// may says whether a call may start now.
func (b *budget) may(a ask, now int64) verdict {
	if now < b.seen-second {
		b.blocked = 0 // the local clock has been set back
	}
	if now < b.blocked {
		return verdict{until: b.blocked, why: Refused}
	}
	b.turn(now)
	switch {
	case b.phase == silent, b.phase == unknown && b.least > 0 && b.fits(b.least, a):
		return verdict{start: true}
	case b.phase == unknown:
		return b.mayProbe(a, now)
	case !b.fits(b.remaining, a):
		return verdict{until: b.restored(now), why: BudgetSpent}
	case !b.fair(a, now):
		return verdict{until: min(b.opened+second, b.restored(now)), why: BudgetSpent}
	}
	return verdict{start: true}
}

// mayProbe lets one request ahead, and as long as it is not answered twice as many after each second: a slow endpoint must not
// hold everybody up.
func (b *budget) mayProbe(a ask, now int64) verdict {
	elapsed := (now - b.probing) / second
	if b.probes == 0 || elapsed < 0 {
		return verdict{start: true}
	}
	limit, length := b.limit, max(b.length, b.lengthWas)
	if limit == 0 {
		limit, length = a.declared.limit, a.declared.length
	}
	over := now-b.opened >= length*second // what has not been answered for a whole window counts in none
	if b.probes < 1<<min(elapsed, 30) && (limit == 0 || over || b.fits(limit-b.charged, a)) {
		return verdict{start: true}
	}
	return verdict{until: b.probing + (elapsed+1)*second, why: Probing}
}

// fits says whether a call may start where so many units were left. Those in flight may be charged already or not. Where others
// spend too, they are taken to have in flight what their share of the spending says, twice: what they had when the newest
// response was decided, and what they have sent since.
func (b *budget) fits(left int64, a ask) bool {
	mine := b.inFlight() + b.lost
	theirs := min(math.Ceil(2*b.others()*float64(mine+a.cost)), float64(b.limit/2))
	return left-mine-int64(theirs) >= a.kept(b.limit)
}

// kept is how many units of a window are left to stand when the call starts: the threshold, and its own.
func (a ask) kept(limit int64) int64 { return max(a.threshold(limit), a.cost) }

// others is how many units others spend while this side spends one.
func (b *budget) others() float64 {
	own, foreign := b.own+float64(b.charged), b.foreign+float64(b.spentByOthers())
	if own < 1 || foreign < 1 {
		return 0
	}
	return foreign / own
}

// spentByOthers is how many units of this window others were charged since its first response, at least.
func (b *budget) spentByOthers() int64 {
	return max(b.base-b.remaining-b.charged-b.inFlight()-b.lost, 0)
}

// begin counts a start, and returns its place in the order. The caller has set the flight.
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

// A sent request is what a budget needs to know of one that has come back. The caller has set the flight.
type sent struct {
	cost   int64
	place  uint64 // what begin returned
	at     int64  // local time of the start
	now    int64  // local time of the response
	length int64  // seconds: how long the window is declared to be; 0: not declared
}

// fitted reports whether the budget that a response describes had room for the request. If it was
// refused all the same, then by another limit, such as GitHub's secondary one.
func (s sent) fitted(f stated) bool { return f.Remaining >= s.cost }

// unsaid takes in an answer that says nothing. It does not come from the limiter, whose every answer does (contract, section 1).
func (b *budget) unsaid(s sent) {
	if b.phase != unknown || s.place <= b.turned {
		return
	}
	const enough = 3 // of a limiter that has been heard of: its proxy may answer in its place now and then
	if b.mute++; b.limit == 0 || b.mute >= enough {
		b.phase, b.probes = silent, 0
		return
	}
	b.unsent(s)
}

// miss takes in that a request was not answered: perhaps charged.
func (b *budget) miss(s sent) {
	if b.phase == known {
		b.lost += s.cost
		b.lostAt = b.started
	}
	b.unsent(s)
}

// unsent takes in that a request never reached the server: another one can probe in its place.
func (b *budget) unsent(s sent) {
	if b.phase == unknown && s.place > b.turned {
		b.probes = max(b.probes-1, 0)
	}
}

// unbound takes in that a request was charged while another window of its limiter has less left: at most as much as this one.
func (b *budget) unbound(s sent, binding stated, refused bool) {
	left := &b.least
	switch {
	case b.phase == known:
		left = &b.remaining
	case b.phase == silent:
		b.phase, b.probes, b.least = unknown, 0, 0
	}
	b.unsent(s)
	b.probing = s.now
	if !refused {
		*left = max(*left-s.cost, 0)
		b.charged += s.cost
	}
	b.bound = true
	if s.place > max(b.newest, b.turned) {
		*left = max(*left, binding.Remaining)
	}
	b.newest = b.started
}

// told takes in what a response says. It returns the local time of its Reset; 0 if that is not
// credible, and then nothing changes but the phase.
func (b *budget) told(s sent, f stated, refused bool) (until int64) {
	date := f.Date
	if f.Limit == 0 && f.after > 0 { // no limit is told: it is at least the most that was left
		f.Limit = max(b.limit, f.Remaining, 1)
	}
	if date == 0 && f.RetryAfter > 0 && !s.fitted(f) {
		date = f.Reset - f.RetryAfter // D1: Retry-After is Reset less the second of the refusal
	}
	left, ok := b.distance(f, s, date)
	if !ok {
		b.unsaid(s)
		return 0
	}
	if date > 0 && b.clock.saw(date, s.at, s.now) {
		b.length, b.lengthWas = 0, 0 // they were measured by another clock
	}
	if f.Remaining = min(f.Remaining, f.Limit); refused && !s.fitted(f) {
		f.Remaining = 0
	}
	if s.place > b.lostAt { // whether they were charged shows in what is left by now
		b.charged, b.lost = b.charged+b.lost, 0
	}
	b.mute = 0
	until = b.ending(&f, s, left)
	b.turn(s.now)
	switch newer := s.place > b.newest; {
	case b.clock.set && b.clock.reaches(f.Reset, s.now) <= s.now:
		b.unsent(s) // the window is over already
		return max(s.now, 1)
	case b.phase != known:
		if !newer { // what has been answered since may not be in it
			f.Remaining = max(f.Remaining-b.charged, b.least-s.cost, 0)
		}
		b.open(f, s.now)
		b.bound = !newer
	case f.Reset == b.reset && f.Limit == b.limit:
		b.goOn(s, f.Remaining, refused, newer)
	case newer:
		b.open(f, s.now)
		b.bound = false
	default: // of a window that is over, or of one that has begun sooner than we thought
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

// ending returns the local time by which the Reset that a response tells has come at the latest. If
// the response tells the time left, ending sets Reset, so that it is the same for all responses of
// one window: they differ by what was rounded.
func (b *budget) ending(f *stated, s sent, left int64) int64 {
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

// distance returns how many seconds Reset is ahead, where that is credible.
func (b *budget) distance(f stated, s sent, date int64) (seconds int64, ok bool) {
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
	return seconds, 0 < seconds && seconds <= longest
}

// open goes on with what a response says of a window that is new to us.
func (b *budget) open(f stated, now int64) {
	if b.phase == known {
		b.fold()
	}
	if b.lengthWas = b.length; b.limit != f.Limit {
		b.lengthWas = 0
	}
	b.length = 0
	b.phase, b.probes, b.opened = known, 0, now
	b.limit, b.remaining, b.reset = f.Limit, f.Remaining, f.Reset
	b.base, b.charged = f.Remaining, 0
}

// goOn takes in another response of the same window: the least that was said, unless it is certain which was said last.
func (b *budget) goOn(s sent, remaining int64, refused, newer bool) {
	if !refused {
		b.charged += s.cost
	}
	switch {
	case newer:
		b.base += max(remaining-b.remaining, 0) // given back
		b.remaining, b.bound = remaining, false
	case b.bound && !refused:
		b.remaining = max(min(b.remaining-s.cost, remaining), 0)
	default:
		b.remaining = min(b.remaining, remaining)
	}
}

// block lets nothing start for a time, after a 429 that says no more than how long to wait.
func (b *budget) block(now, wait int64) {
	b.blocked, b.seen = max(b.blocked, now+wait), now
	if b.phase == silent {
		b.phase, b.probes = unknown, 0
	}
}

// blockedByAnother blocks the budget after a 429 of a limit that has no fields. It returns the local
// time at which requests can start again: after wait nanoseconds, or if the 429 does not say, after
// a minute, but no later than the budget is restored.
func (b *budget) blockedByAnother(now, wait, restored int64) (until int64) {
	if wait == 0 {
		wait = min(60*second, max(restored-now, 0))
	}
	b.block(now, wait)
	return max(now+wait, 1)
}

// capacity returns how many calls like this one could start between now and then, at most, if nobody else spent anything.
func (b *budget) capacity(a ask, now, then int64) int64 {
	switch {
	case then < b.blocked && now >= b.seen-second:
		return 0
	case b.phase == silent || b.limit == 0:
		return endless
	}
	calls := func(left int64) int64 {
		if left < a.kept(b.limit) {
			return 0
		}
		return (left-a.kept(b.limit))/a.cost + 1
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

// endless is more calls than anybody makes.
const endless = math.MaxInt64 / 4
