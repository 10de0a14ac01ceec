package memstore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// mostGrants bounds the grants that are in force at a time: a map of about a megabyte.
const mostGrants = weir.MaxGrants

// A holder stands for one key that has a grant: 128 bits of its keyed hash, since grants are few and must meet nobody else.
type holder struct{ hi, lo uint64 }

func (s seed) holder(key []byte) holder {
	hi, lo := siphash.Hash128(s.k0, s.k1, key)
	return holder{hi, lo}
}

// grants are what an operator has granted. Who reads them loads one pointer; who writes replaces the whole, in the file first.
type grants struct {
	now atomic.Pointer[granted] // nil: there are none

	mu   sync.Mutex // held to write
	file string     // empty: they end with the process
}

// close waits for whoever writes the file. The store is closed, so nobody does from then on.
func (g *grants) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.file = ""
}

// granted is the grants at one time. It is immutable.
type granted struct {
	of   map[holder]weir.Grant
	last int64 // when the last of them ends
}

// newGranted keeps those of all that have not ended at now; nil where none is left.
func newGranted(all map[holder]weir.Grant, now int64) *granted {
	g := &granted{of: make(map[holder]weir.Grant, len(all))}
	for who, grant := range all {
		if grant.Until > now {
			g.of[who] = grant
			g.last = max(g.last, grant.Until)
		}
	}
	if len(g.of) == 0 {
		return nil
	}
	return g
}

// all returns the grants; g may be nil.
func (g *granted) all() map[holder]weir.Grant {
	if g == nil {
		return nil
	}
	return g.of
}

// Granted implements weir.Keeper. While nobody has a grant it is one load.
func (s *Store) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	g := s.grants.now.Load()
	if g == nil {
		return false
	}
	return s.lookUp(g, charges, grants)
}

func (s *Store) lookUp(g *granted, charges []weir.Charge, grants []weir.Grant) (found bool) {
	now := s.clock.now()
	if now >= g.last {
		s.grants.now.CompareAndSwap(g, nil) // else they have just been written anew
		clear(grants[:len(charges)])
		return false
	}
	for i := range charges {
		grants[i] = g.of[s.seed.holder(charges[i].Key)]
		if grants[i].Until <= now {
			grants[i] = weir.Grant{}
		}
		found = found || grants[i] != weir.Grant{}
	}
	return found
}

// Grant implements weir.Keeper: all are given, or none. With Options.File they are on the disk when it returns, in a file of their
// own beside that one, File + ".grants". A grant whose Until is not to come is the zero Grant. It errs where it has ErrClosed to
// say, where more than weir.MaxGrants would be in force, where a grant cannot be one, and where the file cannot be written: then
// nothing has changed, but where only its folder could not be synced a restart may find it given. It waits for the disk, and looks
// at ctx before that.
func (s *Store) Grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	err := s.grant(ctx, charges, given)
	runtime.KeepAlive(s)
	if err != nil {
		return fmt.Errorf("grant %d windows other limits: %w", len(charges), err)
	}
	return nil
}

func (s *Store) grant(ctx context.Context, charges []weir.Charge, given []weir.Grant) error {
	if len(charges) != len(given) {
		return fmt.Errorf("%d grants: as many as windows are needed", len(given))
	}
	for _, g := range given {
		if err := checkGrant(g); err != nil {
			return err
		}
	}
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if s.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	old := s.grants.now.Load()
	next := make(map[holder]weir.Grant, len(old.all())+len(charges))
	for who, g := range old.all() {
		next[who] = g
	}
	for i := range charges {
		if who := s.seed.holder(charges[i].Key); given[i].Limit > 0 {
			next[who] = given[i]
		} else {
			delete(next, who)
		}
	}
	fresh := newGranted(next, s.clock.now())
	if n := len(fresh.all()); n > mostGrants {
		return fmt.Errorf("%d grants would be in force: at most %d are kept, take some back", n, mostGrants)
	}
	if s.grants.file != "" {
		if err := writeGrants(s.grants.file, s.seed, fresh.all()); err != nil {
			return err
		}
	}
	s.grants.now.Store(fresh)
	return nil
}

// checkGrant says why a grant cannot be one.
func checkGrant(g weir.Grant) error {
	if g.Limit < 0 || g.Limit > weir.MaxLimit {
		return fmt.Errorf("a limit of %d: 1 to %d is allowed, 0 takes a grant back", g.Limit, weir.MaxLimit)
	}
	if g.Until < 0 || g.Until > maxSecond {
		return fmt.Errorf("until second %d: 0 to %d is allowed", g.Until, int64(maxSecond))
	}
	return nil
}

// openGrants reads the grants that file has, of the counts that the store has opened.
func (s *Store) openGrants(file string, log *slog.Logger) error {
	all, err := readGrants(file, s.seed, log)
	if err != nil {
		return err
	}
	s.grants.file = file
	s.grants.now.Store(newGranted(all, s.clock.now()))
	return nil
}
