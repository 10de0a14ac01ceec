package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// An epoch ends whenever a server may have taken the place of the one that has counted: with each
// connection, new or ended, and when counters were lost. A server that was restarted, or a promoted
// replica, may have lost a take. To give back what it does not count would admit more than the
// limit, so a take is only settled in its own epoch.
//
// On a cluster each machine has its own epochs: those of the slots that it owns.
//
// Units that were charged before a connection ended are another matter: while no server has
// answered since, none has taken the place of the one that charged them (outlives).
type epoch struct {
	n        atomic.Uint64 // ends and answers so far
	ended    last          // the last end
	answered last          // the last time that another server may have answered

	mu    sync.Mutex  // held to change any of it
	slots *slotOwners // nil: this is no cluster, or its slots are not known; guarded by mu
}

// A last is the number of the last of some events: for every window, and on a cluster also for the
// windows of each slot.
type last struct {
	all   atomic.Uint64
	slots atomic.Pointer[[slotCount]atomic.Uint64] // nil: no slot is told from the others
}

// isBefore reports whether the last event was before an epoch. slot is that of the windows, on a
// cluster.
func (l *last) isBefore(of uint64, slot int) bool {
	if of <= l.all.Load() {
		return false
	}
	slots := l.slots.Load()
	return slots == nil || slot < 0 || of > slots[slot].Load()
}

// now returns the epoch of a take. It must be read before the connection is chosen.
func (e *epoch) now() uint64 { return e.n.Load() + 1 }

// lasts reports whether the epoch of a take has not ended. slot is that of its windows, on a
// cluster.
func (e *epoch) lasts(of uint64, slot int) bool { return e.ended.isBefore(of, slot) }

// outlives reports whether no other server can have answered since the epoch of a take, although
// that may have ended.
func (e *epoch) outlives(of uint64, slot int) bool { return e.answered.isBefore(of, slot) }

// end ends the epoch of every take. No other server is known to have answered.
func (e *epoch) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended.all.Store(e.n.Add(1))
}

// replace ends the epoch of every take, because a server has answered that may be another.
func (e *epoch) replace() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replaceAll()
}

func (e *epoch) replaceAll() {
	n := e.n.Add(1)
	e.ended.all.Store(n)
	e.answered.all.Store(n)
}

// endOf ends the epoch of the takes that a machine may have counted, by its address. That is every
// take, unless the address is known.
func (e *epoch) endOf(address string) { e.note(&e.ended, address) }

// answers records that a server at an address has answered on a new connection: it may be another
// than the one that has counted takes so far. It ends no epoch.
func (e *epoch) answers(address string) { e.note(&e.answered, address) }

// note makes this the last event of a machine, or of all if its address is not known.
func (e *epoch) note(l *last, address string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, slots := e.n.Add(1), e.slots
	if slots == nil || !slots.known[address] {
		l.all.Store(n)
		return
	}
	for i := range slots.owner {
		if slots.owner[i] == address {
			l.slots.Load()[i].Store(n)
		}
	}
}

// learn records who owns each slot of a cluster now. The epoch of a slot that has another owner
// ends: takes may have been counted by either. It reports whether there is one. It keeps now.
func (e *epoch) learn(now *slotOwners) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slots := e.slots
	if slots == nil {
		e.replaceAll()
		e.ended.slots.Store(new([slotCount]atomic.Uint64))
		e.answered.slots.Store(new([slotCount]atomic.Uint64))
		e.slots = now
		return false
	}
	slots.known = now.known
	if slots.owner == now.owner {
		return false
	}
	n := e.n.Add(1)
	for i := range now.owner {
		if slots.owner[i] != now.owner[i] {
			slots.owner[i] = now.owner[i]
			e.ended.slots.Load()[i].Store(n)
			e.answered.slots.Load()[i].Store(n)
		}
	}
	return true
}

// slotsOf returns the slots that a machine of a cluster owns.
func (e *epoch) slotsOf(address string) slotSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slots == nil {
		return nil
	}
	return e.slots.of(address)
}

// ownerOf returns the address of the machine that owns a slot of a cluster, "" if it is not known.
func (e *epoch) ownerOf(slot int) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slots == nil || slot < 0 {
		return ""
	}
	return e.slots.owner[slot]
}

// slotCount is the number of slots of a cluster.
const slotCount = 1 << 14

// slotOwners are the owners of a cluster's slots.
type slotOwners struct {
	owner [slotCount]string // the address of its master, "" if it has none
	known map[string]bool   // the addresses of all machines, also of replicas
}

// of returns the slots that a machine owns.
func (o *slotOwners) of(address string) slotSet {
	all := make(slotSet)
	for i := range o.owner {
		if o.owner[i] == address {
			all[i] = true
		}
	}
	return all
}

var errEpoch = errors.New("the server may have lost the take: what it has spent stays spent")

// An epochContext is done with its Context, and its Err is not nil once the epoch of one of some
// takes has ended. The client looks at Err when it has a connection, before it sends, so nothing of
// an earlier epoch is sent on a new connection.
type epochContext struct {
	context.Context
	epoch *epoch
	takes []neededEpoch
}

// A neededEpoch is the epoch of takes in one slot.
type neededEpoch struct {
	of   uint64
	slot int
}

// need adds the takes of a part.
func (c *epochContext) need(p *settlePart, l *link) {
	for i, d := range p.changes {
		n := neededEpoch{p.orders[i].epoch, slotIn(l, d.name)}
		if len(c.takes) == 0 || c.takes[len(c.takes)-1] != n {
			c.takes = append(c.takes, n)
		}
	}
}

func (c epochContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	for _, t := range c.takes {
		if !c.epoch.lasts(t.of, t.slot) {
			return errEpoch
		}
	}
	return nil
}

// A watchedConn ends the epoch of its machine when the connection ends, on whichever side.
type watchedConn struct {
	net.Conn
	epoch   *epoch
	live    *connections
	address string
	began   int64 // by this process's clock
	ended   atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.ended.Swap(true) {
		c.epoch.endOf(c.address)
		c.live.end(c)
	}
	return n, err
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.live.end(c)
	return c.Conn.Close()
}
