package redisstore

import (
	"container/list"
	"context"
	"sync"

	"github.com/weirlimit/weir"
)

// Units that are given back are free at once for this process, although the server gets to know of
// it later (weir.SettleStarter): a take that the server refuses, but that would fit with them,
// waits until the settlements under way are answered, and asks again. A refused take has spent
// nothing, so it can be repeated. Other takes look at nothing of this. (Slots that are given back
// are sent with each take instead, see ended.go: a window's units cannot be, because it would count
// them twice.)

// pending are the settlements under way that give units back, by window. What a take asks of it
// costs the same however many there are: thousands of takes of one window may have thousands.
type pending struct {
	mu    sync.Mutex
	begun uint64 // orders so far: the number of the last
	all   map[id]*pendingWindow
}

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

// units returns the units that orders give back to a window, and the number of the last order that
// has begun.
func (p *pending) units(window id) (units int64, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.all[window]; w != nil {
		units = w.units
	}
	return units, p.begun
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
	close(o.done)
}

// maxTries bounds how often a take is sent: what comes back may go to others again and again.
const maxTries = 32

// A coming is what settlements under way when a take began give back to its windows. The zero value
// is nothing, as it usually is.
type coming struct {
	units [weir.MaxCharges]int64  // by charge
	last  [weir.MaxCharges]uint64 // the orders with these units are numbered up to this
}

// coming returns what is about to come back to the windows of a take.
func (s *Store) coming(charges []weir.Charge, hashes []hash) (all coming) {
	for i := range charges {
		if window := hashes[i].id(); !charges[i].Held && s.memory.isSettling(window) {
			all.units[i], all.last[i] = s.pending.units(window)
		}
	}
	return all
}

// await waits for all that is coming, and reports whether the take that was refused with r may
// succeed now. It returns false if ctx ends first.
func (all *coming) await(ctx context.Context, p *pending, charges []weir.Charge, hashes []hash, r *weir.Receipt) bool {
	some := false
	for i := range charges {
		used := r.Used[i]
		if used.Count -= all.units[i]; !used.Fits(charges[i].Cost, charges[i].Limit) {
			return false
		}
		some = some || all.units[i] > 0
	}
	if !some {
		return false
	}
	for i := range charges {
		if all.units[i] > 0 && !p.await(ctx, hashes[i].id(), all.last[i]) {
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
