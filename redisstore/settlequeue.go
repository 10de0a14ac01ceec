package redisstore

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/wait"
)

const (
	// maxSettleBatch is about how many changes are sent to the server together.
	maxSettleBatch = 256
	// maxSettleFlights bounds the batches that wait for a machine. There is a second one only if
	// more waits than fits into the first, and none of orders that tell pockets the counts: these
	// are told in the order in which the server has counted.
	maxSettleFlights = 4
	// maxSettling bounds the changes that wait to be sent to a machine.
	maxSettling = 1 << 14
	// settleAgainDelay is the first pause before an order is sent again whose windows are moving.
	// Each further one is twice as long, so often at most.
	settleAgainDelay   = 10 * time.Millisecond
	maxSettleDoublings = 4
)

// A settling is the orders that wait to be sent, by machine: of a cluster one that does not answer
// keeps none waiting for the others.
type settling struct {
	mu     sync.Mutex
	closed bool
	queues map[settlesAt]*settleQueue
}

// A settlesAt is where orders are sent: the address of a machine, "" for the only one or one that
// is not known, and whether they tell pockets the counts.
type settlesAt struct {
	machine string
	tells   bool
}

// A settleQueue is the orders that wait to be sent to one machine. As long as a pocket has units of
// a window, and its slot stays where it is, the window's orders are sent in one queue.
type settleQueue struct {
	at      settlesAt
	waiting []*order
	changes int // in waiting
	flights int
}

var errSettling = errors.New("too many settlements wait for the server")

// add queues an order. It is sent with others at once, or after an earlier batch was answered.
func (q *settling) add(s *Store, o *order) error {
	at := s.settlesAt(o)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch m := q.queues[at]; {
	case q.closed:
		return ErrClosed
	case o.link == nil:
		return s.notConnected()
	case m != nil && m.changes+len(o.changes) > maxSettling:
		return errSettling
	}
	q.push(s, at, o)
	return nil
}

// push queues an order, and sees that it is sent. q.mu is held.
func (q *settling) push(s *Store, at settlesAt, o *order) {
	m := q.queues[at]
	if m == nil {
		m = &settleQueue{at: at}
		q.queues[at] = m
	}
	m.waiting = append(m.waiting, o)
	m.changes += len(o.changes)
	flights := maxSettleFlights
	if at.tells {
		flights = 1
	}
	if m.flights == 0 || m.flights < flights && m.changes > m.flights*maxSettleBatch {
		m.flights++
		s.done.Go(func() { s.settleWaiting(m) })
	}
}

func (s *Store) settlesAt(o *order) settlesAt { return settlesAt{s.machineOf(o), o.tells} }

// machineOf returns the address of the machine that has the windows of an order, "" if there is
// only one or it is not known. On a cluster all are in one slot.
func (s *Store) machineOf(o *order) string {
	if o.link == nil || !o.link.cluster {
		return ""
	}
	for i := range o.changes {
		if name := o.changes[i].name; name != "" {
			return s.epoch.ownerOf(slotIn(o.link, name))
		}
	}
	return ""
}

// settleAgain queues an order again whose windows are moving to another machine. So it keeps none
// of the others of its batch waiting.
func (s *Store) settleAgain(o *order) {
	// if the store is closed, sending it fails
	_ = wait.For(s.closing, settleAgainDelay<<min(o.tries, maxSettleDoublings))
	o.tries++
	o.again = false
	at := s.settlesAt(o)
	s.settling.mu.Lock()
	defer s.settling.mu.Unlock()
	s.settling.push(s, at, o)
}

// maySendAgain reports whether an order whose windows are moving may be sent again.
func (o *order) maySendAgain() bool {
	if o.waits.IsZero() {
		o.waits = time.Now()
	}
	return time.Since(o.waits) < settleTimeout
}

// abandon reports whether the caller of an order can go on without its results: they are not there.
func (q *settling) abandon(o *order) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-o.done:
		return false
	default:
	}
	if o.state == orderWaits {
		o.state = orderAbandoned
	}
	return true
}

// next removes a batch of orders, and those before it that nobody waits for any more. If there is
// no batch, it ends the flight.
func (q *settling) next(m *settleQueue) (batch, dropped []*order) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, taken := 0, 0
	for _, o := range m.waiting {
		if n >= maxSettleBatch {
			break
		}
		taken++
		m.changes -= len(o.changes)
		if o.state == orderAbandoned && !o.holds() {
			dropped = append(dropped, o)
			continue
		}
		o.state = orderSent
		n += len(o.changes)
		batch = append(batch, o)
	}
	m.waiting = m.waiting[taken:]
	if len(m.waiting) == 0 {
		m.waiting = nil
	}
	if batch == nil {
		if m.flights--; m.flights == 0 {
			delete(q.queues, m.at)
		}
	}
	return batch, dropped
}

// close rejects further orders.
func (q *settling) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// settleWaiting sends batches to a machine until nothing waits.
func (s *Store) settleWaiting(m *settleQueue) {
	for {
		runtime.Gosched() // others that are about to settle share the command
		batch, dropped := s.settling.next(m)
		for _, o := range dropped {
			s.finish(o)
		}
		if batch == nil {
			return
		}
		for len(batch) > 0 {
			n := 1
			for n < len(batch) && batch[n].link == batch[0].link {
				n++
			}
			s.settleBatch(batch[0].link, batch[:n])
			batch = batch[n:]
		}
	}
}
