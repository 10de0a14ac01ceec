package memstore

import (
	"slices"

	"github.com/weirlimit/weir"
)

// takeLocked is the take of a key that has no entry yet, or of several windows where the quick way was barred. It locks the
// segments that it touches, so that keys are added and segments rewritten by one take at a time.
func (s *Store) takeLocked(charges []weir.Charge, hashes []uint64, receipt *weir.Receipt) error {
	var full []*segment // no room can be made in them
	for !s.closed.Load() {
		a := attempt{store: s, charges: charges, full: full}
		if !a.lock(hashes) {
			continue
		}
		crowded := a.take(receipt)
		a.unlock()
		if crowded == nil {
			s.table.keepHouse(receipt.Now, 1)
			return nil
		}
		now := s.clock.now()
		err := s.table.makeRoom(crowded, now)
		s.watch(err, now)
		if err != nil {
			full = append(full, crowded)
		}
	}
	return ErrClosed
}

// An attempt is one try of a locked take.
type attempt struct {
	store   *Store
	charges []weir.Charge
	full    []*segment // where newcomers have to share
	now     int64
	spots   [weir.MaxCharges]spot
	cells   [weir.MaxCharges]uint64 // hashes of the budgets that newcomers share; 0: not looked at

	locked  [2 * weir.MaxCharges]*segment // in order of id
	nLocked int
}

// A spot is where one charge is counted.
type spot struct {
	hash   uint64
	seg    *segment
	entry  *entry // nil: the key has none, and is not to get one
	word   uint64 // as it was before the attempt froze it
	twin   int    // an earlier charge that is counted in the same entry, or -1
	shared bool   // a budget that newcomers share

	claimed bool   // the slot was another's, or nobody's:
	former  uint64 // its hash then

	at, used weir.Used // before, and what it comes to
}

// lock locks the segments of all keys, and of the budgets that newcomers share where there are any, in order of id. It fails
// where one of them has just been rewritten, where sharing has just begun, or where the store is closed.
func (a *attempt) lock(hashes []uint64) bool {
	a.now = a.store.clock.now()
	d := a.store.table.directory.Load()
	sharing := len(a.full) > 0 || a.store.sharedUntil.Load() > uint64(a.now)
	for i, hash := range hashes {
		a.spots[i] = spot{hash: hash, seg: d.segmentOf(position(hash)), twin: -1}
		if a.spots[i].seg == nil { // closed
			a.nLocked = 0
			return false
		}
		a.include(a.spots[i].seg)
		if sharing {
			a.cells[i] = a.store.seed.cell(&a.charges[i])
			a.include(d.segmentOf(position(a.cells[i])))
		}
	}
	for i, seg := range a.locked[:a.nLocked] {
		if !a.store.table.lock(seg) {
			a.nLocked = i
			a.unlock()
			return false
		}
	}
	if !sharing && a.store.sharedUntil.Load() > uint64(a.now) { // begun by a take that this one waited for
		a.unlock()
		return false
	}
	return true
}

// include adds a segment to those to lock, which are in order of id.
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

// take does the take, or returns a segment that is too crowded for a new key, having changed nothing.
func (a *attempt) take(receipt *weir.Receipt) (crowded *segment) {
	for i := range a.charges {
		a.find(i)
	}
	a.freeze()
	for i := range a.charges {
		if crowded = a.place(i); crowded != nil {
			a.leave()
			return crowded
		}
	}
	for !a.store.clock.shows(a.now) {
		a.now = a.store.clock.now()
	}
	receipt.Now = a.now
	if receipt.Allowed = a.judge(receipt); receipt.Allowed {
		a.commit(receipt)
	} else {
		a.leave()
	}
	return nil
}

// find looks for the entry of charge i: the key's own; else, while that is open, the budget that it shares as a newcomer:
// it may have spent there already, so it stays until that budget's reset, also when room has come free.
func (a *attempt) find(i int) {
	p := &a.spots[i]
	t := a.store.table
	p.entry = probe(p.seg.lines, p.hash, t.mask)
	if p.entry == nil && a.cells[i] != 0 {
		seg := t.segmentOf(a.cells[i]) // locked, so it cannot have changed
		if e := probe(seg.lines, a.cells[i], t.mask); e != nil && unpack(e.word.Load(), a.cells[i]).Reset > a.now {
			*p = spot{hash: a.cells[i], seg: seg, entry: e, twin: -1, shared: true}
		}
	}
	a.findTwin(i)
}

// findTwin notes an earlier charge that is counted in the same place: by a budget that both share, or by equal hashes.
func (a *attempt) findTwin(i int) {
	for j := range i {
		if a.spots[j].twin < 0 && a.spots[j].hash == a.spots[i].hash {
			a.spots[i].twin = j
		}
	}
}

// freeze keeps all entries that were found from changing, in order of address like every take of several windows.
func (a *attempt) freeze() {
	var order [weir.MaxCharges]int
	n := 0
	for i := range a.charges {
		e := a.spots[i].entry
		if e == nil || a.spots[i].twin >= 0 {
			continue
		}
		k := n
		for ; k > 0 && address(a.spots[order[k-1]].entry) > address(e); k-- {
			order[k] = order[k-1]
		}
		order[k] = i
		n++
	}
	for _, i := range order[:n] {
		p := &a.spots[i]
		p.word = p.entry.await(p.hash)
	}
}

// root returns the spot that charge i is counted in.
func (a *attempt) root(i int) *spot {
	for a.spots[i].twin >= 0 {
		i = a.spots[i].twin
	}
	return &a.spots[i]
}

// place claims a slot for charge i where its key has no entry: in its segment, or as a budget that newcomers share.
func (a *attempt) place(i int) (crowded *segment) {
	for a.spots[i].twin >= 0 {
		i = a.spots[i].twin
	}
	p, t := &a.spots[i], a.store.table
	if p.entry != nil || a.charges[i].Cost == 0 {
		return nil
	}
	if p.entry, p.former, p.word = t.claim(p.seg, p.hash, a.now, t.slots*fullPerMille/1000); p.entry != nil {
		p.claimed = true
		return nil
	}
	if !slices.Contains(a.full, p.seg) {
		return p.seg
	}
	*p = spot{hash: a.cells[i], seg: t.segmentOf(a.cells[i]), twin: -1, shared: true}
	if a.findTwin(i); p.twin >= 0 {
		return nil
	}
	if p.entry = probe(p.seg.lines, p.hash, t.mask); p.entry != nil {
		p.word = p.entry.await(p.hash) // only locked takes look for it, so nobody holds it
		return nil
	}
	p.entry, p.former, p.word = t.claim(p.seg, p.hash, a.now, t.slots-1)
	p.claimed = p.entry != nil
	return nil
}

// judge says whether all charges fit, and fills in the receipt as it is where they do not.
func (a *attempt) judge(receipt *weir.Receipt) (allowed bool) {
	allowed = true
	for i := range a.charges {
		c, p := &a.charges[i], a.root(i)
		if p == &a.spots[i] && p.entry != nil && !p.claimed {
			p.used = unpack(p.word, p.hash).At(a.now, c.Per)
			p.at = p.used
		}
		receipt.Used[i] = p.at
		if p.shared {
			a.store.shared.Add(1)
		}
		if p.entry == nil && p.shared { // not even a shared budget has room: nothing can be counted, so nothing is admitted
			receipt.Used[i] = weir.Used{Count: c.Limit, Reset: a.now + 1}
			allowed = false
			continue
		}
		if !p.used.Fits(c.Cost, c.Limit) {
			allowed = false
		}
		p.used = p.used.Spend(c.Cost, a.now, c.Per)
	}
	return allowed
}

// commit writes what was spent and lets go of everything.
func (a *attempt) commit(receipt *weir.Receipt) {
	for i := range a.charges {
		p := a.root(i)
		receipt.Used[i] = p.used
		if p != &a.spots[i] || p.entry == nil {
			continue
		}
		if p.shared {
			a.store.shareUntil(p.used.Reset)
		}
		p.write()
	}
}

// write writes what the spot comes to, and lets go of it.
func (p *spot) write() {
	if p.claimed {
		p.entry.pass(p.hash, pack(p.used, p.hash))
	} else {
		p.entry.word.Store(pack(p.used, p.hash))
	}
}

// leave lets go of everything with nothing spent. A reset that a clock which was set back has brought nearer is kept: it must
// not recede from a caller who waits for it.
func (a *attempt) leave() {
	for i := range a.charges {
		p := &a.spots[i]
		switch {
		case p.entry == nil || p.twin >= 0:
		case p.claimed:
			a.store.table.unclaim(p.seg, p.entry, p.former, p.word)
		case p.at.Reset != 0:
			p.entry.word.Store(pack(p.at, p.hash))
		default:
			p.entry.word.Store(p.word)
		}
	}
}
