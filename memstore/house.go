package memstore

const (
	// roundSeconds is how often at most the table is looked through for segments that are nearly empty.
	roundSeconds = 15

	// What one take does of that: the first take of a second,
	segmentsPerTick = 16
	mergesPerTick   = 4
)

// keepHouse looks at the next few segments, where a round is due, and merges those with their other halves that have become
// nearly empty. The takes that open windows look at one, the first take of every second at some: so it goes faster where there is
// more to do, nothing runs where there is no traffic, and no take is held up for more than a few segments' work.
func (t *table) keepHouse(now int64, segments int) {
	for merges := 0; segments > 0 && merges < mergesPerTick && t.due(now); segments-- {
		position := t.cursor.Load()
		seg := t.segmentAt(position)
		if seg == nil || !t.cursor.CompareAndSwap(position, seg.scope.end()) {
			return
		}
		if t.tidy(seg, now) {
			merges++
			t.again.Store(true)
		}
		if seg.scope.end() == 0 && !t.again.Swap(false) {
			t.round.Store(now + roundSeconds)
		}
	}
}

// due reports whether a round is under way, or is to begin: in time, or after the clock was set back.
func (t *table) due(now int64) bool {
	round := t.round.Load()
	return now >= round || now < round-roundSeconds
}

// tidy merges a segment with its other half where what is live in both fits well into one.
func (t *table) tidy(seg *segment, now int64) (merged bool) {
	if seg.scope.depth <= leastDepth || !seg.mu.TryLock() { // busy: another round will come
		return false
	}
	defer seg.mu.Unlock()
	most := t.slots * mergePerMille / 1000
	if seg.gone || !seg.checked || t.recount(seg, now) > most {
		return false
	}
	buddy := t.directory.Load().segmentOf(seg.scope.buddy().prefix)
	if buddy.scope.depth != seg.scope.depth || !buddy.mu.TryLock() {
		return false
	}
	defer buddy.mu.Unlock()
	if buddy.gone || !buddy.checked || seg.live+t.recount(buddy, now) > most {
		return false
	}
	t.tidying.Lock()
	defer t.tidying.Unlock()
	return t.rewrite([]*segment{seg, buddy}, []scope{seg.scope.whole()}, now) == nil // else there is no memory to do so now
}

// recount returns how many windows are open in a segment, as of lately.
func (t *table) recount(seg *segment, now int64) int {
	if now < seg.counted || now >= seg.counted+roundSeconds {
		t.count(seg, now)
	}
	return seg.live
}
