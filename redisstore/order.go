package redisstore

import (
	"container/list"
	"context"
	"time"

	"github.com/weirlimit/weir"
)

// An order is the changes of one Settle.
type order struct {
	link    *link
	epoch   uint64 // of its take
	at      int64  // when its take was counted, in Unix ms of the server
	number  uint64 // Store.begin numbers orders upwards
	changes []orderedChange
	begun   bool          // Store.begin was called
	leave   func()        // of leases.settling; nil: pockets are not told the counts
	tells   bool          // pockets have units of its windows, and are told the counts
	done    chan struct{} // closed when err and the results are set, or when it will not be sent
	err     error
	again   bool       // it is to be sent again: its windows were moving
	waits   time.Time  // since when they are
	tries   int        // how often it was sent again
	state   orderState // guarded by settling.mu
}

type orderState uint8

const (
	orderWaits orderState = iota
	orderSent             // results may be written any time
	orderAbandoned
)

// An orderedChange is one change, of a window or of slots.
type orderedChange struct {
	name         string
	hash         hash // of a window
	id           id
	reset, units int64
	per          int64         // Charge.Per
	end          int64         // Charge.End of now
	pending      *list.Element // its place in pendingWindow.orders; nil: none

	held  bool
	slots *heldSlots // nil: they are not known, or not given back yet

	done, lost bool
	count      int64
}

// holds reports whether the order gives slots back.
func (o *order) holds() bool {
	for i := range o.changes {
		if o.changes[i].slots != nil {
			return true
		}
	}
	return false
}

// newOrder returns the order of a Settle, with the changes of its windows.
func (s *Store) newOrder(t *weir.Ticket, changes []weir.Change) *order {
	o := &order{link: s.link.Load(), epoch: t.Epoch, at: t.At, done: make(chan struct{}), changes: make([]orderedChange, len(changes))}
	now := s.Now().Unix()
	for i := range changes {
		c, d := &changes[i], &o.changes[i]
		d.held, d.reset, d.units = c.Held, c.Reset, c.Units
		if o.link != nil && !c.Held {
			x := o.link.hasher.hash(&c.Charge)
			d.name, d.hash, d.id, d.per, d.end = o.link.hasher.name(&c.Charge, x), x, x.id(), c.Per, c.End(now)
		}
	}
	return o
}

// giveEnded adds to an order the slots among its changes that have ended.
func (s *Store) giveEnded(ctx context.Context, o *order, changes []weir.Change, ended []*heldSlots) {
	if ended == nil {
		return
	}
	if s.renewalOverdue() {
		// what else the caller holds counts; if it fails, giving them back will tell
		_ = s.renewOverdue(ctx, names(ended))
	}
	for i := range changes {
		d := &o.changes[i]
		if ended[i] == nil { // a window, or slots that are not known
			continue
		}
		if err := s.held.release(ctx, ended[i], s.newEnd); err != nil {
			o.err, d.lost = err, true
			continue
		}
		d.giveBack(ended[i])
	}
}

// newEnd returns an order that nobody waits for: it gives the slots of one charge back.
func (s *Store) newEnd(h *heldSlots) *order {
	o := &order{link: s.link.Load(), done: make(chan struct{}), changes: make([]orderedChange, 1)}
	o.changes[0].giveBack(h)
	return o
}
