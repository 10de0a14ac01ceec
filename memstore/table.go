package memstore

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
)

// A table is all entries: segments, and the directory that leads to them.
type table struct {
	arena     *arena
	clock     *register
	directory atomic.Pointer[directory]
	mask      uint64 // lines of a segment, less one
	slots     int    // entries of a segment

	// unchecked says that the table is a file's, and that not all of its segments have been checked yet.
	unchecked atomic.Bool

	mu     sync.Mutex // held to change the directory
	closed bool

	// tidying is held to rewrite segments without making the table larger, which takes one segment more for a moment.
	tidying sync.Mutex

	// The rounds of keepHouse:
	round  atomic.Int64  // when the next one begins,
	cursor atomic.Uint64 // the position that this one has come to,
	again  atomic.Bool   // and whether it has found something to do, so that the next begins at once
}

const (
	leastDepth = 2 // a table has four segments at least

	fullPerMille  = 900 // slots in use at which a segment is rewritten
	splitPerMille = 700 // live ones from which that makes two of it,
	tightPerMille = 850 // and up to which it is still cleaned where there is no memory for two
	mergePerMille = 500 // live ones of two halves up to which they become one

	longest = int64(weir.MaxPer / time.Second) // that a window can be open
)

func newTable(a *arena, clock *register) *table {
	lines := a.segmentBytes / lineBytes
	return &table{arena: a, clock: clock, mask: uint64(lines - 1), slots: int(lines * perLine)}
}

// start gives an empty table its first segments.
func (t *table) start() error {
	d := newDirectory(leastDepth)
	for i := range uint64(1 << leastDepth) {
		seg, err := t.arena.allot(scope{i << (64 - leastDepth), leastDepth}, 1, 0)
		if err != nil {
			return err
		}
		t.arena.ground.publish(seg.id, seg.scope)
		d.put(seg)
	}
	t.directory.Store(d)
	return nil
}

// adopt makes a table of the segments that a file has, with new ones where it has gaps.
func (t *table) adopt(found []record, gaps []scope) error {
	depth := uint8(leastDepth)
	for _, r := range found {
		depth = max(depth, r.scope.depth)
	}
	for _, s := range gaps {
		depth = max(depth, s.depth)
	}
	d := newDirectory(depth)
	for _, r := range found {
		d.put(&segment{id: r.id, lines: t.arena.ground.lines(r.id), scope: r.scope, occupied: -1})
	}
	for _, s := range gaps {
		seg, err := t.arena.allot(s, 0, 0)
		if err != nil {
			return err
		}
		t.arena.ground.publish(seg.id, s)
		d.put(seg)
	}
	t.directory.Store(d)
	t.unchecked.Store(true)
	return nil
}

// find returns the entry of a hash, or nil where a take must look again with the segment's lock.
func (t *table) find(hash uint64) *entry {
	return probe(t.directory.Load().linesOf(position(hash)), hash, t.mask)
}

func (t *table) segmentOf(hash uint64) *segment { return t.segmentAt(position(hash)) }

func (t *table) segmentAt(position uint64) *segment { return t.directory.Load().segmentOf(position) }

// claim returns a slot for a key that the segment does not have: one of an ended window, and then whose it was and its word, or
// a vacant one, unless as many as most are in use already; nil where there is none. From now on the slot has no owner, not
// even for the claimant's other charges. The segment is locked.
func (t *table) claim(seg *segment, hash uint64, now int64, most int) (e *entry, former, word uint64) {
	i := hash & t.mask
	for range t.mask + 1 {
		l := at(seg.lines, i)
		for j := range l {
			e := &l[j]
			former := e.hash.Load()
			if former == vacant {
				if seg.occupied >= most {
					return nil, 0, 0
				}
				e.hash.Store(passed)
				seg.occupied++
				return e, vacant, 0
			}
			if former == passed {
				continue
			}
			word := e.word.Load()
			if !isHeld(word, former) && unpack(word, former).Reset <= now && e.word.CompareAndSwap(word, word^frozen) {
				e.hash.Store(passed)
				return e, former, word
			}
		}
		i = (i + 1) & t.mask
	}
	return nil, 0, 0
}

// pass gives a claimed slot to the key with that hash, and its first window with it. Whoever looks meanwhile finds no key
// there, or the new one whole.
func (e *entry) pass(hash, word uint64) {
	e.word.Store(word)
	e.hash.Store(hash)
}

// unclaim leaves a claimed slot as it was.
func (t *table) unclaim(seg *segment, e *entry, former, word uint64) {
	if former == vacant {
		seg.occupied--
	} else {
		e.word.Store(word)
	}
	e.hash.Store(former)
}

// each calls f for every slot of the segment that is not vacant.
func (t *table) each(seg *segment, f func(e *entry, hash uint64)) {
	slots := unsafe.Slice((*entry)(seg.lines), t.slots)
	for i := range slots {
		if hash := slots[i].hash.Load(); hash != vacant {
			f(&slots[i], hash)
		}
	}
}

// count notes how many slots of the segment are in use and how many of those are live. Its lock is held.
func (t *table) count(seg *segment, now int64) {
	seg.occupied, seg.live, seg.counted = 0, 0, now
	t.each(seg, func(e *entry, hash uint64) {
		seg.occupied++
		if hash != passed && unpack(e.word.Load(), hash).Reset > now {
			seg.live++
		}
	})
}

// lock locks a segment that still has a part in the table; false where it has been rewritten.
func (t *table) lock(seg *segment) bool {
	seg.mu.Lock()
	if seg.gone {
		seg.mu.Unlock()
		return false
	}
	if !seg.checked {
		t.check(seg)
	}
	if seg.occupied < 0 {
		t.count(seg, 0)
	}
	return true
}

// freeze holds every entry of a locked segment, and counts those that are live.
func (t *table) freeze(seg *segment, now int64) (live int) {
	t.each(seg, func(e *entry, hash uint64) {
		if hash != passed && unpack(e.await(hash), hash).Reset > now {
			live++
		}
	})
	return live
}

// thaw lets go of every entry of a segment that the caller holds.
func (t *table) thaw(seg *segment) {
	t.each(seg, func(e *entry, hash uint64) {
		if word := e.word.Load(); hash != passed && isHeld(word, hash) {
			e.word.Store(word ^ frozen)
		}
	})
}

// check repairs what a process that died, a disk, or a clock that went far ahead may have left in a segment: entries that are
// held are let go, entries without a word are dropped, and no window ends later than the longest that there can be. Nobody of
// this process holds anything there yet: until all segments are checked, whoever wants to must lock them.
func (t *table) check(seg *segment) {
	latest := t.clock.now() + longest
	t.each(seg, func(e *entry, hash uint64) {
		word := e.word.Load()
		if hash == passed {
			return
		}
		if word == 0 {
			e.hash.Store(passed)
			return
		}
		if used := unpack(word, hash); isHeld(word, hash) || used.Reset > latest {
			used.Reset = min(used.Reset, latest)
			e.word.CompareAndSwap(word, pack(used, hash)) // else a take has changed it, and so much the better
		}
	})
	seg.checked = true
}

// checkAll checks every segment, until told to stop.
func (t *table) checkAll(stop <-chan struct{}) {
	for position := uint64(0); ; {
		select {
		case <-stop:
			return
		default:
		}
		seg := t.segmentAt(position)
		if seg == nil {
			return
		}
		if !t.lock(seg) {
			continue
		}
		seg.mu.Unlock()
		if position = seg.scope.end(); position == 0 {
			t.unchecked.Store(false)
			return
		}
	}
}

// retire waits for everybody who has a segment locked, and lets nobody lock one again.
func (t *table) retire() {
	for position := uint64(0); ; {
		seg := t.segmentAt(position)
		seg.mu.Lock()
		was := seg.gone
		seg.gone = true
		seg.mu.Unlock()
		if was { // rewritten: its successor is there by now
			continue
		}
		if position = seg.scope.end(); position == 0 {
			return
		}
	}
}

// makeRoom rewrites a segment in which no new key found a place: without the windows that have ended, or as two halves.
// An error says that there is no memory to do so; then the segment stays as it is.
func (t *table) makeRoom(seg *segment, now int64) error {
	if !t.lock(seg) {
		return nil
	}
	defer seg.mu.Unlock()
	t.count(seg, now)
	var err error
	if seg.live >= t.slots*splitPerMille/1000 {
		halves := seg.scope.halves()
		err = t.rewrite([]*segment{seg}, halves[:], now)
		if err == nil || seg.live >= t.slots*tightPerMille/1000 {
			return err
		}
	}
	t.tidying.Lock()
	defer t.tidying.Unlock()
	return t.rewrite([]*segment{seg}, []scope{seg.scope}, now)
}

// errCrowded says that two segments do not fit into one.
var errCrowded = errors.New("the segments are too full to be merged")

// rewrite moves what is live in the segments from, all locked, to fresh ones of the given scopes, which together are theirs.
//
// Whatever moment the process is killed at, the file has every count: the fresh segments are complete before the first of
// them is published, nobody writes to the old ones any more, and where both are there the younger one holds.
func (t *table) rewrite(from []*segment, scopes []scope, now int64) error {
	var into [2]*segment
	spare := len(scopes) - len(from)
	for i, s := range scopes {
		seg, err := t.arena.allot(s, max(spare, 0), now)
		if err != nil {
			for _, seg := range into[:i] {
				t.arena.giveBack(seg.id)
			}
			return err
		}
		into[i] = seg
	}
	live := 0
	for _, seg := range from {
		live += t.freeze(seg, now)
	}
	if live > t.slots*fullPerMille/1000 && len(from) > 1 { // windows have been opened since they were counted
		for _, seg := range from {
			t.thaw(seg)
		}
		t.arena.giveBack(into[0].id)
		return errCrowded
	}
	for _, seg := range from {
		t.each(seg, func(e *entry, hash uint64) {
			word, at := e.word.Load(), position(hash)
			used := unpack(word, hash)
			if hash == passed || used.Reset <= now || !seg.scope.covers(at) {
				return // the last: left by a split that a kill cut short
			}
			if latest := now + longest; used.Reset > latest { // from a clock that went far ahead: it must end some day
				used.Reset = latest
				word = pack(used, hash) ^ frozen
			}
			target := into[0]
			if len(scopes) > 1 && scopes[1].covers(at) {
				target = into[1]
			}
			t.add(target, hash, word)
		})
		seg.gone = true
	}
	fresh := into[:len(scopes)]
	for _, seg := range fresh {
		seg.live, seg.counted = seg.occupied, now
		t.arena.ground.publish(seg.id, seg.scope)
	}
	for _, seg := range fresh { // whoever finds them waits until everything in them has been let go
		seg.mu.Lock()
	}
	t.replace(fresh)
	for _, seg := range fresh {
		t.thaw(seg)
		seg.mu.Unlock()
	}
	for _, seg := range from {
		t.arena.giveBack(seg.id)
	}
	return nil
}

// add files an entry in a segment that nobody else knows yet. A key has two entries only where a damaged file hid one of them;
// then the one that has spent more holds.
func (t *table) add(seg *segment, hash, word uint64) {
	i := hash & t.mask
	for {
		l := at(seg.lines, i)
		for j := range l {
			switch l[j].hash.Load() {
			case vacant:
				l[j].word.Store(word)
				l[j].hash.Store(hash)
				seg.occupied++
				return
			case hash:
				if unpack(word, hash).Count > unpack(l[j].word.Load(), hash).Count {
					l[j].word.Store(word)
				}
				return
			}
		}
		i = (i + 1) & t.mask
	}
}

// replace has the directory lead to fresh segments.
func (t *table) replace(fresh []*segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	d := t.directory.Load()
	if depth := fresh[0].scope.depth; depth > d.depth() {
		d = d.deeper(depth)
		defer t.directory.Store(d)
	}
	for _, seg := range fresh {
		d.put(seg)
	}
}
