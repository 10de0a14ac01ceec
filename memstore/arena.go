package memstore

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// An arena hands out the memory of segments, all of one size, up to a bound. Segments are numbered from 0, and a number
// always stands for the same place. It grows by a chunk of segments at a time and gives back what is no longer needed.
type arena struct {
	ground       ground
	segmentBytes int64
	most         int // segments that the bound allows

	mu     sync.Mutex
	chunks int      // that there are
	used   int      // segments handed out
	ready  []uint32 // free ones with memory
	bare   []uint32 // free ones without
	full   error    // why the ground could not be extended the last time,
	fullAt int64    // in this second
}

// adopt makes an arena of the chunks that a file has, with those segments in use.
func (a *arena) adopt(chunks int, found []record) {
	use := make(map[uint32]bool, len(found))
	for _, r := range found {
		use[r.id] = true
	}
	for id := chunks*chunkSegments - 1; id >= 0; id-- {
		if !use[uint32(id)] {
			a.bare = append(a.bare, uint32(id))
		}
	}
	a.chunks, a.used = chunks, len(found)
}

// chunkSegments is how many segments the ground is extended by.
const chunkSegments = 32

// A ground is where the memory comes from.
type ground interface {
	// extend makes the segments of one more chunk usable; they are all zero.
	extend(chunk int) error
	// lines returns where a segment is.
	lines(id uint32) unsafe.Pointer
	// clear makes a free segment all zero.
	clear(id uint32)
	// release gives back the memory of a free segment, or reports that it cannot. restore gets memory anew, all zero.
	release(id uint32) bool
	restore(id uint32) error
	// publish records which positions a segment holds, so that a later process finds it; withdraw that it is free.
	publish(id uint32, s scope)
	withdraw(id uint32)
	// finish closes the file in good order, and lets another process have it; the memory stays. close lets that go too.
	finish() error
	close() error
}

var errBound = errors.New("the bound is reached")

// allot hands out a segment, all zero. Where none is left the error says why: the bound, or what kept the ground from
// growing, which is tried once a second. What makes the table larger leaves spare segments at hand; what makes it no larger
// has none to spare, and may exceed the bound for the moment until it gives back the old ones.
func (a *arena) allot(s scope, spare int, now int64) (*segment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := a.free(spare, now)
	if err != nil {
		return nil, err
	}
	a.used++
	return &segment{id: id, lines: a.ground.lines(id), scope: s, checked: true}, nil
}

func (a *arena) free(spare int, now int64) (uint32, error) {
	if spare > 0 && a.used >= a.most {
		return 0, errBound
	}
	if n := len(a.ready); n > spare {
		id := a.ready[n-1]
		a.ready = a.ready[:n-1]
		a.ground.clear(id)
		return id, nil
	}
	if a.full != nil && a.fullAt == now {
		return 0, a.full
	}
	a.full, a.fullAt = nil, now
	if n := len(a.bare); n > 0 {
		id := a.bare[n-1]
		if err := a.ground.restore(id); err != nil {
			a.full = fmt.Errorf("get back %d bytes for the table: %w", a.segmentBytes, err)
			return 0, a.full
		}
		a.bare = a.bare[:n-1]
		return id, nil
	}
	if err := a.ground.extend(a.chunks); err != nil {
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

// giveBack takes a segment back. A part of what is in use is kept at hand, the rest returns to the system.
func (a *arena) giveBack(id uint32) {
	a.ground.withdraw(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used--
	a.ready = append(a.ready, id)
	for len(a.ready) > min(chunkSegments+a.used/8, max(a.most-a.used, 1)) {
		last := a.ready[len(a.ready)-1]
		if !a.ground.release(last) {
			return
		}
		a.ready = a.ready[:len(a.ready)-1]
		a.bare = append(a.bare, last)
	}
}

// state returns the segments handed out, and those that hold memory.
func (a *arena) state() (used, held int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used, a.used + len(a.ready)
}

// A heap is memory of the Go runtime's, which the race detector watches. It never writes to memory that it gave out before:
// a take that was held up may still be reading it.
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
func (h *heap) release(id uint32) bool  { h.segments[id] = nil; return true }
func (h *heap) restore(id uint32) error { h.clear(id); return nil }
func (h *heap) publish(uint32, scope)   {}
func (h *heap) withdraw(uint32)         {}
func (h *heap) finish() error           { return nil }
func (h *heap) close() error            { return nil }
