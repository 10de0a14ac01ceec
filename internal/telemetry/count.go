package telemetry

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Lanes spread counts, so that two cores that count the same do not take one cache line from each other in turns (which costs
// 30 ns and more for each of several counts). A sync.Pool keeps, for each core, the lane that it used last.
type lanes struct {
	n    int // a power of two
	next atomic.Uint32
	pool sync.Pool
}

type lane struct{ i int }

// mostLanes bounds what a series takes: 128 bytes a lane.
const mostLanes = 64

func newLanes() *lanes {
	l := &lanes{n: 1}
	for l.n < runtime.GOMAXPROCS(0) && l.n < mostLanes {
		l.n *= 2
	}
	l.pool.New = func() any { return &lane{int(l.next.Add(1)) & (l.n - 1)} }
	return l
}

// take returns a lane, which the caller gives back.
func (l *lanes) take() *lane     { return l.pool.Get().(*lane) }
func (l *lanes) give(mine *lane) { l.pool.Put(mine) }

// slots is how many counts a series has.
const slots = 8

// A cell is one lane of a series. Two cache lines, since processors fetch them in pairs.
type cell struct {
	n [slots]atomic.Uint64
	_ [128 - 8*slots]byte
}

// names are the labels of a series, both from a policy: no limiter and no window are those of what no limiter covers.
type names struct{ limiter, window string }

// A series is the counts of one limiter, or of one of its windows.
type series struct {
	names
	cells []cell
	gone  time.Time // since when no policy has it; zero: one has
}

// total adds the lanes of one slot up. A count that is added meanwhile is in it or not; it never goes back.
func (s *series) total(slot int) (n uint64) {
	for i := range s.cells {
		n += s.cells[i].n[slot].Load()
	}
	return n
}

// A family is the series of one kind. They are found by the pointers of the compiled policy, which mean the same for as long as
// it is in force, without a lock; a policy that takes its place brings new pointers to the same series.
type family[P comparable] struct {
	lanes int
	found atomic.Pointer[map[P]*series]

	mu  sync.Mutex
	all map[names]*series
}

func (f *family[P]) init(lanes int) {
	f.lanes, f.all = lanes, map[names]*series{}
	f.found.Store(&map[P]*series{})
}

// find returns what p leads to; nil where nobody has said so yet.
func (f *family[P]) find(p P) *series { return (*f.found.Load())[p] }

// know makes p lead to the series of n.
func (f *family[P]) know(p P, n names) *series {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.series(n)
	old := *f.found.Load()
	if len(old) >= 2*len(f.all)+mostStale {
		old = nil // pointers of policies that are long gone
	}
	found := make(map[P]*series, len(old)+1)
	maps.Copy(found, old)
	found[p] = s
	f.found.Store(&found)
	return s
}

// mostStale is how many pointers of former policies may stay known, and so their policies in memory.
const mostStale = 64

// series returns the series of n, a new one where there is none. f.mu is held.
func (f *family[P]) series(n names) *series {
	s := f.all[n]
	if s == nil {
		s = &series{names: n, cells: make([]cell, f.lanes)}
		f.all[n] = s
	}
	return s
}

// sweep makes series of all that is in force, forgets those that have not been for longer than keep, and returns the others.
func (f *family[P]) sweep(inForce map[names]bool, now time.Time, keep time.Duration) []*series {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range inForce {
		f.series(n)
	}
	kept := make([]*series, 0, len(f.all))
	lost := false
	for n, s := range f.all {
		switch {
		case inForce[n]:
			s.gone = time.Time{}
		case s.gone.IsZero():
			s.gone = now
		case now.Sub(s.gone) > keep:
			delete(f.all, n)
			lost = true
			continue
		}
		kept = append(kept, s)
	}
	if lost {
		f.found.Store(&map[P]*series{}) // so that nobody counts in what was forgotten
	}
	return kept
}
