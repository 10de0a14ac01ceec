package failover

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
)

// slots are those that requests of this process hold, in the inner store and in the fallback. The
// two stores do not know of each other's, so each is asked with the limit that the other leaves.
// Together they never hold more than the limit here.
type slots struct {
	mu sync.Mutex
	of map[string]split // by the key of the charge
}

// A split is how many slots each store holds.
type split struct{ inner, local int64 }

// A where names one of the two stores.
type where uint8

const (
	inInner where = iota
	inFallback
)

// elsewhere returns how many slots of a charge the other store holds for this process. The caller
// holds s.mu.
func (s *slots) elsewhere(c *weir.Charge, at where) int64 {
	held := s.of[string(c.Key)]
	if at == inInner {
		return held.local
	}
	return held.inner
}

// add records slots that a store has taken, or with a negative cost given back. The caller holds
// s.mu.
func (s *slots) add(c *weir.Charge, at where, cost int64) {
	held := s.of[string(c.Key)]
	if at == inInner {
		held.inner = max(held.inner+cost, 0)
	} else {
		held.local = max(held.local+cost, 0)
	}
	if held == (split{}) {
		delete(s.of, string(c.Key))
		return
	}
	if s.of == nil {
		s.of = make(map[string]split)
	}
	s.of[string(c.Key)] = held
}

// left returns the charges with the limits that the other store leaves. The caller holds s.mu.
func (s *slots) left(charges []weir.Charge, at where, buf *[weir.MaxCharges]weir.Charge) []weir.Charge {
	reduced := append(buf[:0], charges...)
	for i := range reduced {
		if c := &reduced[i]; c.Held {
			c.Limit -= s.elsewhere(c, at)
		}
	}
	return reduced
}

// note records the slots of an allowed take, and adds those of the other store to every count. It
// reports whether all of them are within the limit: the other store may have taken some meanwhile.
// If not, it records nothing. The caller holds s.mu.
func (s *slots) note(charges []weir.Charge, r *weir.Receipt, at where) (fits bool) {
	fits = true
	for i := range charges {
		if c := &charges[i]; c.Held {
			others := s.elsewhere(c, at)
			held := s.of[string(c.Key)]
			fits = fits && (!r.Allowed || c.Cost == 0 || held.inner+held.local+c.Cost <= c.Limit)
			r.Used[i].Count += others
		}
	}
	for i := range charges {
		if c := &charges[i]; c.Held && fits && r.Allowed && r.Ticket != (weir.Ticket{}) {
			s.add(c, at, c.Cost)
		}
	}
	return fits
}

// end records that the slots among the changes are given back.
func (s *slots) end(changes []weir.Change, at where) {
	for i := range changes {
		if c := &changes[i]; c.Held {
			s.mu.Lock()
			s.add(&c.Charge, at, -c.Cost)
			s.mu.Unlock()
		}
	}
}

// takeInner takes from the inner store. If the fallback has taken the slots meanwhile, it gives the
// take back and refuses.
func (s *Store) takeInner(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if !holds(charges) {
		return s.inner.Take(ctx, charges, r)
	}
	var buf [weir.MaxCharges]weir.Charge
	s.slots.mu.Lock()
	reduced := s.slots.left(charges, inInner, &buf)
	s.slots.mu.Unlock()
	if err := s.inner.Take(ctx, reduced, r); err != nil {
		return err
	}
	s.slots.mu.Lock()
	fits := s.slots.note(charges, r, inInner)
	s.slots.mu.Unlock()
	if !fits {
		s.takeBack(ctx, charges, r)
	}
	return nil
}

// takeBack makes an allowed take a refusal. Units that cannot be given back stay spent.
func (s *Store) takeBack(ctx context.Context, charges []weir.Charge, r *weir.Receipt) {
	ticket := r.Ticket
	r.Allowed, r.Ticket = false, weir.Ticket{}
	if s.settler == nil {
		return
	}
	changes := make([]weir.Change, 0, len(charges))
	for i := range charges {
		if c := &charges[i]; c.Cost > 0 {
			changes = append(changes, weir.Change{Charge: *c, Reset: r.Used[i].Reset, Units: -c.Cost})
			if c.Held {
				r.Used[i].Count -= c.Cost
			}
		}
	}
	_ = s.settler.Settle(ctx, &ticket, changes) // if it fails, they stay spent
}

// takeLocally takes from the fallback.
func (s *Store) takeLocally(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if !holds(charges) {
		return s.fallback.Take(ctx, charges, r)
	}
	var buf [weir.MaxCharges]weir.Charge
	s.slots.mu.Lock() // the fallback does not wait
	defer s.slots.mu.Unlock()
	if err := s.fallback.Take(ctx, s.slots.left(charges, inFallback, &buf), r); err != nil {
		return err
	}
	s.slots.note(charges, r, inFallback)
	return nil
}
