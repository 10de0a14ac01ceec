// Package memstore counts windows in this process's memory, exactly and within a memory bound. It
// can keep them in a file.
//
// The counts are one flat hash table with 16 bytes a window and no pointers: a keyed hash of the
// key, and a word that holds count and reset. A take looks its word up, reads the clock, and
// replaces the word with a compare-and-swap. Only a new key takes a lock, that of its segment of
// the table. A slot whose window has ended is reused in place, so there is no sweeper goroutine
// and no timer. If a segment is full it is rewritten on its own, so the table grows and shrinks in
// steps of a few dozen microseconds.
//
// A flood of distinct keys cannot evict a live count. At the memory bound, keys that have no entry
// share budgets: they may be refused early, but a caller never gets more than its limit.
//
// With Options.File the table is a memory mapping of that file. The kernel has every count as soon
// as it is made, so no count is lost when the process ends, even by kill -9. A power cut can lose
// what the kernel had not yet written to the disk, about the last half minute: those windows may
// admit again what they had already admitted.
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
	// DefaultMemory is the bound in bytes for an Options.Memory of 0.
	DefaultMemory = 256 << 20
	// MinMemory is the smallest bound that New accepts, in bytes.
	MinMemory = 1 << 20
)

// Options are the store's settings; the zero value is useful.
type Options struct {
	// Memory bounds the table, in bytes. 0 means DefaultMemory; less than MinMemory is an error,
	// so there is no way to ask for an unbounded table. A file that is already larger is read
	// whole, and shrinks as its windows end.
	Memory int64

	// Now is the clock; nil means time.Now. New reads the wall clock once and advances it by the
	// difference of later readings, which for time.Now is the monotonic clock. Setting the wall
	// clock therefore moves no window: the store owns the clock (D6).
	Now func() time.Time

	// File keeps the counts so that they outlive the process. If it does not exist it is created,
	// readable and writable by its owner only. Empty means in memory only. File + ".lock" keeps a
	// second process out, and File + ".grants" holds the grants. On systems other than Linux, New
	// returns an error that wraps ErrNoMapping.
	File string

	// Name is reported to another process that finds File locked; empty means the program's name.
	Name string

	// Continue is what another process has returned by HandOver of the same File. Nil means that
	// File is all that is known: no slot is held, and no take of before can be settled.
	Continue *State

	// Log receives what an operator should know: a file that was set aside, a full disk, a table
	// that is nearly full or has begun to share budgets. Nil discards it.
	Log *slog.Logger
}

// ErrClosed is what Take returns after Close.
var ErrClosed = errors.New("the store is closed")

// A Store is an in-process weir.Store. It is safe for concurrent use. The only error of its Take is
// ErrClosed.
type Store struct {
	clock *secondClock
	seed  seed
	table *table

	sharedUntil *atomic.Uint64 // the latest reset of any shared budget
	shared      atomic.Int64   // charges counted in a shared budget

	file    string // Options.File
	memory  int64
	alarm   alarm
	closed  atomic.Bool
	stop    chan struct{} // ends table.checkAll
	done    sync.WaitGroup
	backing backing

	grants grants
	slots  *slots
	resets resets
}

var _ weir.InProcess = (*Store)(nil)

// New returns a store that is empty, or that has the counts in File. It fails if Memory is below
// MinMemory, if another process uses File (*InUseError), or if File cannot be opened or created. A
// File that is damaged is renamed, reported to Log, and replaced by an empty one.
func New(o Options) (*Store, error) {
	memory := o.Memory
	if memory == 0 {
		memory = DefaultMemory
	}
	if memory < MinMemory {
		return nil, fmt.Errorf("new memstore: %d bytes of memory are too few: at least %d (%d MiB) are needed, 0 means %d (%d MiB)",
			memory, MinMemory, MinMemory>>20, DefaultMemory, DefaultMemory>>20)
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

// defaultLines is the number of lines of a segment. They take 32 KiB, so that a segment can be
// rewritten in a few dozen microseconds.
const defaultLines = 512

// open is New with a given number of lines a segment, which must be a power of two.
func open(o Options, lines int64) (*Store, error) {
	segmentBytes := lines * lineBytes
	s := &Store{
		clock:       newSecondClock(o.Now),
		sharedUntil: new(atomic.Uint64),
		memory:      o.Memory,
		alarm:       alarm{log: o.Log},
		stop:        make(chan struct{}),
		slots:       newSlots(),
	}
	if o.File != "" {
		if err := s.openFile(o, segmentBytes); err != nil {
			return nil, err
		}
		return s, nil
	}
	limit := maxSegments(o.Memory, segmentBytes)
	s.seed = newSeed()
	s.slots.seed = s.seed
	backing, err := newMemory(segmentBytes, limit)
	if err != nil {
		return nil, err
	}
	s.own(backing)
	s.table = newTable(&arena{backing: backing, segmentBytes: segmentBytes, limit: limit}, s.clock)
	return s, s.table.start()
}

// maxSegments returns how many segments fit into a memory bound. One more may exist while a segment
// is rewritten. The overhead of a segment is its struct, its part of the directory and its record
// in the file.
func maxSegments(memory, segmentBytes int64) int {
	const overhead = 384
	return int(memory/(segmentBytes+overhead)) - 1
}

// own sets the store's backing, and closes it once the store is unreachable. It cannot be closed
// earlier, because a take may still read it.
func (s *Store) own(b backing) {
	s.backing = b
	runtime.AddCleanup(s, func(b backing) { b.close() }, b)
}

// InProcess marks the store as one that never waits.
func (s *Store) InProcess() {}

// Close marks the file as cleanly closed and unlocks it. Later takes return ErrClosed. A take that
// runs at the same time is counted, or returns ErrClosed and has changed nothing. With a file it
// freezes each entry once: that takes about a millisecond for each 40,000 keys. Closing again does
// nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stopCounting()
	b := s.inFile()
	if b == nil {
		return nil // own's cleanup frees the memory, once no take can read it any more
	}
	lock, err := b.detach()
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// stopCounting returns when no take of the closed store can count any more, and nothing rewrites
// its table. In a file every entry is frozen then, so that even a take that is delayed for long
// cannot change an entry that the next process has unfrozen: before that one can open the file,
// detach takes it out of this store's memory.
func (s *Store) stopCounting() {
	s.grants.close()
	close(s.stop)
	s.done.Wait()
	if s.inFile() != nil {
		s.table.quiesce()
	} else {
		s.table.retire()
	}
	s.table.empty()
}

// Stats describes how full the store is.
type Stats struct {
	// Entries held, including ended ones whose slot has not been reused yet.
	Keys     int64 `json:"keys"`
	Capacity int64 `json:"capacity"` // about how many entries fit into Options.Memory
	Bytes    int64 `json:"bytes"`    // bytes of memory that the table holds
	Memory   int64 `json:"memory"`   // Options.Memory, or the default
	// charges so far that were counted in a shared budget, because the table was full
	Shared int64 `json:"shared"`
}

// Stats returns the current figures. It reads one segment after the other, so it is not a snapshot
// of one instant.
func (s *Store) Stats() Stats {
	_, held := s.table.arena.state()
	st := Stats{
		Capacity: int64(s.table.arena.limit) * int64(s.table.slots) * fillPerMille / 1000,
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

// fillPerMille is how full segments are on average, from one split to the next.
const fillPerMille = 650
