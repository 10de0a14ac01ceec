package redisstore

import (
	"context"
	"slices"
	"sync"

	"github.com/weirlimit/weir"
)

// Units that are given back are free at once for this process, although the server gets to know of
// it later (weir.SettleStarter): a take that the server refuses, but that would fit with them,
// waits until the settlements under way are answered, and asks again. A refused take has spent
// nothing, so it can be repeated. Other takes look at nothing of this. (Slots that are given back
// are sent with each take instead, see ended.go: a window's units cannot be, because it would count
// them twice.)

// pending are the settlements under way that give units back, by window.
type pending struct {
	mu  sync.Mutex
	all map[id][]pendingUnits
}

// pendingUnits are the units of one window that an order gives back.
type pendingUnits struct {
	order *order
	units int64
}

// begin adds an order's units.
func (p *pending) begin(o *order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range o.changes {
		if d := &o.changes[i]; d.givesUnits() {
			p.all[d.id] = append(p.all[d.id], pendingUnits{o, -d.units})
		}
	}
}

// end removes an order's units.
func (p *pending) end(o *order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range o.changes {
		d := &o.changes[i]
		if !d.givesUnits() {
			continue
		}
		left := slices.DeleteFunc(p.all[d.id], func(u pendingUnits) bool { return u.order == o })
		if p.all[d.id] = left; len(left) == 0 {
			delete(p.all, d.id)
		}
	}
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

// A coming is what settlements under way when a take began give back to its windows.
type coming struct {
	units  [weir.MaxCharges]int64 // by charge
	orders []*order
}

// coming returns what is about to come back to the windows of a take; nil if that is nothing, as it
// usually is.
func (s *Store) coming(charges []weir.Charge, hashes []hash) (all *coming) {
	for i := range charges {
		if window := hashes[i].id(); !charges[i].Held && s.memory.isSettling(window) {
			all = s.pending.add(all, i, window)
		}
	}
	return all
}

// add adds to all what is about to come back to the window of a charge.
func (p *pending) add(all *coming, charge int, window id) *coming {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.all[window] {
		if all == nil {
			all = new(coming)
		}
		all.units[charge] += u.units
		all.orders = append(all.orders, u.order)
	}
	return all
}

// await waits for all that is coming, and reports whether the take that was refused with r may
// succeed now. It returns false if ctx ends first.
func (all *coming) await(ctx context.Context, charges []weir.Charge, r *weir.Receipt) bool {
	if all == nil {
		return false
	}
	for i := range charges {
		used := r.Used[i]
		if used.Count -= all.units[i]; !used.Fits(charges[i].Cost, charges[i].Limit) {
			return false
		}
	}
	for _, o := range all.orders {
		select {
		case <-o.done:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
