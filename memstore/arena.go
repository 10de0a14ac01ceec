package memstore

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// An arena allocates segments, all of one size, up to a bound. Segments are numbered from 0, and a
// number is always the same place in memory. The arena grows by a chunk of segments at a time, and
// returns memory to the system that is no longer needed.
type arena struct {
	backing      backing
	segmentBytes int64
	limit        int // segments that the bound allows

	mu       sync.Mutex
	chunks   int      // chunks that exist
	used     int      // segments in use
	ready    []uint32 // free segments with memory
	unbacked []uint32 // free segments without memory
	full     error    // why the backing could not be extended the last time
	fullAt   int64    // the second in which that was
}

// adopt sets the arena up for the chunks of a file, with the found segments in use.
func (a *arena) adopt(chunks int, found []record) {
	use := make(map[uint32]bool, len(found))
	for _, r := range found {
		use[r.id] = true
	}
	for id := chunks*chunkSegments - 1; id >= 0; id-- {
		if !use[uint32(id)] {
			a.unbacked = append(a.unbacked, uint32(id))
		}
	}
	a.chunks, a.used = chunks, len(found)
}

// chunkSegments is the number of segments by which the backing is extended.
const chunkSegments = 32

// A backing provides the memory of segments.
type backing interface {
	// extend makes the segments of one more chunk usable. They are zeroed.
	extend(chunk int) error
	// lines returns the address of a segment.
	lines(id uint32) unsafe.Pointer
	// clear zeroes a free segment.
	clear(id uint32)
	// discard returns the memory of a free segment to the system, or reports that it cannot.
	discard(id uint32) bool
	// restore allocates the memory of a discarded segment again, zeroed.
	restore(id uint32) error
	// publish records which positions a segment holds, so that a later process finds it.
	publish(id uint32, s scope)
	// withdraw records that a segment is free.
	withdraw(id uint32)
	// close unlocks the file, if there is one, and frees the memory.
	close() error
}

var errBound = errors.New("the bound is reached")

// acquire returns a zeroed segment. If there is none it returns errBound, or the error that kept
// the backing from growing, which is retried once a second. A caller that makes the table larger
// leaves spare segments in reserve. One that does not passes 0, and may exceed the bound for a
// moment until it releases the old segments.
func (a *arena) acquire(s scope, spare int, now int64) (*segment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := a.free(spare, now)
	if err != nil {
		return nil, err
	}
	a.used++
	return &segment{id: id, lines: a.backing.lines(id), scope: s, checked: true}, nil
}

func (a *arena) free(spare int, now int64) (uint32, error) {
	if spare > 0 && a.used >= a.limit {
		return 0, errBound
	}
	if n := len(a.ready); n > spare {
		id := a.ready[n-1]
		a.ready = a.ready[:n-1]
		a.backing.clear(id)
		return id, nil
	}
	if a.full != nil && a.fullAt == now {
		return 0, a.full
	}
	a.full, a.fullAt = nil, now
	if n := len(a.unbacked); n > 0 {
		id := a.unbacked[n-1]
		if err := a.backing.restore(id); err != nil {
			a.full = fmt.Errorf("restore %d bytes of the table: %w", a.segmentBytes, err)
			return 0, a.full
		}
		a.unbacked = a.unbacked[:n-1]
		return id, nil
	}
	if err := a.backing.extend(a.chunks); err != nil {
		a.full = fmt.Errorf("extend the table by %d bytes: %w", chunkSegments*a.segmentBytes, err)
		return 0, a.full
	}
	first := uint32(a.chunks * chunkSegments)
	for id := first + chunkSegments - 1; id > first; id-- {
		a.ready = append(a.ready, id)
	}
	a.chunks++
	return first, nil
}

// release takes a segment back. Some free segments keep their memory, in proportion to those in
// use; the memory of the rest returns to the system.
func (a *arena) release(id uint32) {
	a.backing.withdraw(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used--
	a.ready = append(a.ready, id)
	for len(a.ready) > min(chunkSegments+a.used/8, max(a.limit-a.used, 1)) {
		last := a.ready[len(a.ready)-1]
		if !a.backing.discard(last) {
			return
		}
		a.ready = a.ready[:len(a.ready)-1]
		a.unbacked = append(a.unbacked, last)
	}
}

// state returns the number of segments in use, and of those that hold memory.
func (a *arena) state() (used, held int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used, a.used + len(a.ready)
}

// A heap is a backing in Go's heap, which the race detector can observe. It never clears memory
// that was in use, since a delayed take may still read that; it allocates new memory instead.
type heap struct {
	segmentBytes int64
	segments     [][]entry
}

func newHeap(segmentBytes int64) *heap { return &heap{segmentBytes: segmentBytes} }

func (h *heap) extend(int) error {
	for range chunkSegments {
		h.segments = append(h.segments, nil)
		h.clear(uint32(len(h.segments) - 1))
	}
	return nil
}

func (h *heap) clear(id uint32) {
	h.segments[id] = make([]entry, h.segmentBytes/int64(unsafe.Sizeof(entry{})))
}

func (h *heap) lines(id uint32) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(h.segments[id]))
}
func (h *heap) discard(id uint32) bool  { h.segments[id] = nil; return true }
func (h *heap) restore(id uint32) error { h.clear(id); return nil }
func (h *heap) publish(uint32, scope)   {}
func (h *heap) withdraw(uint32)         {}
func (h *heap) close() error            { return nil }
