package replay

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/axiomhq/hyperloglog"
)

// An entry is what is remembered of one caller, in 32 bytes. Times are Unix seconds.
type entry struct {
	id       uint64 // the caller's hash, with marks in its low bits; 0: empty
	requests uint32
	refused  uint32 // of requests
	first    uint32 // time of the first refusal
	demand   uint32 // units that it asked for in the open window
	peak     uint32 // the maximum of demand
	reset    uint32 // end of the window
}

// A mark is a fact about a caller. Callers are counted by their marks.
type mark uint64

const (
	known   mark = 1 << iota // every entry has it
	touched                  // it was refused something
	// the window's limit applies: the caller is neither exempt nor has its own limit
	follows
)

const (
	marks     = 8 // the maximum number of marks
	markBits  = 1<<marks - 1
	entrySize = 32

	segmentEntries = 1024
	segmentBytes   = segmentEntries * entrySize
	fullSegment    = segmentEntries * 3 / 4
	thinSegment    = segmentEntries * 5 / 8 // what is left of a full segment after an eviction
)

func (e *entry) has(m mark) bool { return e.id&uint64(m) != 0 }

// A pool is the memory that tables share, in segments. Like everything here it is not safe for
// concurrent use.
type pool struct {
	left int64 // bytes
	free [][]entry
	room []entry // for rewriting a segment

	places   []int // for evictionOrder
	refusals []uint32
}

func newPool(bytes int64) *pool { return &pool{left: bytes} }

// take returns an empty segment, or nil if there is no memory.
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

// grow returns an empty segment, even beyond the bound.
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

// callers are all callers of one window, or all addresses. They are exact while memory suffices.
// After that callers are evicted: first those without refusals whose window has ended, last those
// with the most refusals. From then on sketches estimate the counts.
type callers struct {
	pool      *pool
	directory []*segment // by the first bits of a hash
	depth     int        // how many bits
	segments  []*segment
	counts    [marks]int64 // of entries by mark; exact while estimates is nil
	estimates *estimates
	protected mark // a caller with one of these marks is evicted late, like one with refusals
}

// at returns the entry of a hash, creating it if necessary. It is valid until the next call. now is
// Unix seconds.
func (c *callers) at(hash uint64, now uint32) *entry {
	if c.directory == nil {
		s := c.pool.take()
		if s == nil {
			s = c.pool.grow() // every table has at least one segment
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

// lookUp returns the entry of a hash, or nil.
func (c *callers) lookUp(hash uint64) *entry {
	if c.directory == nil {
		return nil
	}
	if e := c.directory[hash>>(64-c.depth)].find(hash &^ markBits); e.id != 0 {
		return e
	}
	return nil
}

// find returns the entry of an id, or the free entry for it.
func (s *segment) find(id uint64) *entry {
	entries := s.entries[:segmentEntries]
	for i := id >> marks; ; i++ {
		e := &entries[i%segmentEntries]
		if e.id&^markBits == id && e.id != 0 || e.id == 0 {
			return e
		}
	}
}

// mark records a fact about the caller of an entry.
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

// countOnly returns how many callers have the mark m and not the mark not. It is exact while no
// protected caller has been evicted. After that it is the number with either mark minus the number
// with not. The three marks are one for each policy, and one for both.
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

// makeRoom splits a full segment, or evicts callers from it.
func (c *callers) makeRoom(s *segment, now uint32) {
	low := c.pool.take()
	if low == nil {
		c.evict(s, now)
		return
	}
	high := c.pool.take()
	if high == nil {
		c.pool.free = append(c.pool.free, low)
		c.evict(s, now)
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

// evict forgets some callers of a full segment, in evictionOrder.
func (c *callers) evict(s *segment, now uint32) {
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
		if e := &old[i]; over > 0 && e.id != 0 && e.refused == 0 && !e.has(c.protected) && e.reset <= now {
			c.forget(e, now)
			over--
		}
	}
	if over > 0 {
		for _, i := range c.pool.evictionOrder(old, now)[:over] {
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

// worstKept is how many callers of a segment with the most refusals stay until all others are
// evicted.
const worstKept = segmentEntries / 16

// evictionOrder orders the places of entries: first callers with few refusals whose window has
// ended; then callers without refusals in an open window; then the others, by refusals.
func (p *pool) evictionOrder(entries []entry, now uint32) []int {
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

// estimates count callers when not all are remembered.
type estimates struct {
	callers [marks]hyperloglog.Sketch        // by mark: all callers ever seen; standard error 0.8 %
	peaks   [peakBuckets]*hyperloglog.Sketch // of evicted callers, by their peak; nil: none
	// callers that were evicted while their window was open
	broken int64
	lost   int64 // callers that were evicted with refusals
	// callers that were evicted although they had a protecting mark
	kept int64
}

// estimate starts the sketches.
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
	sketchBytes   = 20 << 10 // of 2¹⁴ registers, including what building them takes
	peakPrecision = 12
)

// forget records an eviction, and empties the entry.
func (c *callers) forget(e *entry, now uint32) {
	s := c.estimates
	if e.reset > now {
		s.broken++
	}
	if e.refused > 0 {
		s.lost++
	}
	if e.has(c.protected) {
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
		s.peaks[b], _ = hyperloglog.NewSketch(peakPrecision, true) // the precision is valid
	}
	s.peaks[b].InsertHash(e.id &^ markBits)
}
