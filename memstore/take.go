package memstore

import (
	"context"
	"runtime"

	"github.com/weirlimit/weir"
)

// Take implements weir.Store. It ignores ctx, since it never waits. The only error is ErrClosed.
func (s *Store) Take(_ context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	var err error
	if len(charges) == 1 {
		err = s.takeOne(charges, receipt)
	} else {
		err = s.takeSeveral(charges, receipt)
	}
	if s.clock.ticked.Load() && s.clock.ticked.Swap(false) {
		s.table.keepHouse(s.clock.second.Load(), segmentsPerTick)
	}
	runtime.KeepAlive(s) // its memory is unmapped with it
	return err
}

// takeOne is the take of one window whose key has an entry, as nearly always: a look, the clock, and one compare-and-swap.
//
// Between the look at the word and the swap it makes sure that the clock's register still shows its second: then nobody who
// counted before it, on this key or another, saw a later one.
func (s *Store) takeOne(charges []weir.Charge, receipt *weir.Receipt) error {
	c := &charges[0]
	hash := s.seed.hash(c.Key)
	now := s.clock.now()
	e := s.table.find(hash)
	for e != nil {
		word := e.word.Load()
		if e.hash.Load() != hash || isHeld(word, hash) {
			break
		}
		if !s.clock.shows(now) {
			now = s.clock.now()
			continue
		}
		kept := unpack(word, hash)
		used := kept.At(now, c.Per)
		allowed := used.Fits(c.Cost, c.Limit)
		if !allowed || c.Cost == 0 {
			if used.Reset != 0 && used.Reset != kept.Reset { // the clock was set back: the reset comes nearer, and stays
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
		used = used.Spend(c.Cost, now, c.Per)
		if !e.word.CompareAndSwap(word, pack(used, hash)) {
			continue
		}
		receipt.Allowed, receipt.Now, receipt.Used[0] = true, now, used
		if opens {
			s.table.keepHouse(now, 1)
		}
		return nil
	}
	return s.takeLocked(charges, []uint64{hash}, receipt)
}

// takeSeveral is the take of several windows. It freezes their entries, all but the last, in order of address, so that no two
// takes wait for each other, and swaps the last word: at that moment all are charged.
func (s *Store) takeSeveral(charges []weir.Charge, receipt *weir.Receipt) error {
	var hashes [weir.MaxCharges]uint64
	for i := range charges {
		hashes[i] = s.seed.hash(charges[i].Key)
	}
	if len(charges) > 0 && !s.table.unchecked.Load() {
		var h holding
		if h.find(s.table, charges, hashes[:]) && h.take(s, receipt) {
			if h.opens {
				s.table.keepHouse(receipt.Now, 1)
			}
			return nil
		}
	}
	return s.takeLocked(charges, hashes[:len(charges)], receipt)
}

// A holding is the entries of one take, in order of address.
type holding struct {
	n     int
	opens bool // a window
	of    [weir.MaxCharges]held
}

type held struct {
	entry  *entry
	hash   uint64
	word   uint64
	used   weir.Used
	charge *weir.Charge
	index  int
}

// find fills in the entries of all charges, or reports that one has none.
func (h *holding) find(t *table, charges []weir.Charge, hashes []uint64) bool {
	for i := range charges {
		e := t.find(hashes[i])
		if e == nil {
			return false
		}
		k := i
		for ; k > 0 && address(h.of[k-1].entry) >= address(e); k-- {
			if h.of[k-1].entry == e { // two keys with one hash
				return false
			}
			h.of[k] = h.of[k-1]
		}
		h.of[k] = held{entry: e, hash: hashes[i], charge: &charges[i], index: i}
	}
	h.n = len(charges)
	return true
}

// take reports whether it could do the take.
func (h *holding) take(s *Store, receipt *weir.Receipt) bool {
	now := s.clock.now() // before anything is held: reading it is most of the time that all this takes
	first := h.of[:h.n-1]
	for i := range first {
		word, ok := first[i].entry.freeze(first[i].hash)
		if !ok {
			h.letGo(i)
			return false
		}
		first[i].word = word
	}
	last := &h.of[h.n-1]
	for n := 0; n < spins; n++ {
		last.word = last.entry.word.Load()
		if last.entry.hash.Load() != last.hash {
			break
		}
		if isHeld(last.word, last.hash) {
			yield(n)
			continue
		}
		if !s.clock.shows(now) {
			now = s.clock.now()
			continue
		}
		allowed := h.judge(now)
		if !last.entry.word.CompareAndSwap(last.word, pack(last.used, last.hash)) {
			continue
		}
		receipt.Now, receipt.Allowed = now, allowed
		receipt.Used[last.index] = last.used
		for i := range first {
			p := &first[i]
			receipt.Used[p.index] = p.used
			p.entry.word.Store(pack(p.used, p.hash))
		}
		return true
	}
	h.letGo(h.n - 1)
	return false
}

// judge says whether all charges fit at now, and brings each used to what it will be.
func (h *holding) judge(now int64) (allowed bool) {
	allowed, h.opens = true, false
	for i := range h.of[:h.n] {
		p := &h.of[i]
		p.used = unpack(p.word, p.hash).At(now, p.charge.Per)
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
		p.used = p.used.Spend(p.charge.Cost, now, p.charge.Per)
	}
	return true
}

func (h *holding) letGo(n int) {
	for i := range h.of[:n] {
		h.of[i].entry.word.Store(h.of[i].word)
	}
}
