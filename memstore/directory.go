package memstore

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A segment is a small hash table of its own: lines with open addressing, for one range of positions. Its memory holds
// nothing but entries; this is what is known about it beside them.
type segment struct {
	id    uint32
	lines unsafe.Pointer
	scope scope

	mu       sync.Mutex // held to add keys and to rewrite; in order of id where several are
	gone     bool       // rewritten into others: look again
	checked  bool       // nothing is left in it of a process that died
	occupied int        // slots that are not vacant; -1: nobody has counted yet
	live     int        // windows open when they were last counted,
	counted  int64      // in this second
}

// A scope is a range of positions: all whose first depth bits are those of prefix.
type scope struct {
	prefix uint64
	depth  uint8
}

func (s scope) covers(position uint64) bool {
	return s.depth == 0 || (position^s.prefix)>>(64-s.depth) == 0
}

// end returns the first position after s, or 0 where there is none.
func (s scope) end() uint64 { return s.prefix + 1<<(64-s.depth) }

// halves returns the two scopes that s consists of.
func (s scope) halves() [2]scope {
	return [2]scope{{s.prefix, s.depth + 1}, {s.prefix | 1<<(63-s.depth), s.depth + 1}}
}

// whole returns the scope that s is a half of, and buddy its other half.
func (s scope) whole() scope {
	return scope{s.prefix &^ (1 << (64 - s.depth)), s.depth - 1}
}

func (s scope) buddy() scope { return scope{s.prefix ^ 1<<(64-s.depth), s.depth} }

// A directory finds the segment of a position by its first bits. Its size never changes: a table that needs more bits makes
// a new one. Takes read it without a lock; whoever changes it holds the table's.
type directory struct {
	shift    uint             // 64 less the number of bits, of which there is one at least
	lines    []unsafe.Pointer // what a hit needs, and nothing else
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

// put has all positions of seg's scope lead to seg.
func (d *directory) put(seg *segment) {
	first := seg.scope.prefix >> (d.shift & 63)
	for i := first; i < first+1<<(d.depth()-seg.scope.depth); i++ {
		d.segments[i].Store(seg)
		atomic.StorePointer(&d.lines[i], seg.lines)
	}
}

// deeper returns a directory of at least depth bits that says the same.
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

// void returns d leading nowhere: to a segment without entries, which nobody can lock.
func (d *directory) void(segmentBytes int64) *directory {
	lines := unsafe.Pointer(unsafe.SliceData(make([]line, segmentBytes/lineBytes)))
	for i := range d.lines {
		d.lines[i] = lines
	}
	return d
}
