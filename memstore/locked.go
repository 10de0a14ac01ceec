package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
)

// takeLocked is the slow path: for a key that has no entry yet, or if takeSeveral gave up. It locks
// the segments it touches, so that only one take at a time adds keys to a segment or rewrites it.
func (s *Store) takeLocked(charges []weir.Charge, hashes []uint64, receipt *weir.Receipt) error {
	var full []*segment // makeRoom failed for them
	for !s.closed.Load() {
		a := attempt{store: s, charges: charges, full: full}
		if !a.lock(hashes) {
			continue
		}
		crowded := a.take(receipt)
		a.unlock()
		if crowded == nil {
			s.table.compact(receipt.Now, 1)
			return nil
		}
		now := s.clock.now()
		err := s.table.makeRoom(crowded, now)
		s.checkCapacity(err, now)
		if err != nil {
			full = append(full, crowded)
		}
	}
	return ErrClosed
}

// An attempt is one try of takeLocked.
type attempt struct {
	store   *Store
	charges []weir.Charge
	full    []*segment // segments in which new keys have to share budgets
	now     int64
	refs    [weir.MaxCharges]slotRef

	// sharedHashes are the hashes of the budgets that new keys share; 0 if no key shares now.
	sharedHashes [weir.MaxCharges]uint64

	locked  [2 * weir.MaxCharges]*segment // in order of id
	nLocked int
}

// A slotRef is the slot in which one charge is counted.
type slotRef struct {
	hash   uint64
	seg    *segment
	entry  *entry // nil if the key has no entry and gets none
	word   uint64 // before the attempt froze the entry
	sameAs int    // index of an earlier charge that is counted in the same entry, or -1
	shared bool   // the entry is a shared budget

	claimed bool   // the attempt claimed the slot, which was vacant or held an ended window
	former  uint64 // the slot's hash before that

	at, used weir.Used // the window before and after the take
}

// lock locks the segments of all keys in order of id, and those of any shared budgets. It returns
// false if one of them has just been rewritten, if sharing has just begun, or if the store is
// closed.
func (a *attempt) lock(hashes []uint64) bool {
	a.now = a.store.clock.now()
	d := a.store.table.directory.Load()
	sharing := len(a.full) > 0 || a.store.sharedUntil.Load() > uint64(a.now)
	for i, hash := range hashes {
		a.refs[i] = slotRef{hash: hash, seg: d.segmentOf(position(hash)), sameAs: -1}
		if a.refs[i].seg == nil { // closed
			a.nLocked = 0
			return false
		}
		a.include(a.refs[i].seg)
		if sharing {
			a.sharedHashes[i] = a.store.seed.sharedHash(&a.charges[i])
			a.include(d.segmentOf(position(a.sharedHashes[i])))
		}
	}
	for i, seg := range a.locked[:a.nLocked] {
		if !a.store.table.lock(seg) {
			a.nLocked = i
			a.unlock()
			return false
		}
	}
	// a take that this one waited for has begun to share
	if !sharing && a.store.sharedUntil.Load() > uint64(a.now) {
		a.unlock()
		return false
	}
	return true
}

// include adds a segment to those that lock locks, in order of id.
func (a *attempt) include(seg *segment) {
	i := a.nLocked
	for i > 0 && a.locked[i-1].id >= seg.id {
		i--
	}
	if i < a.nLocked && a.locked[i] == seg {
		return
	}
	copy(a.locked[i+1:], a.locked[i:a.nLocked])
	a.locked[i] = seg
	a.nLocked++
}

func (a *attempt) unlock() {
	for _, seg := range a.locked[:a.nLocked] {
		seg.mu.Unlock()
	}
}

// take performs the take. If a segment has no slot for a new key, take returns that segment and has
// changed nothing.
func (a *attempt) take(receipt *weir.Receipt) (crowded *segment) {
	for i := range a.charges {
		a.find(i)
	}
	a.freeze()
	for i := range a.charges {
		if crowded = a.place(i); crowded != nil {
			a.rollBack()
			return crowded
		}
	}
	for !a.store.clock.isAt(a.now) {
		a.now = a.store.clock.now()
	}
	receipt.Now = a.now
	if receipt.Allowed = a.judge(receipt); receipt.Allowed {
		a.commit(receipt)
	} else {
		a.rollBack()
	}
	return nil
}

// find looks up the entry of charge i. That is the key's own entry, or else the shared budget of
// the key if it is open: the key may already have spent from that, so it keeps sharing until the
// budget's reset, even if a slot has become free meanwhile.
func (a *attempt) find(i int) {
	p := &a.refs[i]
	t := a.store.table
	p.entry = probe(p.seg.lines, p.hash, t.mask)
	if p.entry == nil && a.sharedHashes[i] != 0 {
		seg := t.segmentOf(a.sharedHashes[i]) // locked, so it cannot have changed
		if e := probe(seg.lines, a.sharedHashes[i], t.mask); e != nil && unpack(e.word.Load(), a.sharedHashes[i]).Reset > a.now {
			*p = slotRef{hash: a.sharedHashes[i], seg: seg, entry: e, sameAs: -1, shared: true}
		}
	}
	a.findDuplicate(i)
}

// findDuplicate sets sameAs if an earlier charge is counted in the same slot, because both share a
// budget or because their hashes are equal.
func (a *attempt) findDuplicate(i int) {
	for j := range i {
		if a.refs[j].sameAs < 0 && a.refs[j].hash == a.refs[i].hash {
			a.refs[i].sameAs = j
		}
	}
}

// freeze freezes all entries that were found, in order of address as takeSeveral does.
func (a *attempt) freeze() {
	var order [weir.MaxCharges]int
	n := 0
	for i := range a.charges {
		e := a.refs[i].entry
		if e == nil || a.refs[i].sameAs >= 0 {
			continue
		}
		k := n
		for ; k > 0 && address(a.refs[order[k-1]].entry) > address(e); k-- {
			order[k] = order[k-1]
		}
		order[k] = i
		n++
	}
	for _, i := range order[:n] {
		p := &a.refs[i]
		p.word = p.entry.await(p.hash)
	}
}

// root returns the slotRef in which charge i is counted.
func (a *attempt) root(i int) *slotRef {
	for a.refs[i].sameAs >= 0 {
		i = a.refs[i].sameAs
	}
	return &a.refs[i]
}

// place claims a slot for charge i if its key has no entry: in the key's segment, or else for a
// shared budget.
func (a *attempt) place(i int) (crowded *segment) {
	for a.refs[i].sameAs >= 0 {
		i = a.refs[i].sameAs
	}
	p, t := &a.refs[i], a.store.table
	if p.entry != nil || a.charges[i].Cost <= 0 {
		return nil
	}
	if p.entry, p.former, p.word = t.claim(p.seg, p.hash, a.now, t.slots*fullPerMille/1000); p.entry != nil {
		p.claimed = true
		return nil
	}
	if !slices.Contains(a.full, p.seg) {
		return p.seg
	}
	*p = slotRef{hash: a.sharedHashes[i], seg: t.segmentOf(a.sharedHashes[i]), sameAs: -1, shared: true}
	if a.findDuplicate(i); p.sameAs >= 0 {
		return nil
	}
	if p.entry = probe(p.seg.lines, p.hash, t.mask); p.entry != nil {
		p.word = p.entry.await(p.hash) // never waits: only locked takes use shared budgets
		return nil
	}
	p.entry, p.former, p.word = t.claim(p.seg, p.hash, a.now, t.slots-1)
	p.claimed = p.entry != nil
	return nil
}

// judge reports whether all charges fit, and fills the receipt in as it is for a refusal.
func (a *attempt) judge(receipt *weir.Receipt) (allowed bool) {
	allowed = true
	for i := range a.charges {
		c, p := &a.charges[i], a.root(i)
		if p == &a.refs[i] && p.entry != nil && !p.claimed {
			p.used = unpack(p.word, p.hash).At(a.now, c.End(a.now))
			p.at = p.used
		}
		receipt.Used[i] = p.at
		if p.shared {
			a.store.shared.Add(1)
		}
		// no slot for a shared budget either: what cannot be counted is refused
		if p.entry == nil && p.shared {
			receipt.Used[i] = weir.Used{Count: c.Limit, Reset: a.now + 1}
			allowed = false
			continue
		}
		if !p.used.Fits(c.Cost, c.Limit) {
			allowed = false
		}
		p.used = p.used.Spend(c.Cost, c.End(a.now))
	}
	return allowed
}

// commit writes all entries after the take, which unfreezes them.
func (a *attempt) commit(receipt *weir.Receipt) {
	for i := range a.charges {
		p := a.root(i)
		receipt.Used[i] = p.used
		if p != &a.refs[i] || p.entry == nil {
			continue
		}
		if p.shared {
			a.store.shareUntil(p.used.Reset)
		}
		p.write()
	}
}

// write writes the entry after the take, which unfreezes it.
func (p *slotRef) write() {
	if p.claimed {
		p.entry.assign(p.hash, pack(p.used, p.hash))
	} else {
		p.entry.word.Store(repack(p.word, p.hash, p.used))
	}
}

// rollBack unfreezes all entries with nothing spent. If a clock that was set back has brought a
// reset nearer, the nearer one is kept: a caller may already be waiting for it.
func (a *attempt) rollBack() {
	for i := range a.charges {
		p := &a.refs[i]
		switch {
		case p.entry == nil || p.sameAs >= 0:
		case p.claimed:
			a.store.table.unclaim(p.seg, p.entry, p.former, p.word)
		default:
			p.entry.word.Store(repack(p.word, p.hash, p.at))
		}
	}
}
