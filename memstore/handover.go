package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/weirlimit/weir"
)

// A State is what a store knows beside its file, for the process that continues with the file. It
// is written as JSON. Only the process that gets the file may use it, and only once.
type State struct {
	// Slots are those that are held, by the hash of their key.
	Slots map[uint64]int64
	// Resets are the windows whose takes must not be settled.
	Resets Resets
	// Backs is how often the clock was set back.
	Backs int64
	// Seed identifies the counts that the hashes belong to.
	Seed uint64
	// Wall is the store's clock, in Unix nanoseconds, when the machine's monotonic clock was
	// Monotonic. If Monotonic is 0, the next store reads the wall clock.
	Wall, Monotonic int64

	// Lock keeps other processes from the file until it is closed in every process that has it. It
	// is passed as a file. The store that continues closes it in the end; if New fails, it does
	// not. If nil, New locks the file.
	Lock *os.File `json:"-"`
}

// Resets are the open windows that an operator has reset, for a State.
type Resets struct {
	Last, Floor uint64
	Of          map[uint64]WindowReset
}

// A WindowReset is one of Resets.
type WindowReset struct {
	Number uint64
	Until  int64 // in Unix seconds
	Raised bool
}

// A detacher is a backing whose file can be left to another process.
type detacher interface {
	// detach releases the file, but for the lock, which it returns. The memory of the backing is
	// empty then, and no longer the file's.
	detach() (lock *os.File, err error)
}

// inFile returns what holds the counts if that is a file, or nil.
func (s *Store) inFile() detacher {
	if b, ok := s.backing.(detacher); ok && s.file != "" {
		return b
	}
	return nil
}

// HandOver closes the store, as Close does, for another process that opens File with the returned
// State as Options.Continue. That process counts from where this one has stopped: a take or a
// settlement of this store either was counted before, or returns ErrClosed and has changed nothing.
// There is no instant at which both count, and none at which a third process could open File. It
// takes as long as Close.
//
// HandOver returns an error if the store is closed (ErrClosed), which then stays as it is, and if
// the counts are not in a file (ErrNoMapping), which changes nothing. After another error the store
// is closed, and the State may still be used.
func (s *Store) HandOver() (*State, error) {
	b := s.inFile()
	if b == nil {
		return nil, fmt.Errorf("hand counts over: %w", ErrNoMapping)
	}
	if s.closed.Swap(true) {
		return nil, fmt.Errorf("hand counts over: %w", ErrClosed)
	}
	s.stopCounting()
	state := &State{
		Slots:  s.slots.takeAll(),
		Resets: s.resets.state(),
		Backs:  s.clock.setBacks(),
		Seed:   s.seed.fingerprint(),
	}
	var err error
	state.Lock, err = b.detach()
	if s.clock.source == nil {
		// In this order the next clock is never behind this one.
		state.Monotonic = monotonic()
		state.Wall = s.clock.wall + int64(time.Since(s.clock.start))
	}
	if err != nil {
		return state, fmt.Errorf("hand over the counts in %s: %w", s.file, err)
	}
	return state, nil
}

// resume continues from the state of the process that had the file before. It is called before
// anything reads the clock.
func (s *Store) resume(state *State, now func() time.Time) {
	if state == nil || state.Seed != s.seed.fingerprint() {
		return
	}
	if now == nil && state.Monotonic > 0 {
		s.clock.continueFrom(state.Wall, state.Monotonic)
	}
	s.clock.backs.Store(state.Backs)
	s.slots.addAll(state.Slots, 1)
	s.resets.resume(state.Resets)
}

// continueFrom makes r continue a clock that had the time wall, in Unix nanoseconds, when the
// machine's monotonic clock was then.
func (r *secondClock) continueFrom(wall, then int64) {
	r.start = time.Now()
	r.wall = wall + monotonic() - then
	r.second.Store(r.read())
}

// state returns the resets as a State has them.
func (r *resets) state() Resets {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Resets{Last: r.last.Load(), Floor: r.floor, Of: make(map[uint64]WindowReset, len(r.of))}
	for hash, w := range r.of {
		out.Of[hash] = WindowReset{w.number, w.until, w.raised}
	}
	return out
}

func (r *resets) resume(from Resets) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Store(from.Last)
	r.floor, r.of = from.Floor, make(map[uint64]windowReset, len(from.Of))
	for hash, w := range from.Of {
		r.of[hash] = windowReset{w.Number, w.Until, w.Raised}
	}
}

// ReadGrants reads the grants in the file of a store that was handed over, so that Granted knows
// those that the next process was given. It changes nothing if the file cannot be read.
func (s *Store) ReadGrants() error {
	if !s.closed.Load() || s.file == "" {
		return errors.New("read grants: the store was not handed over")
	}
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	path := s.file + ".grants"
	all, fingerprint, err := loadGrants(path)
	if err != nil {
		return fmt.Errorf("read grants in %s: %w", path, err)
	}
	if fingerprint == s.seed.fingerprint() || len(all) == 0 {
		s.grants.current.Store(newGrantSet(all, s.clock.now()))
	}
	return nil
}

// A Guest counts in a store for another process. The slots that it holds are given back when it
// leaves, as if that process had ended. A Guest is for one goroutine at a time.
type Guest struct {
	store *Store
	held  map[uint64]int64 // by the hash of the key
}

// Guest returns a guest that holds slots, which the store counts already: nil, or those that Held
// of the same guest has returned in another process.
func (s *Store) Guest(held map[uint64]int64) *Guest {
	g := &Guest{s, make(map[uint64]int64, len(held))}
	maps.Copy(g.held, held)
	return g
}

// Take is Store.Take for the guest.
func (g *Guest) Take(charges []weir.Charge, receipt *weir.Receipt) error {
	err := g.store.Take(context.Background(), charges, receipt)
	if err != nil || !receipt.Allowed {
		return err
	}
	for i := range charges {
		if c := &charges[i]; c.Held && c.Cost > 0 {
			g.held[g.store.slots.hash(c.Key)] += c.Cost
		}
	}
	return nil
}

// Settle is Store.Settle for the guest.
func (g *Guest) Settle(t *weir.Ticket, changes []weir.Change) error {
	err := g.store.Settle(context.Background(), t, changes)
	for i := range changes {
		c := &changes[i]
		if !c.Held || !c.Done {
			continue
		}
		hash := g.store.slots.hash(c.Key)
		if n := g.held[hash] + max(c.Units, -c.Cost); n > 0 {
			g.held[hash] = n
		} else {
			delete(g.held, hash)
		}
	}
	return err
}

// Held returns the slots that the guest holds, by the hash of their key. They must not be changed.
func (g *Guest) Held() map[uint64]int64 { return g.held }

// Leave gives back the slots that the guest holds. It must not be used after that.
func (g *Guest) Leave() {
	g.store.slots.addAll(g.held, -1)
	clear(g.held)
}
