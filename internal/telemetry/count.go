package telemetry

import (
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Lanes split counters by core, so that two cores that increment the same counter do not contend
// for one cache line (which costs 30 ns or more for each of several counters). A sync.Pool keeps
// the lane that each core used last.
type lanes struct {
	n    int // a power of two
	next atomic.Uint32
	pool sync.Pool
}

type lane struct {
	i    int
	last lastServed
}

// maxLanes bounds the memory of a series: 128 bytes a lane.
const maxLanes = 64

func newLanes() *lanes {
	l := &lanes{n: 1}
	for l.n < runtime.GOMAXPROCS(0) && l.n < maxLanes {
		l.n *= 2
	}
	l.pool.New = func() any { return &lane{i: int(l.next.Add(1)) & (l.n - 1)} }
	return l
}

// get returns a lane. The caller returns it with put.
func (l *lanes) get() *lane     { return l.pool.Get().(*lane) }
func (l *lanes) put(mine *lane) { l.pool.Put(mine) }

// slots is the number of counters in a series.
const slots = 8

// A cell is one lane of a series. It fills two cache lines, since processors fetch them in pairs.
type cell struct {
	n [slots]atomic.Uint64
	_ [128 - 8*slots]byte
}

// names are the labels of a series, from a policy and the command line. They are empty for requests
// that no limiter covers.
type names struct{ limiter, window, site string }

// A series holds the counters of one limiter, or of one of its windows.
type series struct {
	names
	cells []cell
	gone  time.Time // when it left the policies; zero if it is in one
}

// total returns the sum of the lanes of one slot. It may or may not include concurrent increments,
// and never decreases.
func (s *series) total(slot int) (n uint64) {
	for i := range s.cells {
		n += s.cells[i].n[slot].Load()
	}
	return n
}

// A family is the set of series of one kind. A series is found without a lock, by K: the name of a
// limiter, or a pointer to a window of the compiled policy. If another policy replaces that one,
// its pointers lead to the same series.
type family[K comparable] struct {
	lanes int
	inUse func(*series) bool // whether a series must not expire yet; nil: none
	found atomic.Pointer[map[K]*series]

	mu  sync.Mutex
	all map[names]*series
}

func (f *family[K]) init(lanes int) {
	f.lanes, f.all = lanes, map[names]*series{}
	f.found.Store(&map[K]*series{})
}

// find returns the series of p, or nil if p is not registered.
func (f *family[K]) find(p K) *series { return (*f.found.Load())[p] }

// register maps p to the series of n and returns that series.
func (f *family[K]) register(p K, n names) *series {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.series(n)
	old := *f.found.Load()
	if len(old) >= 2*len(f.all)+maxStale {
		old = nil // most are pointers into former policies
	}
	found := make(map[K]*series, len(old)+1)
	maps.Copy(found, old)
	found[p] = s
	f.found.Store(&found)
	return s
}

// maxStale bounds the pointers into former policies, which keep their windows in memory.
const maxStale = 64

// size returns the number of series.
func (f *family[K]) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// has reports whether there is a series of n.
func (f *family[K]) has(n names) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[n] != nil
}

// those returns the names of the series that want accepts.
func (f *family[K]) those(want func(names) bool) map[names]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[names]bool, len(f.all))
	for n := range f.all {
		if want(n) {
			out[n] = true
		}
	}
	return out
}

// series returns the series of n and creates it if it does not exist. The caller holds f.mu.
func (f *family[K]) series(n names) *series {
	s := f.all[n]
	if s == nil {
		s = &series{names: n, cells: make([]cell, f.lanes)}
		f.all[n] = s
	}
	return s
}

// sweep creates the series of all names in force, deletes those that left the policies longer than
// keep ago, and returns the others.
func (f *family[K]) sweep(inForce map[names]bool, now time.Time, keep time.Duration) []*series {
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
		case f.inUse != nil && f.inUse(s):
		case now.Sub(s.gone) > keep:
			delete(f.all, n)
			lost = true
			continue
		}
		kept = append(kept, s)
	}
	if lost {
		f.found.Store(&map[K]*series{}) // so that deleted series are not found again
	}
	return kept
}
