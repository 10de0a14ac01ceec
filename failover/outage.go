package failover

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// An Event reports that the inner store stopped answering, or that it answers again.
type Event struct {
	Failing bool
	Err     error // why the store stopped answering; nil if it answers again

	// The rest is zero if Failing.

	For   time.Duration // the length of the outage
	Local int64         // requests that were decided without the store
	Given int64         // units that were counted here, and that the store received
	Lost  int64         // units that were counted here, and that the store may not have received
}

// Health is the state of the inner store.
type Health struct {
	Failing     bool
	Since       time.Time // when the store stopped answering; zero while it answers
	Err         error     // its last error; nil while it answers
	BreakerOpen bool      // the circuit breaker is open: one request a second tries the store
}

// Health returns the state of the inner store as OnEvent reports it: after an outage the store is
// failing until it has not failed for 3 seconds. Only Probe, and requests that ask the store,
// change it: one that leased units serve does not.
func (s *Store) Health() Health {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.failing {
		return Health{}
	}
	return Health{Failing: true, Since: o.since, Err: o.err, BreakerOpen: s.breaker.notClosed.Load()}
}

// minCalm is the time without a failure after which an outage is over. A store that answers every
// other take has not recovered. Nor has a store with one dead machine: it answers for a second,
// until the breaker has closed and that machine is asked again.
const minCalm = 3 * time.Second

// An outage is the state of an inner store that fails, and what it is owed.
type outage struct {
	onEvent func(Event)
	// active is true while the store fails or is owed units: then its answers need a closer look.
	active atomic.Bool
	local  atomic.Int64 // requests decided without the store, in this outage
	// pinging is true while a request that had to be counted here pings the store.
	pinging atomic.Bool

	mu      sync.Mutex
	failing bool
	since   time.Time // the first failure
	last    time.Time // the last failure
	err     error     // the error of that

	owed        owed
	given, lost int64 // units in total
	reported    Event // how many of them were reported

	reconciling bool           // a goroutine or Close gives the store what it is owed
	answered    bool           // the store has answered in this reconciliation
	overtaking  bool           // takes no longer wait for the reconciliation
	pauseUntil  time.Time      // no reconciliation begins earlier, because the last one failed
	reconciler  sync.WaitGroup // the goroutine
	cancel      func()         // ends it early
	closed      bool
	closing     sync.Mutex // held by Close

	events    []Event // not yet reported
	notifying bool    // a goroutine reports them
}

// failure records that the store failed.
func (o *outage) failure(now time.Time, err error) {
	o.mu.Lock()
	o.last, o.err = now, err
	o.active.Store(true)
	if !o.failing {
		o.failing, o.since = true, now
		o.events = append(o.events, Event{Failing: true, Err: err})
	}
	o.mu.Unlock()
	o.notify()
}

// owe records that the store is owed the units of a take that was counted here. local is the time
// by this process's clock.
func (o *outage) owe(charges []weir.Charge, r *weir.Receipt, apart bool, local time.Time) {
	now := instant{time.Unix(r.Now, 0), local}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Ticket.Local {
		r.Ticket.Round = o.owed.rounds
	}
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Cost <= 0 || c.Held:
		case o.closed || !o.owed.add(c, r.Used[i], now):
			o.lost += c.Cost
		case apart:
			o.owed.setApart(c.Key)
		}
	}
	o.active.Store(true)
}

// forgive drops what the store is owed for windows that were reset.
func (o *outage) forgive(charges []weir.Charge) {
	if !o.active.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range charges {
		o.owed.drop(charges[i].Key)
	}
}

// owes reports whether the store has not received everything.
func (o *outage) owes() bool {
	if !o.active.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reconciling || o.owed.count() > 0
}

// owesWindow reports whether the store is owed units of one of these windows, or is receiving some
// just now. A window that has ended is no longer owed.
func (o *outage) owesWindow(charges []weir.Charge, now instant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.overtaking {
		return false
	}
	for i := range charges {
		if o.owed.has(charges[i].Key, now) {
			return true
		}
	}
	return false
}

// allowOvertaking lets takes ask the store although it is owed units of their windows, until the
// reconciliation ends.
func (o *outage) allowOvertaking() {
	o.mu.Lock()
	o.overtaking = true
	o.mu.Unlock()
}

// canReconcile reports whether a reconciliation can begin and would have something to give.
func (o *outage) canReconcile(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.reconciling && o.owed.due(now)
}

// settle ends the outage if the store has not failed for minCalm. The caller holds o.mu, and the
// store is owed nothing.
func (o *outage) settle(now time.Time) {
	if o.failing && now.Sub(o.last) >= minCalm {
		o.events = append(o.events, Event{
			For:   now.Sub(o.since),
			Local: o.local.Swap(0),
			Given: o.given - o.reported.Given,
			Lost:  o.lost - o.reported.Lost,
		})
		o.reported = Event{Given: o.given, Lost: o.lost}
		o.failing, o.since, o.err = false, time.Time{}, nil
	}
	o.active.Store(o.failing)
}

// notify reports the events in their order, one at a time. The observer runs without the lock.
func (o *outage) notify() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.notifying {
		return
	}
	o.notifying = true
	for len(o.events) > 0 {
		event := o.events[0]
		o.events = o.events[1:]
		if o.onEvent != nil {
			o.mu.Unlock()
			o.onEvent(event)
			o.mu.Lock()
		}
	}
	o.notifying = false
}
