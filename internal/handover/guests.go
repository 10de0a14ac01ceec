package handover

import (
	"context"
	"errors"
	"os"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A guest is a process that had the counts before this one, and asks it now.
type guest struct {
	link *link
	held map[uint64]int64 // the slots that it holds, while it is not served

	ended chan struct{} // closed when it is not served any more
	gone  bool          // it has left; valid once ended is closed
}

// admit serves guests from the counts in this process. The caller has locked c.mu.
func (c *Counts) admit(guests []*guest) {
	store := c.place.Load().local
	for _, g := range guests {
		g.ended = make(chan struct{})
		_ = g.link.unbound() // before any interrupt; serve notices a link that fails
		c.guests = append(c.guests, g)
		go func() {
			defer close(g.ended)
			g.serve(store)
		}()
	}
}

// dismiss serves no guest any more, and returns those that have not left. Each is between two
// questions. The caller has locked c.mu.
func (c *Counts) dismiss() (staying []*guest) {
	for _, g := range c.guests {
		g.link.interrupt()
	}
	for _, g := range c.guests {
		<-g.ended
		if !g.gone {
			staying = append(staying, g)
		}
	}
	c.guests = nil
	return staying
}

// serve answers the guest's questions until it leaves or is interrupted.
func (g *guest) serve(store *memstore.Store) {
	counted := store.Guest(g.held)
	g.held = nil
	var err error
	for err == nil {
		var q question
		if err = g.link.receive(&q); err == nil {
			err = g.link.send(answerTo(store, counted, &q))
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		g.held = counted.Held()
		return
	}
	g.gone = true
	counted.Leave()
	g.link.close()
}

// answerTo answers one question of a guest.
func answerTo(store *memstore.Store, counted *memstore.Guest, q *question) *answer {
	a := new(answer)
	var err error
	switch q.Op {
	case opTake:
		a.Receipt = new(weir.Receipt)
		err = counted.Take(q.Charges, a.Receipt)
	case opSettle:
		if q.Ticket == nil {
			err = errors.New("a settlement without a ticket")
			break
		}
		err = counted.Settle(q.Ticket, q.Changes)
		a.Changes = q.Changes
	case opReset:
		err = store.Reset(context.Background(), q.Charges)
	case opGrant:
		err = store.Grant(context.Background(), q.Charges, q.Grants)
	default:
		err = errors.New("a question that is unknown: " + string(q.Op))
	}
	if err != nil {
		return &answer{Error: err.Error(), Shared: errors.Is(err, memstore.ErrShared)}
	}
	return a
}
