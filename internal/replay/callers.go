package replay

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/axiomhq/hyperloglog"
)

// An entry is what is remembered of one caller, in 32 bytes. Times are Unix seconds.
type entry struct {
	id       uint64 // the caller's hash, but for its low bits, which are marks; 0: nobody
	requests uint32
	refused  uint32 // of these
	first    uint32 // when it was first refused
	demand   uint32 // units that it asked for in the window that is open
	peak     uint32 // the most of that
	reset    uint32 // when the window ends
}

// A mark is a fact about a caller. Callers are counted by their marks.
type mark uint64

const (
	known   mark = 1 << iota // every entry has it
	touched                  // it was refused something
	follows                  // the limit of the window is its own too: it is neither exempt nor has it another
)

const (
	marks     = 8 // of them there can be
	markBits  = 1<<marks - 1
	entrySize = 32

	segmentEntries = 1024
	segmentBytes   = segmentEntries * entrySize
	fullSegment    = segmentEntries * 3 / 4
	thinSegment    = segmentEntries * 5 / 8 // what is left of a full one when callers give way
)

func (e *entry) has(m mark) bool { return e.id&uint64(m) != 0 }

// A pool is the memory that tables share, in segments. It is not for concurrent use, as all here.
type pool struct {
	left int64 // bytes
	free [][]entry
	room []entry // for rewriting a segment

	places   []int // for byLoss
	refusals []uint32
}

func newPool(bytes int64) *pool { return &pool{left: bytes} }

// take returns an empty segment; nil where there is no room.
func (p *pool) take() []entry {
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		return s
	}
	if p.left < segmentBytes {
		return nil
	}
	return p.grow()
}

// grow returns an empty segment, whether there is room or not.
func (p *pool) grow() []entry {
	p.left -= segmentBytes
	return make([]entry, segmentEntries)
}

func (p *pool) give(s []entry) {
	clear(s)
	p.free = append(p.free, s)
}

// A segment holds the callers whose hashes begin with the same bits.
type segment struct {
	entries []entry
	n       int
	depth   int // how many bits
}

// callers are all callers that one window counts, or all addresses: exact while there is memory for them. Then those who were refused
// nothing, and whose window has ended, give way first, and those who were refused most give way last; how many they were is estimated from then on, by sketches.
type callers struct {
	pool      *pool
	directory []*segment // by the first bits of a hash
	depth     int        // how many
	segments  []*segment
	counts    [marks]int64 // of entries by mark; exact while estimates is nil
	estimates *estimates
	keeps     mark // who has one of them gives way late, as who was refused something does
}

// at returns the entry of a hash, new where there was none. It is good until the next call. now is Unix seconds.
func (c *callers) at(hash uint64, now uint32) *entry {
	if c.directory == nil {
		s := c.pool.take()
		if s == nil {
			s = c.pool.grow() // a segment each there is always
		}
		c.segments = []*segment{{entries: s}}
		c.directory = append(c.directory, c.segments[0])
	}
	id := hash &^ markBits
	for {
		s := c.directory[hash>>(64-c.depth)]
		e := s.find(id)
		if e.id != 0 {
			return e
		}
		if s.n < fullSegment {
			e.id = id
			s.n++
			c.mark(e, known)
			return e
		}
		c.makeRoom(s, now)
	}
}

// lookUp returns the entry of a hash; nil where there is none.
func (c *callers) lookUp(hash uint64) *entry {
	if c.directory == nil {
		return nil
	}
	if e := c.directory[hash>>(64-c.depth)].find(hash &^ markBits); e.id != 0 {
		return e
	}
	return nil
}

// find returns the entry of an id, or the free one where it belongs.
func (s *segment) find(id uint64) *entry {
	entries := s.entries[:segmentEntries]
	for i := id >> marks; ; i++ {
		e := &entries[i%segmentEntries]
		if e.id&^markBits == id && e.id != 0 || e.id == 0 {
			return e
		}
	}
}

// mark notes a fact about the caller of an entry.
func (c *callers) mark(e *entry, m mark) {
	if e.has(m) {
		return
	}
	e.id |= uint64(m)
	c.counts[bit(m)]++
	if c.estimates != nil {
		c.estimates.callers[bit(m)].InsertHash(e.id &^ markBits)
	}
}

// markAll is mark for several facts.
func (c *callers) markAll(e *entry, facts mark) {
	for more := facts &^ mark(e.id); more != 0; more &= more - 1 {
		c.mark(e, more&-more)
	}
}

func bit(m mark) int { return bits.TrailingZeros64(uint64(m)) }

// lost reports whether refusals of some callers were forgotten.
func (c *callers) lost() bool { return c.estimates != nil && c.estimates.lost > 0 }

// count returns how many callers have a mark.
func (c *callers) count(m mark) Count {
	if c.estimates == nil {
		return Count{N: c.counts[bit(m)]}
	}
	return Count{N: int64(c.estimates.callers[bit(m)].Estimate()), Estimated: true}
}

// countOnly returns how many callers have a mark and not another, both of which keep them: exactly, while all of these are remembered.
// Otherwise it is how many more have either than the other. The three marks are one for each policy, and one for both.
func (c *callers) countOnly(m, not, either mark) Count {
	if c.estimates == nil || c.estimates.kept == 0 {
		n := int64(0)
		c.each(func(e *entry) {
			if e.has(m) && !e.has(not) {
				n++
			}
		})
		return Count{N: n}
	}
	all, others := c.count(either).N, c.count(not).N
	return Count{N: max(all-others, 0), Estimated: true, Off: (all + others) / 33}
}

// makeRoom splits a full segment, or has callers give way.
func (c *callers) makeRoom(s *segment, now uint32) {
	low := c.pool.take()
	if low == nil {
		c.giveWay(s, now)
		return
	}
	high := c.pool.take()
	if high == nil {
		c.pool.free = append(c.pool.free, low)
		c.giveWay(s, now)
		return
	}
	if s.depth == c.depth {
		wider := make([]*segment, 2*len(c.directory))
		for i := range wider {
			wider[i] = c.directory[i/2]
		}
		c.pool.left -= int64(len(c.directory)) * 8
		c.directory, c.depth = wider, c.depth+1
	}
	old := s.entries
	upper := &segment{entries: high, depth: s.depth + 1}
	s.entries, s.n, s.depth = low, 0, s.depth+1
	for i := range old {
		if id := old[i].id; id == 0 {
			continue
		} else if id>>(64-s.depth)&1 == 0 {
			s.put(&old[i])
		} else {
			upper.put(&old[i])
		}
	}
	c.pool.give(old)
	c.segments = append(c.segments, upper)
	first := 0
	for c.directory[first] != s {
		first++
	}
	span := 1 << (c.depth - s.depth)
	for i := first + span; i < first+2*span; i++ {
		c.directory[i] = upper
	}
}

func (s *segment) put(e *entry) {
	*s.find(e.id &^ markBits) = *e
	s.n++
}

// giveWay forgets some callers of a full segment: those first whose loss shows least.
func (c *callers) giveWay(s *segment, now uint32) {
	if c.estimates == nil {
		c.estimate()
	}
	if c.pool.room == nil {
		c.pool.room = make([]entry, segmentEntries)
	}
	old := c.pool.room
	copy(old, s.entries)
	over := s.n - thinSegment
	for i := range old {
		if e := &old[i]; over > 0 && e.id != 0 && e.refused == 0 && !e.has(c.keeps) && e.reset <= now {
			c.forget(e, now)
			over--
		}
	}
	if over > 0 {
		for _, i := range c.pool.byLoss(old, now)[:over] {
			c.forget(&old[i], now)
		}
	}
	clear(s.entries)
	s.n = 0
	for i := range old {
		if old[i].id != 0 {
			s.put(&old[i])
		}
	}
}

// worstKept is how many of a segment's callers with the most refusals stay until all others have gone.
const worstKept = segmentEntries / 16

// byLoss orders the places of entries by what is lost with them: those with the fewest refusals whose window has ended; those who were
// refused nothing, in a window that is open; then the others, so that who was refused most goes last.
func (p *pool) byLoss(entries []entry, now uint32) []int {
	places, refusals := p.places[:0], p.refusals[:0]
	for i := range entries {
		if entries[i].id != 0 {
			places, refusals = append(places, i), append(refusals, entries[i].refused)
		}
	}
	p.places, p.refusals = places, refusals
	slices.Sort(refusals)
	few := refusals[max(len(refusals)-worstKept-1, 0)]
	class := func(e *entry) int {
		switch {
		case e.refused <= few && e.reset <= now:
			return 0
		case e.refused == 0:
			return 1
		}
		return 2
	}
	slices.SortFunc(places, func(a, b int) int {
		x, y := &entries[a], &entries[b]
		return cmp.Or(cmp.Compare(class(x), class(y)), cmp.Compare(x.refused, y.refused))
	})
	return places
}

// each calls visit with every entry.
func (c *callers) each(visit func(e *entry)) {
	for _, s := range c.segments {
		for i := range s.entries {
			if s.entries[i].id != 0 {
				visit(&s.entries[i])
			}
		}
	}
}

// estimates count callers of whom not all are remembered.
type estimates struct {
	callers [marks]hyperloglog.Sketch        // by mark: of every caller there ever was, within 2 %
	peaks   [peakBuckets]*hyperloglog.Sketch // of those who were forgotten, by their peak; nil: nobody
	broken  int64                            // callers who were forgotten while their window was open
	lost    int64                            // callers who were forgotten with what they were refused
	kept    int64                            // callers who were forgotten although they had a mark that keeps them
}

// estimate begins to count by sketches.
func (c *callers) estimate() {
	c.estimates = new(estimates)
	c.pool.left -= marks * sketchBytes
	c.each(func(e *entry) {
		for i := range c.estimates.callers {
			if e.id>>i&1 != 0 {
				c.estimates.callers[i].InsertHash(e.id &^ markBits)
			}
		}
	})
}

const (
	sketchBytes   = 20 << 10 // of 2¹⁴ registers, and what it needs on the way there
	peakPrecision = 12
)

// forget notes the end of an entry, and empties it.
func (c *callers) forget(e *entry, now uint32) {
	s := c.estimates
	if e.reset > now {
		s.broken++
	}
	if e.refused > 0 {
		s.lost++
	}
	if e.has(c.keeps) {
		s.kept++
	}
	if e.has(follows) {
		s.notePeak(e)
	}
	e.id = 0
}

func (s *estimates) notePeak(e *entry) {
	b := peakBucket(e.peak)
	if s.peaks[b] == nil {
		s.peaks[b], _ = hyperloglog.NewSketch(peakPrecision, true) // the precision is allowed
	}
	s.peaks[b].InsertHash(e.id &^ markBits)
}
