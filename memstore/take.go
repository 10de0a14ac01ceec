package memstore

import (
	"context"
	"runtime"

	"github.com/weirlimit/weir"
)

// Take implements weir.Store. It never waits, so it ignores ctx. The only error is ErrClosed.
func (s *Store) Take(_ context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	var err error
	ticket := s.ticket() // before anything is counted
	switch {
	case len(charges) == 1 && !charges[0].Held:
		ticket.Slot = s.seed.hash(charges[0].Key)
		err = s.takeOne(charges, ticket.Slot, receipt)
	case holds(charges):
		err = s.takeHeld(charges, receipt)
	default:
		err = s.takeSeveral(charges, receipt)
	}
	if s.resets.epoch() != ticket.Epoch { // a reset may have been before this take or after it
		ticket.At = unsure
	}
	if receipt.Ticket = ticket; !receipt.Allowed {
		receipt.Ticket = weir.Ticket{}
	}
	if s.clock.ticked.Load() && s.clock.ticked.Swap(false) {
		s.table.compact(s.clock.second.Load(), segmentsPerTick)
	}
	runtime.KeepAlive(s) // the memory is unmapped when s is collected
	return err
}

func holds(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Held {
			return true
		}
	}
	return false
}

func (s *Store) takeWindows(charges []weir.Charge, receipt *weir.Receipt) error {
	if len(charges) == 1 {
		return s.takeOne(charges, s.seed.hash(charges[0].Key), receipt)
	}
	return s.takeSeveral(charges, receipt)
}

// takeOne takes from the window of a hash. If the key has an entry, which is nearly always the
// case, this is a lookup, a clock reading and one compare-and-swap.
//
// Between reading the word and swapping it, takeOne checks that the clock is still at the second it
// read. No take that was counted before it, on this key or another, can then have seen a later one.
func (s *Store) takeOne(charges []weir.Charge, hash uint64, receipt *weir.Receipt) error {
	c := &charges[0]
	now := s.clock.now()
	e := s.table.find(hash)
	for n := 0; e != nil; {
		word := e.word.Load()
		if e.hash.Load() != hash {
			break
		}
		if isBusy(word, hash) { // most likely for the moment of a Settle
			if n++; n == spins {
				break
			}
			spinWait(n)
			continue
		}
		if !s.clock.isAt(now) {
			now = s.clock.now()
			continue
		}
		kept := unpack(word, hash)
		end := c.End(now)
		used := kept.At(now, end)
		allowed := used.Fits(c.Cost, c.Limit)
		if !allowed || c.Cost <= 0 {
			// the clock was set back: keep the earlier reset
			if used.Reset != 0 && used.Reset != kept.Reset {
				if !e.word.CompareAndSwap(word, pack(used, hash)) {
					continue
				}
			} else if e.word.Load() != word {
				continue
			}
			receipt.Allowed, receipt.Now, receipt.Used[0] = allowed, now, used
			return nil
		}
		opens := used.Reset == 0
		used = used.Spend(c.Cost, end)
		if !e.word.CompareAndSwap(word, pack(used, hash)) {
			continue
		}
		receipt.Allowed, receipt.Now, receipt.Used[0] = true, now, used
		if opens {
			s.table.compact(now, 1)
		}
		return nil
	}
	return s.takeLocked(charges, []uint64{hash}, receipt)
}

// takeSeveral takes from several windows. It freezes all their entries, in order of address, so
// that two takes cannot deadlock, and only then looks whether the clock is still at the second it
// read. At that moment the take is decided: no other take can have seen one of these windows in a
// later second.
//
// To swap the last word without freezing it is not enough, even if nobody has changed it: a delayed
// take would be decided in a second that others have seen end.
func (s *Store) takeSeveral(charges []weir.Charge, receipt *weir.Receipt) error {
	var hashes [weir.MaxCharges]uint64
	for i := range charges {
		hashes[i] = s.seed.hash(charges[i].Key)
	}
	if len(charges) > 0 && !s.table.unchecked.Load() {
		var h entrySet
		if h.find(s.table, charges, hashes[:]) && h.take(s, receipt) {
			if h.opens {
				s.table.compact(receipt.Now, 1)
			}
			return nil
		}
	}
	return s.takeLocked(charges, hashes[:len(charges)], receipt)
}

// An entrySet is the entries of one take, in order of address.
type entrySet struct {
	n     int
	opens bool // the take opens a window
	of    [weir.MaxCharges]heldEntry
}

// A heldEntry is the entry of one charge, with its word before the take.
type heldEntry struct {
	entry  *entry
	hash   uint64
	word   uint64
	used   weir.Used
	charge *weir.Charge
	index  int
}

// find looks the entries of all charges up. It returns false if one of them has none.
func (h *entrySet) find(t *table, charges []weir.Charge, hashes []uint64) bool {
	for i := range charges {
		e := t.find(hashes[i])
		if e == nil {
			return false
		}
		k := i
		for ; k > 0 && address(h.of[k-1].entry) >= address(e); k-- {
			if h.of[k-1].entry == e { // two keys with the same hash
				return false
			}
			h.of[k] = h.of[k-1]
		}
		p := &h.of[k] // take writes word, and judge used
		p.entry, p.hash, p.charge, p.index = e, hashes[i], &charges[i], i
	}
	h.n = len(charges)
	return true
}

// take charges the entries. It returns false, and has changed nothing, if another take kept one of
// them frozen for too long or if one of them now belongs to another key.
func (h *entrySet) take(s *Store, receipt *weir.Receipt) bool {
	now := s.clock.now() // before anything is frozen: it is most of the cost of a take
	for i := range h.of[:h.n] {
		word, ok := h.of[i].entry.freeze(h.of[i].hash)
		if !ok {
			h.thaw(i)
			return false
		}
		h.of[i].word = word
	}
	for !s.clock.isAt(now) {
		now = s.clock.now()
	}
	receipt.Now, receipt.Allowed = now, h.judge(now)
	for i := range h.of[:h.n] {
		p := &h.of[i]
		receipt.Used[p.index] = p.used
		p.entry.word.Store(repack(p.word, p.hash, p.used))
	}
	return true
}

// judge reports whether all charges fit at now, and sets each used to its value after the take.
func (h *entrySet) judge(now int64) (allowed bool) {
	allowed, h.opens = true, false
	for i := range h.of[:h.n] {
		p := &h.of[i]
		p.used = unpack(p.word, p.hash).At(now, p.charge.End(now))
		if !p.used.Fits(p.charge.Cost, p.charge.Limit) {
			allowed = false
		}
	}
	if !allowed {
		return false
	}
	for i := range h.of[:h.n] {
		p := &h.of[i]
		h.opens = h.opens || p.used.Reset == 0
		p.used = p.used.Spend(p.charge.Cost, p.charge.End(now))
	}
	return true
}

// thaw unfreezes the first n entries, unchanged.
func (h *entrySet) thaw(n int) {
	for i := range h.of[:n] {
		h.of[i].entry.word.Store(h.of[i].word)
	}
}
