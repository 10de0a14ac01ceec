package redisstore

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
)

// Units that are given back are free at once for this process, although the server gets to know of
// it later (weir.SettleStarter): a take that the server refuses, but that would fit with them,
// waits until the settlements under way are answered, and asks again. That includes settlements
// that began, or even ended, while the take was on its way: the units of one may have gone to a
// caller whose own were about to come back. A refused take has spent nothing, so it can be
// repeated. Takes that are admitted wait for nothing. (Slots that are given back are sent with each
// take instead, see ended.go: a window's units cannot be, because it would count them twice.)

// pending are the settlements under way that give units back, by window. What a take asks of it
// costs the same however many there are: thousands of takes of one window may have thousands.
type pending struct {
	mu    sync.Mutex
	begun uint64 // orders so far: the number of the last
	all   map[id]*pendingWindow

	// given are all units that orders have given back since the start, by window. Windows share
	// places: a take may ask once more in vain for units of another window.
	given [givenPlaces]atomic.Int64
}

const givenPlaces = 1024

func (p *pending) givenTo(window id) *atomic.Int64 { return &p.given[window%givenPlaces] }

// A pendingWindow is one window's.
type pendingWindow struct {
	units  int64     // that all of the orders give back
	orders list.List // of *order, by number
}

// begin adds an order's units.
func (p *pending) begin(o *order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	o.number = p.begun
	for i := range o.changes {
		d := &o.changes[i]
		if !d.givesUnits() {
			continue
		}
		w := p.all[d.id]
		if w == nil {
			w = new(pendingWindow)
			p.all[d.id] = w
		}
		w.units -= d.units
		p.givenTo(d.id).Add(-d.units)
		d.pending = w.orders.PushBack(o)
	}
}

// end removes an order's units.
func (p *pending) end(o *order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range o.changes {
		d := &o.changes[i]
		if d.pending == nil {
			continue
		}
		w := p.all[d.id]
		w.units += d.units
		w.orders.Remove(d.pending)
		d.pending = nil
		if w.orders.Len() == 0 {
			delete(p.all, d.id)
		}
	}
}

// units returns the units that orders give back to a window.
func (p *pending) units(window id) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[window]; w != nil {
		return w.units
	}
	return 0
}

// last returns the number of the last order that has begun.
func (p *pending) last() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

// oldest returns the oldest order that gives units back to a window; nil if it has a number above
// last, or if there is none.
func (p *pending) oldest(window id, last uint64) *order {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.all[window]
	if w == nil {
		return nil
	}
	if o := w.orders.Front().Value.(*order); o.number <= last {
		return o
	}
	return nil
}

func (d *orderedChange) givesUnits() bool { return !d.held && d.units < 0 }

// begin makes takes know of what an order changes in windows.
func (s *Store) begin(o *order) {
	if o.link == nil { // it will not be sent
		return
	}
	o.begun = true
	s.pending.begin(o)
	for i := range o.changes {
		if d := &o.changes[i]; !d.held && d.units != 0 {
			s.memory.beginSettling(d.id)
		}
	}
}

// finish ends what begin has begun, and wakes those who wait for the order: its results are set, or
// it will not be sent. It must be called once.
func (s *Store) finish(o *order) {
	for i := range o.changes {
		if d := &o.changes[i]; o.begun && !d.held && d.units != 0 {
			s.memory.endSettling(d.id)
		}
	}
	if o.begun {
		s.pending.end(o)
	}
	if o.leave != nil {
		o.leave()
	}
	close(o.done)
}

// maxTries bounds how often a take is sent: what comes back may go to others again and again.
const maxTries = 32

// A coming is what had come back to the windows of a take when it began, and what was about to.
type coming struct {
	units [weir.MaxCharges]int64 // that settlements under way give back, by charge
	given [weir.MaxCharges]int64 // pending.given
}

// coming returns what is about to come back to the windows of a take.
func (s *Store) coming(charges []weir.Charge, hashes []hash) (all coming) {
	for i := range charges {
		if charges[i].Held {
			continue
		}
		window := hashes[i].id()
		// first: what begins now may count twice, but not never
		all.given[i] = s.pending.givenTo(window).Load()
		if s.memory.isSettling(window) {
			all.units[i] = s.pending.units(window)
		}
	}
	return all
}

// await waits for all that is coming, and reports whether the take that was refused with r may
// succeed now. It returns false if ctx ends first.
func (all *coming) await(ctx context.Context, p *pending, charges []weir.Charge, hashes []hash, r *weir.Receipt) bool {
	var back [weir.MaxCharges]int64
	some := false
	for i := range charges {
		used := r.Used[i]
		if !charges[i].Held {
			back[i] = all.units[i] + p.givenTo(hashes[i].id()).Load() - all.given[i]
		}
		if used.Count -= back[i]; !used.Fits(charges[i].Cost, charges[i].Limit) {
			return false
		}
		some = some || back[i] > 0
	}
	if !some {
		return false
	}
	last := p.last()
	for i := range charges {
		if back[i] > 0 && !p.await(ctx, hashes[i].id(), last) {
			return false
		}
	}
	return true
}

// await waits for the orders that give units back to a window, up to the one numbered last. It
// returns false if ctx ends first.
func (p *pending) await(ctx context.Context, window id, last uint64) bool {
	for {
		o := p.oldest(window, last)
		if o == nil {
			return true
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return false
		}
	}
}
