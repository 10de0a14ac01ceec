package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlimit/weir"
)

// Slots that are given back are free at once for this process, although the server gets to know of
// it later (weir.SettleStarter): until it has answered, each take of the same slots gives them back
// too, in its own script. So a caller that has its whole answer finds its slot free, whichever of
// its next request and the command that gives the slot back the server runs first, and on which
// connection. Giving slots back twice does no harm: each take has members of its own.

// end moves the slots among the changes of a take to those that have ended: no renewal begins that
// has them. It returns them in the order of the changes, with nil for those that are not known, and
// nil if the take holds none.
func (h *held) end(slot uint64, changes []weir.Change) []*heldSlots {
	if slot == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*heldSlots, len(changes))
	for i := range changes {
		k := heldKey{slot, string(changes[i].Key)}
		s := h.all[k]
		if s == nil || !changes[i].Held {
			continue
		}
		delete(h.all, k)
		if s.renewing > 0 {
			s.answered = make(chan struct{})
		}
		h.ended[s.name] = append(h.ended[s.name], s)
		all[i] = s
	}
	return all
}

// endedUnder returns the slots under a name that have ended, and of which the server may not know
// it yet. It waits for the renewals that have them: one that came later would take them again.
func (h *held) endedUnder(ctx context.Context, name string) ([]*heldSlots, error) {
	for {
		all, renewal := h.endedNow(name)
		if renewal == nil {
			return all, nil
		}
		if err := renewalAnswered(ctx, renewal); err != nil {
			return nil, err
		}
	}
}

// endedNow returns the slots under a name that have ended. If renewals have some of them, it
// returns a channel that is closed when those of one of them are answered.
func (h *held) endedNow(name string) (all []*heldSlots, renewal chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all = slices.Clone(h.ended[name])
	for _, s := range all {
		if s.renewing > 0 {
			return nil, s.answered
		}
	}
	return all, nil
}

func renewalAnswered(ctx context.Context, renewal chan struct{}) error {
	select {
	case <-renewal:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a renewal of slots is not answered: %w", ctx.Err())
	}
}

// appendMembers appends the number of the slots' members, and their names.
func appendMembers(args []string, all []*heldSlots) []string {
	at := len(args)
	args = append(args, "0")
	for _, s := range all {
		args = append(args, slotMembers(s.take, s.cost)...)
	}
	if len(all) > 0 {
		args[at] = fmt.Sprint(len(args) - at - 1)
	}
	return args
}

// given records that the server has answered a command that gave slots back, or that none will be
// sent any more.
func (h *held) given(some ...*heldSlots) {
	if len(some) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range some {
		all := h.ended[s.name]
		i := slices.Index(all, s)
		switch {
		case i < 0: // by another command
		case len(all) == 1:
			delete(h.ended, s.name)
		default:
			h.ended[s.name] = slices.Delete(all, i, i+1)
		}
	}
}

// release waits for the renewals that have slots that have ended: one that came after they were
// given back would take them again. If ctx ends first, o gives them back after the renewals.
func (h *held) release(ctx context.Context, s *heldSlots, o func(*heldSlots) *order) error {
	h.mu.Lock()
	renewal, renewed := s.answered, s.renewing == 0
	h.mu.Unlock()
	if renewed {
		return nil
	}
	err := renewalAnswered(ctx, renewal)
	if err == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.renewing == 0 { // answered meanwhile
		return nil
	}
	s.after = o(s)
	return err
}

// names returns the names of slots.
func names(all []*heldSlots) (some []string) {
	for _, s := range all {
		if s != nil {
			some = append(some, s.name)
		}
	}
	return some
}

// order queues an order. If it cannot, nobody tries again to send it.
func (s *Store) order(o *order) error {
	err := s.settling.add(s, o)
	if err != nil {
		s.held.given(o.slots()...)
		s.finish(o)
	}
	return err
}

// giveBack makes d give slots back.
func (d *orderedChange) giveBack(h *heldSlots) {
	d.held, d.slots, d.name, d.id = true, h, h.name, h.id
}

// slots returns the slots that the order gives back.
func (o *order) slots() (all []*heldSlots) {
	for i := range o.changes {
		if d := &o.changes[i]; d.slots != nil {
			all = append(all, d.slots)
		}
	}
	return all
}
