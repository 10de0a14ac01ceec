package memstore

import (
	"context"
	"runtime"

	"github.com/weirlimit/weir"
)

var _ weir.Settler = (*Store)(nil)

// ticket returns the ticket of a take that begins now. It is made before anything is counted, so
// whatever voids the take's window later is later than the ticket too. Take sets Slot to the hash
// of the window if it charges a single one.
func (s *Store) ticket() weir.Ticket {
	return weir.Ticket{At: s.clock.setBacks(), Epoch: s.resets.epoch()}
}

// unsure is the Ticket.At of a take that cannot be settled. It is no result of setBacks.
const unsure = -1

// Settle implements weir.Settler. It changes each window on its own. It never waits, so it ignores
// ctx. The only error is ErrClosed: then the changes that were not made are Lost. A window that
// shares its budget with others, because the table was full when it was opened, is not changed
// (Change.Lost), and neither is one that was charged before the clock was set back. A window that
// has ended, though no take has read a later second yet, may be changed: nothing counts it any
// more.
func (s *Store) Settle(_ context.Context, t *weir.Ticket, changes []weir.Change) error {
	var err error
	for i := range changes {
		c := &changes[i]
		c.Done, c.Lost, c.Used = false, false, weir.Used{}
		if c.Units == 0 || c.Cost <= 0 {
			continue
		}
		settle := s.settleOne
		if c.Held {
			settle = s.releaseOne
		}
		if settleErr := settle(t, c); settleErr != nil {
			err = settleErr
		}
	}
	runtime.KeepAlive(s) // the memory is unmapped when s is collected
	return err
}

func (s *Store) releaseOne(_ *weir.Ticket, c *weir.Change) error { return s.slots.release(c) }

// settleOne freezes the entry, so that nothing can reset or raise its window between the check of
// the ticket and the change. One compare-and-swap alone could not tell: in windows that end by the
// clock, the word after a reset can be the one before it.
func (s *Store) settleOne(t *weir.Ticket, c *weir.Change) error {
	hash := t.Slot // of the only window of the take
	if hash == 0 {
		hash = s.seed.hash(c.Key)
	}
	if !s.table.unchecked.Load() {
		if e := s.table.find(hash); e != nil {
			if word, ok := e.freeze(hash); ok {
				s.settleFrozen(e, word, hash, t, c)
				return nil
			}
		}
	}
	return s.settleLocked(hash, t, c)
}

// settleLocked is the slow path: for a key without an entry of its own, or whose entry other takes
// keep frozen.
func (s *Store) settleLocked(hash uint64, t *weir.Ticket, c *weir.Change) error {
	charges := []weir.Charge{c.Charge}
	for !s.closed.Load() {
		a := attempt{store: s, charges: charges}
		if !a.lock([]uint64{hash}) {
			continue
		}
		a.find(0)
		switch p := &a.refs[0]; {
		case p.shared:
			c.Lost = c.Reset > a.now
		case p.entry != nil:
			a.freeze()
			s.settleFrozen(p.entry, p.word, p.hash, t, c)
		}
		a.unlock()
		return nil
	}
	c.Lost = true
	return ErrClosed
}

// settleFrozen changes the window of an entry that the caller has frozen, if it is still the one
// that was charged, and unfreezes it. word is from before the freezing.
func (s *Store) settleFrozen(e *entry, word, hash uint64, t *weir.Ticket, c *weir.Change) {
	kept := unpack(word, hash)
	if s.voids(t, c, hash, kept) {
		e.word.Store(word)
		return
	}
	c.Done, c.Used = true, kept.Settle(max(c.Units, -c.Cost))
	e.word.Store(pack(c.Used, hash))
}

// voids reports whether kept, the window that the frozen entry of hash has, may not be the one that
// was charged, or may be without the units that were charged. It sets c.Lost.
func (s *Store) voids(t *weir.Ticket, c *weir.Change, hash uint64, kept weir.Used) bool {
	if c.Reset <= s.clock.second.Load() { // it has ended
		return true
	}
	// After the clock was set back, a window ends earlier than it was to. Then another can begin,
	// and end when the first would have.
	if backs := s.clock.setBacks(); backs != t.At || backs%2 != 0 {
		c.Lost = true
		return true
	}
	if void, unsure := s.resets.since(hash, t.Epoch); void {
		c.Lost = unsure
		return true
	}
	c.Lost = kept.Reset != c.Reset
	return c.Lost
}
