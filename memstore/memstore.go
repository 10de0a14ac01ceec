// Package memstore counts windows in this process's memory, exactly, within a bound, and keeps them in a file where it is
// given one.
//
// The counts are in one flat table, 16 bytes a window and no pointer among them: a keyed hash of the key, and a word of count
// and reset. A take finds its word, reads the clock, and swaps the word if it is still the same; only a new key locks
// something, its segment of the table. Entries whose window has ended are used again where they lie: no goroutine sweeps, no
// timer runs. A segment that is full is rewritten, alone, so the table grows and shrinks in steps of a few dozen microseconds.
//
// A flood of distinct keys cannot push a live count out. At the bound, keys that have no entry share budgets: they may be
// refused early, and nobody ever gets more than the limit.
//
// With Options.File the table is a mapping of that file: the kernel has every count the moment it is made, so the end of the
// process, also by kill -9, loses none. What a power cut can lose is what the kernel had not written to the disk yet, the last
// half minute or so: those windows may then admit again what they had admitted already.
package memstore

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

const (
	// DefaultMemory bounds the table where Options.Memory is 0.
	DefaultMemory = 256 << 20
	// LeastMemory is the smallest bound that is accepted.
	LeastMemory = 1 << 20
)

// Options are the store's settings; the zero value is useful.
type Options struct {
	// Memory bounds the table, in bytes; 0 means DefaultMemory. Less than LeastMemory is an error: no bound is never
	// meant. A file that is larger already is read whole, and shrinks as its windows end.
	Memory int64

	// Now is the clock; nil means time.Now. It is anchored once, by New, and advanced by the difference of readings from
	// then on, which for time.Now is the monotonic clock's: setting the wall clock moves no window (D6).
	Now func() time.Time

	// File is where the counts are kept so that they outlive the process; it is created where there is none, for its owner
	// alone. Empty means in memory only. The lock that keeps a second process out is a file beside it, File + ".lock"; grants are
	// in another, File + ".grants".
	// On systems other than Linux New returns an error that wraps ErrNoMapping.
	File string

	// Name says who holds File, to whoever finds it locked; empty means the name of the program.
	Name string

	// Log hears of what an operator should know: a file that was set aside, a disk that is full, a table that is nearly
	// full or has begun to share budgets. Nil means nobody does.
	Log *slog.Logger
}

// ErrClosed is what Take returns after Close.
var ErrClosed = errors.New("the store is closed")

// A Store is an in-process weir.Store. It is safe for concurrent use, and its Take returns no error but ErrClosed.
type Store struct {
	clock *register
	seed  seed
	table *table

	sharedUntil *atomic.Uint64 // the last reset of a shared budget
	shared      atomic.Int64   // takes counted in one

	memory int64
	alarm  alarm
	closed atomic.Bool
	stop   chan struct{} // ends the checking
	done   sync.WaitGroup
	ground ground

	grants grants
}

var _ weir.InProcess = (*Store)(nil)

// New returns a store: empty, or with the counts that File has.
func New(o Options) (*Store, error) {
	memory := o.Memory
	if memory == 0 {
		memory = DefaultMemory
	}
	if memory < LeastMemory {
		return nil, fmt.Errorf("new memstore: %d bytes of memory are too few: at least %d (%d MiB) are needed, 0 means %d (%d MiB)",
			memory, LeastMemory, LeastMemory>>20, DefaultMemory, DefaultMemory>>20)
	}
	o.Memory = memory
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := open(o, defaultLines)
	if err != nil {
		return nil, fmt.Errorf("new memstore: %w", err)
	}
	return s, nil
}

// defaultLines is how many lines a segment has: 32 KiB of them, so that rewriting one takes some dozen microseconds.
const defaultLines = 512

// open is New with segments of any power of two of lines.
func open(o Options, lines int64) (*Store, error) {
	segmentBytes := lines * lineBytes
	s := &Store{
		clock:       newRegister(o.Now),
		sharedUntil: new(atomic.Uint64),
		memory:      o.Memory,
		alarm:       alarm{log: o.Log},
		stop:        make(chan struct{}),
	}
	if o.File != "" {
		if err := s.openFile(o, segmentBytes); err != nil {
			return nil, err
		}
		return s, nil
	}
	most := mostSegments(o.Memory, segmentBytes)
	s.seed = newSeed()
	ground, err := newMemory(segmentBytes, most)
	if err != nil {
		return nil, err
	}
	s.hold(ground)
	s.table = newTable(&arena{ground: ground, segmentBytes: segmentBytes, most: most}, s.clock)
	return s, s.table.start()
}

// mostSegments returns how many segments there may be; one more there may be while some are rewritten. Beside its entries a
// segment needs what is known about it, its part of the directory, and its record in the file.
func mostSegments(memory, segmentBytes int64) int {
	const overhead = 384
	return int(memory/(segmentBytes+overhead)) - 1
}

// hold has the ground let go when the store is forgotten: no earlier, since a take may be looking at it.
func (s *Store) hold(g ground) {
	s.ground = g
	runtime.AddCleanup(s, func(g ground) { g.close() }, g)
}

// InProcess marks the store as one that never waits.
func (s *Store) InProcess() {}

// Close lets the file go, marked as closed in good order; later takes return ErrClosed. A take that is running meanwhile is
// counted, or returns ErrClosed. Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.grants.close()
	close(s.stop)
	s.done.Wait()
	s.table.retire()
	s.table.mu.Lock()
	s.table.closed = true
	s.table.directory.Store(newDirectory(1).void(s.table.arena.segmentBytes))
	s.table.mu.Unlock()
	return s.ground.finish() // the memory goes when the last take that may still look at it has gone
}

// Stats says how full the store is.
type Stats struct {
	Keys     int64 // entries held, ended ones that nobody has reused yet included
	Capacity int64 // entries that fit into Options.Memory, about
	Bytes    int64 // memory that the table holds
	Memory   int64 // Options.Memory
	Shared   int64 // charges so far that were counted in a shared budget, because the table was full
}

// Stats returns the present figures. It looks at one segment after the other and is no snapshot.
func (s *Store) Stats() Stats {
	_, held := s.table.arena.state()
	st := Stats{
		Capacity: int64(s.table.arena.most) * int64(s.table.slots) * fillPerMille / 1000,
		Bytes:    int64(held) * s.table.arena.segmentBytes,
		Memory:   s.memory,
		Shared:   s.shared.Load(),
	}
	for position := uint64(0); ; {
		seg := s.table.segmentAt(position)
		if seg == nil {
			return st
		}
		if !s.table.lock(seg) {
			continue
		}
		st.Keys += int64(seg.occupied)
		seg.mu.Unlock()
		if position = seg.scope.end(); position == 0 {
			runtime.KeepAlive(s)
			return st
		}
	}
}

// fillPerMille is how full segments are on average, between a split and the next.
const fillPerMille = 650
