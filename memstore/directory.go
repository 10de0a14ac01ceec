package memstore

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A segment is a small hash table with open addressing for one range of positions. Its memory,
// lines, holds entries only; the struct holds everything else.
type segment struct {
	id    uint32
	lines unsafe.Pointer
	scope scope

	mu       sync.Mutex // held to add keys and to rewrite; several are locked in order of id
	gone     bool       // rewritten into other segments: look the position up again
	checked  bool       // check has repaired what a killed process left behind
	occupied int        // slots that are not vacant; -1 before they are counted
	live     int        // open windows when they were last counted
	counted  int64      // the second in which live was counted
}

// A scope is the range of positions whose first depth bits are those of prefix.
type scope struct {
	prefix uint64
	depth  uint8
}

func (s scope) covers(position uint64) bool {
	return s.depth == 0 || (position^s.prefix)>>(64-s.depth) == 0
}

// end returns the first position after s, or 0 for the last.
func (s scope) end() uint64 { return s.prefix + 1<<(64-s.depth) }

// split returns the two scopes into which s splits.
func (s scope) split() [2]scope {
	return [2]scope{{s.prefix, s.depth + 1}, {s.prefix | 1<<(63-s.depth), s.depth + 1}}
}

// parent returns the scope of which s is one half, and buddy the other half of that.
func (s scope) parent() scope {
	return scope{s.prefix &^ (1 << (64 - s.depth)), s.depth - 1}
}

func (s scope) buddy() scope { return scope{s.prefix ^ 1<<(64-s.depth), s.depth} }

// A directory maps the first bits of a position to its segment. Its size is fixed: a table that
// needs more bits makes a new one. Takes read it without a lock; a writer holds table.mu.
type directory struct {
	shift    uint             // 64 minus the number of bits, which is at least 1
	lines    []unsafe.Pointer // of each segment: all that a hit needs
	segments []atomic.Pointer[segment]
}

func newDirectory(depth uint8) *directory {
	return &directory{
		shift:    uint(64 - depth),
		lines:    make([]unsafe.Pointer, 1<<depth),
		segments: make([]atomic.Pointer[segment], 1<<depth),
	}
}

func (d *directory) depth() uint8 { return uint8(64 - d.shift) }

func (d *directory) linesOf(position uint64) unsafe.Pointer {
	return atomic.LoadPointer(&d.lines[position>>(d.shift&63)])
}

func (d *directory) segmentOf(position uint64) *segment {
	return d.segments[position>>(d.shift&63)].Load()
}

// put maps all positions of seg's scope to seg.
func (d *directory) put(seg *segment) {
	first := seg.scope.prefix >> (d.shift & 63)
	for i := first; i < first+1<<(d.depth()-seg.scope.depth); i++ {
		d.segments[i].Store(seg)
		atomic.StorePointer(&d.lines[i], seg.lines)
	}
}

// deeper returns a directory with depth bits and the same segments.
func (d *directory) deeper(depth uint8) *directory {
	out := newDirectory(depth)
	step := 1 << (depth - d.depth())
	for i := range out.segments {
		seg := d.segments[i/step].Load()
		out.segments[i].Store(seg)
		out.lines[i] = seg.lines
	}
	return out
}

// void maps all positions of d to lines without entries, and to no segment that could be locked.
func (d *directory) void(segmentBytes int64) *directory {
	lines := unsafe.Pointer(unsafe.SliceData(make([]line, segmentBytes/lineBytes)))
	for i := range d.lines {
		d.lines[i] = lines
	}
	return d
}
