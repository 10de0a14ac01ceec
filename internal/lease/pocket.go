// Package lease has the node's side of leases: units of a window that the store has charged, and
// that this process may give out without asking again. docs/adr/0040-leases.md is the protocol, and
// why it never admits more than the limit.
//
//	pocket.go  the units of one window
//	size.go    how many units a node asks for
//	clock.go   a clock that counts while the machine sleeps
package lease

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Window identifies the window that units were charged to. Units of different windows are never
// added up, and go back to no other window.
type Window struct {
	Reset      int64  // Unix seconds, by the store's clock
	Generation int64  // the mark of the last reset by an operator that the answer knew; 0: none
	Epoch      uint64 // which connection to the store charged them
}

// A Lot is units that one answer of the store has charged, and what the answer knew.
type Lot struct {
	Window   Window
	Units    int64         // charged, and not given out
	Count    int64         // the store's count after the answer, with Units
	Limit    int64         // under which they were charged
	Deadline time.Duration // when the units are dead, see Deadline
	Sent     time.Duration // when the question was sent: before it the clock was set back
	At       int64         // when the store charged the first of them, in Unix ms by its clock
}

// lives reports whether the units are not dead at now, by the clock of the deadlines.
func (l *Lot) lives(now time.Duration) bool { return now < l.Deadline && now >= l.Sent }

// A Pocket holds units of one key's window. The zero value is empty. It is safe for concurrent use,
// and spending does not allocate.
//
// A take of several windows spends of all or of none, and is shown the counts of all at one moment.
// It locks their pockets, calls Has, Last, Charged and Take, or Fill, Recount or Of, and unlocks
// them. All other methods lock by themselves.
type Pocket struct {
	mu    sync.Mutex
	lot   Lot
	last  time.Duration // when something was last taken or filled in
	given int64         // units that were taken, see Given
	units atomic.Int64  // lot.Units
}

// Lock locks the pocket.
func (p *Pocket) Lock() { p.mu.Lock() }

// Unlock unlocks it.
func (p *Pocket) Unlock() { p.mu.Unlock() }

// Fill adds, locked, the units of an answer to what the pocket has, and makes it know the answer's
// count.
// The store showed its time in the answer at seen. If the pocket has units of another window, Fill
// drops those: they stay spent at the store. It drops them too if the answer's count lacks them:
// the store has lost their window since, and this one only ends with it.
//
// A lot without units leaves the limit of those that the pocket has.
//
// Fill must be called once for each answer, in the order of the answers, and not for one that is
// older than an operator's reset of which the caller knows.
func (p *Pocket) Fill(l Lot, seen time.Duration) (f Filled) {
	old, granted := p.lot, l.Units
	f.Since = seen
	if old.Window == l.Window && l.Count >= l.Units+old.Units {
		// Each deadline is before the end of the window, so the later one is as well.
		l.Units += old.Units
		l.Deadline, l.At = max(l.Deadline, old.Deadline), min(l.At, old.At)
		if granted == 0 && old.Units > 0 {
			l.Limit = old.Limit
		}
		f.Since = max(p.last, seen)
	} else {
		f.Dropped = old.Units
	}
	p.set(l)
	p.last = f.Since
	f.Units = l.Units
	return f
}

// Filled is what Fill has done.
type Filled struct {
	Units   int64         // in the pocket now
	Dropped int64         // of another window, or of one that the store has lost
	Since   time.Duration // no take from the pocket has been at a later time
}

func (p *Pocket) set(l Lot) {
	p.lot = l
	p.units.Store(l.Units)
}

// drop empties the pocket and returns what was in it.
func (p *Pocket) drop() Lot {
	l := p.lot
	p.set(Lot{})
	p.given = 0
	return l
}

// Recount makes the pocket know, locked, the store's count of the window with a reset, after
// something else than an answer with a lot. It returns how many units the pocket has of that
// window. A count below them is that of a window that an operator has reset since: then it drops
// them.
func (p *Pocket) Recount(reset, count int64) (units, dropped int64) {
	switch {
	case p.lot.Window.Reset != reset:
		return 0, 0
	case count < p.lot.Units:
		return 0, p.drop().Units
	}
	p.lot.Count = count
	return p.lot.Units, 0
}

// Has reports, locked, whether the pocket can give out cost units at now, by the clock of the
// deadlines, to a request under a limit. It has none for a request under another limit than that
// under which they were charged, and none for a cost of 0 or less: the store answers these.
func (p *Pocket) Has(cost, limit int64, now time.Duration) bool {
	l := &p.lot
	// If requests have cost more than they reserved, the count can be above the limit.
	return cost > 0 && l.Units >= cost && l.Limit == limit && l.Count-l.Units+cost <= limit && l.lives(now)
}

// Limit returns the limit under which the units in the pocket were charged.
func (p *Pocket) Limit() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lot.Limit
}

// Last returns, locked, the later of now and the time of the last take from the pocket.
func (p *Pocket) Last(now time.Duration) time.Duration { return max(now, p.last) }

// Held returns, locked, the window of the units in the pocket.
func (p *Pocket) Held() Window { return p.lot.Window }

// Charged returns, locked, when the store charged the first of the units, and the mark of the last
// reset by an operator that was before it, both in Unix ms by its clock.
func (p *Pocket) Charged() (at, generation int64) { return p.lot.At, p.lot.Window.Generation }

// Take takes, locked, units that the pocket has, at a time that is not before Last. It returns what
// the answer knew that charged them. Its Count is what the window has spent, as this node knows it:
// with these units, and without what is still in the pocket.
func (p *Pocket) Take(cost int64, now time.Duration) Lot {
	p.last = now
	p.given += cost
	p.lot.Units -= cost
	p.units.Store(p.lot.Units)
	l, _ := p.Look(now)
	return l
}

// Given returns, locked, how many units were taken since it was last called, and since the pocket
// was last emptied.
func (p *Pocket) Given() (units int64) {
	units, p.given = p.given, 0
	return units
}

// Spend is Has and Take of one window. It returns the time of the take.
func (p *Pocket) Spend(cost, limit int64, now time.Duration) (l Lot, at time.Duration, ok bool) {
	p.mu.Lock()
	if ok = p.Has(cost, limit, now); ok {
		at = p.Last(now)
		l = p.Take(cost, at)
	}
	p.mu.Unlock()
	return l, at, ok
}

// Units is the number of units in the pocket, dead or not. It does not lock.
func (p *Pocket) Units() int64 { return p.units.Load() }

// Of returns, locked, the units in the pocket, dead or not, if they are of the window with a reset,
// and when something was last taken from them or filled in.
func (p *Pocket) Of(reset int64) (units int64, last time.Duration) {
	if p.lot.Window.Reset != reset {
		return 0, 0
	}
	return p.lot.Units, p.last
}

// Lasts returns the epoch of the units in the pocket, and until when they are not dead.
func (p *Pocket) Lasts() (epoch uint64, deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lot.Window.Epoch, p.lot.Deadline
}

// Look returns, locked, what Take would for no units, and reports whether there are any at now.
func (p *Pocket) Look(now time.Duration) (l Lot, ok bool) {
	l = p.lot
	l.Count -= l.Units
	return l, l.Units > 0 && l.lives(now)
}

// Drain empties the pocket and returns what was in it, dead or not. The caller may send the units
// back to the store, once.
func (p *Pocket) Drain() Lot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop()
}

// DrainOf is Drain of a pocket whose units are of a window; it changes no other.
func (p *Pocket) DrainOf(w Window) Lot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lot.Window != w {
		return Lot{}
	}
	return p.drop()
}

// Drift is how much slower than the store's clock this machine's may run: 1,000 parts per million.
const Drift = 1000

// Deadline returns when units are dead, by the clock of sent: the time at which the question was
// sent, before the store read its own clock. ttl is the rest of the window that the store answered.
// The window ends no earlier, if the clock of sent loses at most Drift and is a Clock.
func Deadline(sent, ttl time.Duration) time.Duration {
	guard := (ttl + 1e6/Drift - 1) / (1e6 / Drift) // rounded up
	const readings = 2 * ClockError                // of sent, and of the reading at the deadline
	return sent + ttl - guard - readings
}
