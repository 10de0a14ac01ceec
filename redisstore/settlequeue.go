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
	// maxSettleFlights bounds the batches that wait for the server. There is a second one only if
	// more waits than fits into the first.
	maxSettleFlights = 4
	// maxSettling bounds the changes that wait to be sent.
	maxSettling = 1 << 14
	// settleAgainDelay is the pause before an order is sent again whose windows are moving.
	settleAgainDelay = 10 * time.Millisecond
)

// A settling is the orders that wait to be sent.
type settling struct {
	mu      sync.Mutex
	closed  bool
	waiting []*order
	changes int // in waiting
	flights int
}

var errSettling = errors.New("too many settlements wait for the server")

// add queues an order. It is sent with others at once, or after an earlier batch was answered.
func (q *settling) add(s *Store, o *order) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case o.link == nil:
		return s.notConnected()
	case q.changes+len(o.changes) > maxSettling:
		return errSettling
	}
	q.push(s, o)
	return nil
}

// push queues an order, and sees that it is sent. q.mu is held.
func (q *settling) push(s *Store, o *order) {
	q.waiting = append(q.waiting, o)
	q.changes += len(o.changes)
	flights := maxSettleFlights
	if s.leases != nil {
		flights = 1 // pockets are told the counts in the server's order
	}
	if q.flights == 0 || q.flights < flights && q.changes > q.flights*maxSettleBatch {
		q.flights++
		s.done.Go(func() { s.settleWaiting() })
	}
}

// settleAgain queues an order again whose windows are moving to another machine. So it keeps none
// of the others of its batch waiting.
func (s *Store) settleAgain(o *order) {
	_ = wait.For(s.closing, settleAgainDelay) // if the store is closed, sending it fails
	s.settling.mu.Lock()
	defer s.settling.mu.Unlock()
	s.settling.push(s, o)
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
func (q *settling) next() (batch, dropped []*order) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, taken := 0, 0
	for _, o := range q.waiting {
		if n >= maxSettleBatch {
			break
		}
		taken++
		q.changes -= len(o.changes)
		if o.state == orderAbandoned && !o.holds() {
			dropped = append(dropped, o)
			continue
		}
		o.state = orderSent
		n += len(o.changes)
		batch = append(batch, o)
	}
	q.waiting = q.waiting[taken:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	if batch == nil {
		q.flights--
	}
	return batch, dropped
}

// close rejects further orders.
func (q *settling) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// settleWaiting sends batches until nothing waits.
func (s *Store) settleWaiting() {
	for {
		runtime.Gosched() // others that are about to settle share the command
		batch, dropped := s.settling.next()
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
