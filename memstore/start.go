package memstore

import (
	"runtime"

	"github.com/weirlimit/weir"
)

var _ weir.Starter = (*Store)(nil)

// StartFrom implements weir.Starter. It raises each window on its own. A key that has no entry, and
// gets none because the table is full, is not raised: it shares its budget with others.
func (s *Store) StartFrom(charges []weir.Charge, used []weir.Used) {
	for i := range charges {
		if used[i].Count > 0 {
			s.raiseOne(charges[i:i+1], used[i])
		}
	}
	runtime.KeepAlive(s) // the memory is unmapped when s is collected
}

// raised returns the window kept, at now and with its Charge.End, with at least the count of the
// window to and with its reset.
func raised(kept, to weir.Used, now, end int64) weir.Used {
	kept, to = kept.At(now, end), to.At(now, end)
	if to.Reset == 0 {
		return kept
	}
	to.Count = max(to.Count, kept.Count)
	return to
}

// raiseOne raises one window in the way in which takeOne takes from it.
func (s *Store) raiseOne(charges []weir.Charge, to weir.Used) {
	hash := s.seed.hash(charges[0].Key)
	now := s.clock.now()
	e := s.table.find(hash)
	for e != nil {
		word := e.word.Load()
		if e.hash.Load() != hash || isBusy(word, hash) {
			break
		}
		if !s.clock.isAt(now) {
			now = s.clock.now()
			continue
		}
		kept := unpack(word, hash)
		used := raised(kept, to, now, charges[0].End(now))
		if used.Reset == 0 || used == kept {
			return
		}
		s.noteRaised(kept, hash, now)
		if e.word.CompareAndSwap(word, pack(used, hash)) {
			return
		}
	}
	s.raiseLocked(charges, hash, to)
}

// noteRaised voids the tickets of a window that is about to be raised. Its new count may be that of
// others, of which nothing can be given back.
func (s *Store) noteRaised(kept weir.Used, hash uint64, now int64) {
	if kept.Reset > now {
		s.resets.note(hash, kept.Reset, now, true)
	}
}

// raiseLocked raises a window whose key has no entry yet, or whose entry other takes keep frozen.
func (s *Store) raiseLocked(charges []weir.Charge, hash uint64, to weir.Used) {
	for !s.closed.Load() {
		a := attempt{store: s, charges: charges}
		if !a.lock([]uint64{hash}) {
			continue
		}
		crowded := a.raise(to)
		a.unlock()
		now := s.clock.now()
		if crowded == nil {
			s.table.compact(now, 1)
			return
		}
		err := s.table.makeRoom(crowded, now)
		s.checkCapacity(err, now)
		if err != nil {
			return
		}
	}
}

// raise raises the one window of the attempt. It returns the key's segment if that has no slot
// left.
func (a *attempt) raise(to weir.Used) (crowded *segment) {
	a.find(0)
	p, t, c := &a.refs[0], a.store.table, &a.charges[0]
	if p.shared || to.At(a.now, c.End(a.now)).Reset == 0 {
		return nil
	}
	a.freeze()
	if p.entry == nil {
		if p.entry, p.former, p.word = t.claim(p.seg, p.hash, a.now, t.slots*fullPerMille/1000); p.entry == nil {
			return p.seg
		}
		p.claimed = true
	}
	for !a.store.clock.isAt(a.now) {
		a.now = a.store.clock.now()
	}
	if !p.claimed {
		p.at = unpack(p.word, p.hash).At(a.now, c.End(a.now))
	}
	p.used = raised(p.at, to, a.now, c.End(a.now))
	if p.used.Reset == 0 {
		a.rollBack()
		return nil
	}
	if !p.claimed && p.used != p.at {
		a.store.noteRaised(unpack(p.word, p.hash), p.hash, a.now)
	}
	p.write()
	return nil
}
