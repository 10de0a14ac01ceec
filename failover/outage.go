package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An Event says that the store has stopped answering, or answers again.
type Event struct {
	Failing bool
	Err     error // why the store stopped answering; nil where it answers again

	// When it answers again, and what was counted here meanwhile has been given to it:
	For         time.Duration // how long it did not answer
	Local       int64         // requests that were decided without it
	Given, Lost int64         // units counted here meanwhile: those that it was given, and those that it may not have got
}

// Health is whether the store answers.
type Health struct {
	Failing bool
	Since   time.Time // when it stopped answering; zero where it answers
	Err     error     // what it said last; nil where it answers
	Barred  bool      // the circuit breaker is open: requests do not wait for it, one a second tries
}

// Health returns whether the store answers, as OnEvent is told it: again once it has not failed for 3 seconds,
// as far as requests and Probe have found out. While nobody asks, nothing changes.
func (s *Store) Health() Health {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failing {
		return Health{}
	}
	return Health{Failing: true, Since: o.since, Err: o.err, Barred: s.breaker.open.Load()}
}

// calm is how long the store may not have failed before it has recovered. One that answers every other take has not, nor one
// that answers for a second until the breaker has closed and one of its machines is asked again that is dead.
const calm = 3 * time.Second

// An outage is what is known of a store that does not answer, and what it is owed.
type outage struct {
	told  func(Event)
	astir atomic.Bool  // it fails or is owed something: an answer of it is worth a look
	local atomic.Int64 // requests decided without it while it failed

	pinging atomic.Bool // a request that is counted here until the store was given its window pings the store

	mu      sync.Mutex
	failing bool
	since   time.Time // it began to fail
	last    time.Time // it failed
	err     error     // then

	owed        notes
	given, lost int64          // units in all
	before      Event          // what of them has been told
	passing     bool           // requests do not wait for the giving any more: under load there is always something more to give
	giving      bool           // somebody gives it what it is owed,
	heard       bool           // having had an answer from it
	pause       time.Time      // nobody is to begin before: giving it something failed
	giver       sync.WaitGroup // the goroutine that does,
	stop        func()         // and what ends it early
	closed      bool
	closing     sync.Mutex

	events  []Event // to be told
	telling bool
}

// failure notes that the store failed.
func (o *outage) failure(now time.Time, err error) {
	o.mu.Lock()
	o.last, o.err = now, err
	o.astir.Store(true)
	if !o.failing {
		o.failing, o.since = true, now
		o.events = append(o.events, Event{Failing: true, Err: err})
	}
	o.mu.Unlock()
	o.tell()
}

// note notes what the store is owed for a take that was counted here, at local by this process's clock.
func (o *outage) note(charges []weir.Charge, r *weir.Receipt, apart bool, local time.Time) {
	now := instant{time.Unix(r.Now, 0), local}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Cost == 0:
		case o.closed || !o.owed.add(c, r.Used[i], now):
			o.lost += c.Cost
		case apart:
			o.owed.setApart(c.Key)
		}
	}
	o.astir.Store(true)
}

// forgive forgets what the store is owed for windows that it was told to forget.
func (o *outage) forgive(charges []weir.Charge) {
	if !o.astir.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range charges {
		o.owed.forget(charges[i].Key)
	}
}

// owes reports whether there is something that the store was not given yet.
func (o *outage) owes() bool {
	if !o.astir.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.giving || o.owed.count() > 0
}

// owesWindow reports whether the store is owed units of one of these windows, or is just being
// given some. A window that has ended is owed no longer.
func (o *outage) owesWindow(charges []weir.Charge, now instant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.passing {
		return false
	}
	for i := range charges {
		if o.owed.owes(charges[i].Key, now) {
			return true
		}
	}
	return false
}

// pass lets requests ask the store though it is owed units of their windows, until it was given
// all.
func (o *outage) pass() {
	o.mu.Lock()
	o.passing = true
	o.mu.Unlock()
}

// canGive reports whether there is something to give that nobody is giving yet.
func (o *outage) canGive(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.giving && o.owed.due(now)
}

// settle draws a line under the outage, if it is over: the store answers, and is owed nothing. o.mu is held.
func (o *outage) settle(now time.Time) {
	if o.failing && now.Sub(o.last) >= calm {
		o.events = append(o.events, Event{
			For:   now.Sub(o.since),
			Local: o.local.Swap(0),
			Given: o.given - o.before.Given,
			Lost:  o.lost - o.before.Lost,
		})
		o.before = Event{Given: o.given, Lost: o.lost}
		o.failing, o.since, o.err = false, time.Time{}, nil
	}
	o.astir.Store(o.failing)
}

// tell tells of what happened, in that order, one event at a time.
func (o *outage) tell() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.telling {
		return
	}
	o.telling = true
	for len(o.events) > 0 {
		event := o.events[0]
		o.events = o.events[1:]
		if o.told != nil {
			o.mu.Unlock()
			o.told(event)
			o.mu.Lock()
		}
	}
	o.telling = false
}
