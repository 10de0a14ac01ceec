// Package lease has the node's side of leases: units of a window that the store has charged, and
// that this process may give out without asking again. docs/adr/0040-leases.md is the protocol, and
// why it never admits more than the limit.
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
	Generation uint64 // how many resets by operators the answer knew
	Epoch      uint64 // which master of the store charged them
}

// A Pocket holds units of one key's window. The zero value is empty. It is safe for concurrent use,
// and Spend neither blocks nor allocates.
type Pocket struct {
	held atomic.Pointer[held]
	mu   sync.Mutex // held while held is replaced
}

// held has the units of one window. A unit leaves units exactly once: to be spent, or to go back.
type held struct {
	window   Window
	deadline atomic.Int64
	units    atomic.Int64
}

// Fill adds units that the store has charged. They are dead at deadline, see Deadline. If the
// pocket has units of an earlier window, Fill drops those: they stay spent at the store.
//
// Fill must be called once for each answer of the store, and not for one that is older than an
// operator's reset of which the caller knows. Units of 0 or less change nothing.
func (p *Pocket) Fill(w Window, units int64, deadline time.Duration) {
	if units <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.held.Load(); h != nil && h.window == w {
		// Each deadline is before the end of the window, so the later one is as well.
		h.deadline.Store(max(h.deadline.Load(), int64(deadline)))
		h.units.Add(units)
		return
	}
	h := &held{window: w}
	h.deadline.Store(int64(deadline))
	h.units.Store(units)
	p.held.Store(h)
}

// Spend takes cost units at now, by the clock of the deadlines, and reports whether the pocket had
// them. If it did not, nothing was spent. A cost of 0 or less is never in a pocket: the store
// answers it.
func (p *Pocket) Spend(cost int64, now time.Duration) bool {
	h := p.held.Load()
	if cost <= 0 || h == nil || int64(now) >= h.deadline.Load() {
		return false
	}
	for { // not Add and undo: Drain must never see units that are not there
		units := h.units.Load()
		if units < cost {
			return false
		}
		if h.units.CompareAndSwap(units, units-cost) {
			return true
		}
	}
}

// Units is the number of units that Spend would find at now.
func (p *Pocket) Units(now time.Duration) int64 {
	h := p.held.Load()
	if h == nil || int64(now) >= h.deadline.Load() {
		return 0
	}
	return h.units.Load()
}

// Drain empties the pocket and returns what was in it, dead or not. From then on Spend finds none
// of these units. The caller may send them back to the store, once.
func (p *Pocket) Drain() (w Window, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held.Swap(nil)
	if h == nil {
		return Window{}, 0
	}
	return h.window, h.units.Swap(0)
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
