package memstore

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirlimit/weir"
)

// A table is all segments and the directory of them.
type table struct {
	arena     *arena
	clock     *secondClock
	directory atomic.Pointer[directory]
	mask      uint64 // lines of a segment, less one
	slots     int    // entries of a segment

	// unchecked is true while not all segments of an opened file have been checked.
	unchecked atomic.Bool

	mu     sync.Mutex // held to change the directory
	closed bool

	// rewriting is held to rewrite segments into as many or fewer, which needs one more for a
	// moment.
	rewriting sync.Mutex

	// The state of compact.
	round  atomic.Int64  // the second in which the next round begins
	cursor atomic.Uint64 // the next position of this round
	again  atomic.Bool   // this round has merged segments, so the next begins at once
}

const (
	minDepth = 2 // a table has at least four segments

	fullPerMille  = 900 // slots in use at which a segment is rewritten
	splitPerMille = 700 // live entries from which rewriting splits it into two
	// live entries up to which it is rewritten alone without memory for two
	tightPerMille = 850
	mergePerMille = 500 // live entries in two buddies up to which they are merged

	longest = int64(weir.MaxSpan / time.Second) // seconds that a window can be open
)

func newTable(a *arena, clock *secondClock) *table {
	lines := a.segmentBytes / lineBytes
	return &table{arena: a, clock: clock, mask: uint64(lines - 1), slots: int(lines * perLine)}
}

// start allocates the first segments of an empty table.
func (t *table) start() error {
	d := newDirectory(minDepth)
	for i := range uint64(1 << minDepth) {
		seg, err := t.arena.acquire(scope{i << (64 - minDepth), minDepth}, 1, 0)
		if err != nil {
			return err
		}
		t.arena.backing.publish(seg.id, seg.scope)
		d.put(seg)
	}
	t.directory.Store(d)
	return nil
}

// adopt fills the table with the segments found in a file, and with new ones for the gaps.
func (t *table) adopt(found []record, gaps []scope) error {
	depth := uint8(minDepth)
	for _, r := range found {
		depth = max(depth, r.scope.depth)
	}
	for _, s := range gaps {
		depth = max(depth, s.depth)
	}
	d := newDirectory(depth)
	for _, r := range found {
		d.put(&segment{id: r.id, lines: t.arena.backing.lines(r.id), scope: r.scope, occupied: -1})
	}
	for _, s := range gaps {
		seg, err := t.arena.acquire(s, 0, 0)
		if err != nil {
			return err
		}
		t.arena.backing.publish(seg.id, s)
		d.put(seg)
	}
	t.directory.Store(d)
	t.unchecked.Store(true)
	return nil
}

// find returns the entry of a hash, or nil if a take must look again with the segment's lock.
func (t *table) find(hash uint64) *entry {
	return probe(t.directory.Load().linesOf(position(hash)), hash, t.mask)
}

func (t *table) segmentOf(hash uint64) *segment { return t.segmentAt(position(hash)) }

func (t *table) segmentAt(position uint64) *segment { return t.directory.Load().segmentOf(position) }

// claim claims a slot for a key that has none in the segment, which the caller has locked. That is
// a slot whose window has ended, returned with its former hash and word, or a vacant slot if fewer
// than limit are in use. It returns nil if there is neither. A claimed slot belongs to no key, not
// even for other charges of the same take.
func (t *table) claim(seg *segment, hash uint64, now int64, limit int) (e *entry, former, word uint64) {
	i := hash & t.mask
	for range t.mask + 1 {
		l := at(seg.lines, i)
		for j := range l {
			e := &l[j]
			former := e.hash.Load()
			if former == vacant {
				if seg.occupied >= limit {
					return nil, 0, 0
				}
				e.hash.Store(claimed)
				seg.occupied++
				return e, vacant, 0
			}
			if former == claimed {
				continue
			}
			word := e.word.Load()
			if !isBusy(word, former) && unpack(word, former).Reset <= now && e.word.CompareAndSwap(word, word^frozen) {
				e.hash.Store(claimed)
				return e, former, word
			}
		}
		i = (i + 1) & t.mask
	}
	return nil, 0, 0
}

// assign gives a claimed slot to a key, together with its first window. A concurrent reader finds
// either no key there or the key with its window.
func (e *entry) assign(hash, word uint64) {
	e.word.Store(word)
	e.hash.Store(hash)
}

// unclaim restores a claimed slot.
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

// count updates occupied and live of a segment that the caller has locked.
func (t *table) count(seg *segment, now int64) {
	seg.occupied, seg.live, seg.counted = 0, 0, now
	t.each(seg, func(e *entry, hash uint64) {
		seg.occupied++
		if hash != claimed && unpack(e.word.Load(), hash).Reset > now {
			seg.live++
		}
	})
}

// lock locks a segment. It returns false, without the lock, if the segment has been rewritten.
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

// freeze freezes every entry of a locked segment and returns how many are live.
func (t *table) freeze(seg *segment, now int64) (live int) {
	t.each(seg, func(e *entry, hash uint64) {
		if hash != claimed && unpack(e.await(hash), hash).Reset > now {
			live++
		}
	})
	return live
}

// thaw unfreezes every entry of a segment that the caller has frozen.
func (t *table) thaw(seg *segment) {
	t.each(seg, func(e *entry, hash uint64) {
		if word := e.word.Load(); hash != claimed && isBusy(word, hash) {
			e.word.Store(word ^ frozen)
		}
	})
}

// check repairs what a killed process, a disk, or a clock far ahead may have left in a segment: it
// unfreezes frozen entries, drops entries without a word, and shortens windows that would end later
// than the longest window can. No take of this process has frozen anything there yet, because takes
// of several windows lock every segment until all are checked.
func (t *table) check(seg *segment) {
	latest := t.clock.now() + longest
	t.each(seg, func(e *entry, hash uint64) {
		word := e.word.Load()
		if hash == claimed {
			return
		}
		if word == 0 {
			e.hash.Store(claimed)
			return
		}
		if used := unpack(word, hash); isBusy(word, hash) || used.Reset > latest {
			used.Reset = min(used.Reset, latest)
			// fails after a take has written it, which repairs it too
			e.word.CompareAndSwap(word, pack(used, hash))
		}
	})
	seg.checked = true
}

// checkAll checks every segment. It returns early when stop is closed.
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

// retire marks every segment as gone, waiting for those that are locked, so that none can be locked
// again. When it returns, no rewrite is under way.
func (t *table) retire() {
	for position := uint64(0); ; {
		seg := t.segmentAt(position)
		seg.mu.Lock()
		was := seg.gone
		seg.gone = true
		seg.mu.Unlock()
		if was { // rewritten: the directory has its successor by now
			continue
		}
		if position = seg.scope.end(); position == 0 {
			return
		}
	}
}

// quiesce freezes every entry, marks every segment as gone, and leaves it so. It waits for takes
// that have frozen entries: when it returns, no take of this process is about to write any more,
// and no rewrite is under way.
func (t *table) quiesce() {
	for position := uint64(0); ; {
		seg := t.segmentAt(position)
		seg.mu.Lock()
		was := seg.gone
		if !was {
			if !seg.checked { // or entries that a killed process has left frozen would never thaw
				t.check(seg)
			}
			t.freeze(seg, 0)
		}
		seg.gone = true
		seg.mu.Unlock()
		if was { // rewritten: the directory has its successor by now
			continue
		}
		if position = seg.scope.end(); position == 0 {
			return
		}
	}
}

// empty replaces the directory by one without entries, in which no segment can be locked.
func (t *table) empty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.directory.Store(newDirectory(1).void(t.arena.segmentBytes))
}

// makeRoom rewrites a segment that has no slot for a new key, without the windows that have ended,
// or as two halves. If there is no memory for that it returns an error, and the segment is
// unchanged.
func (t *table) makeRoom(seg *segment, now int64) error {
	if !t.lock(seg) {
		return nil
	}
	defer seg.mu.Unlock()
	t.count(seg, now)
	var err error
	if seg.live >= t.slots*splitPerMille/1000 {
		halves := seg.scope.split()
		err = t.rewrite([]*segment{seg}, halves[:], now)
		if err == nil || seg.live >= t.slots*tightPerMille/1000 {
			return err
		}
	}
	t.rewriting.Lock()
	defer t.rewriting.Unlock()
	return t.rewrite([]*segment{seg}, []scope{seg.scope}, now)
}

// errTooFull means that two segments do not fit into one.
var errTooFull = errors.New("the segments are too full to be merged")

// rewrite moves the live entries of the segments from, which the caller has locked, to new segments
// with the given scopes, which together cover the same positions.
//
// The file has every count at whatever moment the process is killed: the new segments are complete
// before the first of them is published, the old ones are no longer written then, and if the file
// has both, the younger one counts.
func (t *table) rewrite(from []*segment, scopes []scope, now int64) error {
	var into [2]*segment
	spare := len(scopes) - len(from)
	for i, s := range scopes {
		seg, err := t.arena.acquire(s, max(spare, 0), now)
		if err != nil {
			for _, seg := range into[:i] {
				t.arena.release(seg.id)
			}
			return err
		}
		into[i] = seg
	}
	live := 0
	for _, seg := range from {
		live += t.freeze(seg, now)
	}
	// windows were opened since they were counted
	if live > t.slots*fullPerMille/1000 && len(from) > 1 {
		for _, seg := range from {
			t.thaw(seg)
		}
		t.arena.release(into[0].id)
		return errTooFull
	}
	for _, seg := range from {
		t.each(seg, func(e *entry, hash uint64) {
			word, at := e.word.Load(), position(hash)
			used := unpack(word, hash)
			if hash == claimed || used.Reset <= now || !seg.scope.covers(at) {
				return // not covered: left by a split that was interrupted by a kill
			}
			// written when the clock was far ahead
			if latest := now + longest; used.Reset > latest {
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
		t.arena.backing.publish(seg.id, seg.scope)
	}
	for _, seg := range fresh { // locked takes wait until all entries are thawed
		seg.mu.Lock()
	}
	t.replace(fresh)
	for _, seg := range fresh {
		t.thaw(seg)
	}
	for _, seg := range from {
		t.arena.release(seg.id)
	}
	// Last, since retire and quiesce wait for these locks, and then the file may be another's.
	for _, seg := range fresh {
		seg.mu.Unlock()
	}
	return nil
}

// add adds an entry to a segment that is not in the directory yet. A key has two entries only after
// a damaged file hid one of them; then the one with the higher count is kept.
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

// replace puts new segments into the directory.
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
