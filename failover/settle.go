package failover

import (
	"context"

	"github.com/weirlimit/weir"
)

// Settle settles a take in the store that counted it.
//
// A take that the fallback counted is settled there, and changes what the inner store is owed. If
// the inner store may have received its units already, they stay spent there (Change.Lost): giving
// them back could be a second time. A take that the inner store counted is settled there, within
// the deadline. While the circuit breaker is open that is not tried: its units stay spent.
func (s *Store) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	if t.Local {
		s.slots.end(changes, inFallback)
	} else {
		s.slots.end(changes, inInner)
	}
	switch {
	case t.Local && s.localSettler != nil:
		return s.settleLocally(ctx, t, changes)
	case t.Local || s.settler == nil:
		lose(changes)
		return nil
	case s.breaker.notClosed.Load():
		return s.endSlots(ctx, t, changes)
	}
	return s.settler.Settle(s.deadlines.context(ctx), t, changes)
}

// lose marks changes that are not tried.
func lose(changes []weir.Change) {
	for i := range changes {
		c := &changes[i]
		c.Done, c.Used, c.Lost = false, weir.Used{}, c.Units != 0
	}
}

// endSlots is Settle while the breaker is open. The inner store has to know of slots, though it
// does not answer: it must not hold them any longer.
func (s *Store) endSlots(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	lose(changes)
	for i := range changes {
		if changes[i].Held {
			if err := s.settler.Settle(s.deadlines.context(ctx), t, changes[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) settleLocally(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	own := *t
	own.Local, own.Round = false, 0
	err := s.localSettler.Settle(ctx, &own, changes)
	if s.shared != nil {
		s.outage.settleOwed(changes, t.Round, s.now())
	}
	return err
}

// settleOwed changes what the store is owed by what was settled in the fallback.
func (o *outage) settleOwed(changes []weir.Change, round uint64, now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if c.Held || !c.Done || c.Units == 0 || o.owed.settle(c, round, now) {
			continue
		}
		// the store has the units of the take, or will never have them
		if c.Units > 0 && !o.closed && o.owed.add(more(c), c.Used, now) {
			o.active.Store(true)
			continue
		}
		if c.Units > 0 {
			o.lost += c.Units
		}
		c.Done, c.Used, c.Lost = false, weir.Used{}, true
	}
}

// more returns a charge of the units by which a take was exceeded.
func more(c *weir.Change) *weir.Charge {
	charge := c.Charge
	charge.Cost = c.Units
	return &charge
}

func holds(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Held {
			return true
		}
	}
	return false
}
