package memstore

const (
	// roundSeconds is the least time between two rounds over the table that look for segments to
	// merge.
	roundSeconds = 15

	segmentsPerTick = 16 // segments that the first take of a second looks at
	mergesPerTick   = 4  // merges that one take does at most
)

// compact looks at the next few segments, if a round is due, and merges those that have become
// nearly empty with their buddies. A take that opens a window looks at one segment, and the first
// take of a second at several. So compaction is faster if there is more to do, nothing runs without
// traffic, and no take is delayed by more than a few segments' work.
func (t *table) compact(now int64, segments int) {
	for merges := 0; segments > 0 && merges < mergesPerTick && t.due(now); segments-- {
		position := t.cursor.Load()
		seg := t.segmentAt(position)
		if seg == nil || !t.cursor.CompareAndSwap(position, seg.scope.end()) {
			return
		}
		if t.mergeSegment(seg, now) {
			merges++
			t.again.Store(true)
		}
		if seg.scope.end() == 0 && !t.again.Swap(false) {
			t.round.Store(now + roundSeconds)
		}
	}
}

// due reports whether a round is under way or has to begin. It also begins after the clock was set
// back.
func (t *table) due(now int64) bool {
	round := t.round.Load()
	return now >= round || now < round-roundSeconds
}

// mergeSegment merges a segment with its buddy if the live entries of both fit well into one.
func (t *table) mergeSegment(seg *segment, now int64) (merged bool) {
	if seg.scope.depth <= minDepth || !seg.mu.TryLock() { // locked: leave it for the next round
		return false
	}
	defer seg.mu.Unlock()
	limit := t.slots * mergePerMille / 1000
	if seg.gone || !seg.checked || t.recount(seg, now) > limit {
		return false
	}
	buddy := t.directory.Load().segmentOf(seg.scope.buddy().prefix)
	if buddy.scope.depth != seg.scope.depth || !buddy.mu.TryLock() {
		return false
	}
	defer buddy.mu.Unlock()
	if buddy.gone || !buddy.checked || seg.live+t.recount(buddy, now) > limit {
		return false
	}
	t.rewriting.Lock()
	defer t.rewriting.Unlock()
	// fails when there is no memory for it
	return t.rewrite([]*segment{seg, buddy}, []scope{seg.scope.parent()}, now) == nil
}

// recount returns how many windows are open in a segment, counted within the last roundSeconds.
func (t *table) recount(seg *segment, now int64) int {
	if now < seg.counted || now >= seg.counted+roundSeconds {
		t.count(seg, now)
	}
	return seg.live
}
