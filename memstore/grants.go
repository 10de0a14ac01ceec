package memstore

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// maxGrants bounds the grants in force at a time. Their map takes about a megabyte.
const maxGrants = weir.MaxGrants

// A grantKey identifies one key that has a grant by 128 bits of its keyed hash, which is enough
// that no other key ever gets its grant.
type grantKey struct{ hi, lo uint64 }

func (s seed) grantKey(key []byte) grantKey {
	hi, lo := siphash.Hash128(s.k0, s.k1, key)
	return grantKey{hi, lo}
}

// grants are the limits that an operator has granted. A reader loads one pointer. A writer replaces
// the whole set, first in the file and then in memory.
type grants struct {
	current atomic.Pointer[grantSet] // nil means none

	mu   sync.Mutex // held to write
	file string     // empty if grants are kept in memory only
}

// close waits for a writer. The store is closed already, so none begins afterwards.
func (g *grants) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.file = ""
}

// A grantSet is an immutable set of grants.
type grantSet struct {
	of   map[grantKey]weir.Grant
	last int64 // when the last of them ends
}

// newGrantSet returns those of all that have not ended at now, or nil if none is left.
func newGrantSet(all map[grantKey]weir.Grant, now int64) *grantSet {
	g := &grantSet{of: make(map[grantKey]weir.Grant, len(all))}
	for key, grant := range all {
		if grant.Until > now {
			g.of[key] = grant
			g.last = max(g.last, grant.Until)
		}
	}
	if len(g.of) == 0 {
		return nil
	}
	return g
}

// all returns the grants; g may be nil.
func (g *grantSet) all() map[grantKey]weir.Grant {
	if g == nil {
		return nil
	}
	return g.of
}

// Granted implements weir.Keeper. If there are no grants it costs one atomic load.
func (s *Store) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	g := s.grants.current.Load()
	if g == nil {
		return false
	}
	return s.lookUp(g, charges, grants)
}

func (s *Store) lookUp(g *grantSet, charges []weir.Charge, grants []weir.Grant) (found bool) {
	now := s.clock.now()
	if now >= g.last {
		s.grants.current.CompareAndSwap(g, nil) // fails if a writer has just replaced the set
		clear(grants[:len(charges)])
		return false
	}
	for i := range charges {
		grants[i] = g.of[s.seed.grantKey(charges[i].Key)]
		if grants[i].Until <= now {
			grants[i] = weir.Grant{}
		}
		found = found || grants[i] != weir.Grant{}
	}
	return found
}

// Grant implements weir.Keeper: it applies all grants or none. With Options.File they are synced to
// File + ".grants" when it returns. A grant whose Until has passed acts like the zero Grant, which
// takes a grant back. Grant returns an error if the store is closed (ErrClosed), if a limit or a
// time is out of range, if more than weir.MaxGrants would be in force, or if the file cannot be
// written. After an error nothing has changed, except that if only syncing the directory failed,
// the grants may be in force after a restart. Grant checks ctx once, before it waits for the disk.
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
	old := s.grants.current.Load()
	next := make(map[grantKey]weir.Grant, len(old.all())+len(charges))
	maps.Copy(next, old.all())
	for i := range charges {
		if key := s.seed.grantKey(charges[i].Key); given[i].Limit > 0 {
			next[key] = given[i]
		} else {
			delete(next, key)
		}
	}
	fresh := newGrantSet(next, s.clock.now())
	if n := len(fresh.all()); n > maxGrants {
		return fmt.Errorf("%d grants would be in force: at most %d are kept, take some back", n, maxGrants)
	}
	if s.grants.file != "" {
		if err := writeGrants(s.grants.file, s.seed, fresh.all()); err != nil {
			return err
		}
	}
	s.grants.current.Store(fresh)
	return nil
}

// checkGrant returns an error for a grant whose limit or time is out of range.
func checkGrant(g weir.Grant) error {
	if g.Limit < 0 || g.Limit > weir.MaxLimit {
		return fmt.Errorf("a limit of %d: 1 to %d is allowed, 0 takes a grant back", g.Limit, weir.MaxLimit)
	}
	if g.Until < 0 || g.Until > maxSecond {
		return fmt.Errorf("until second %d: 0 to %d is allowed", g.Until, int64(maxSecond))
	}
	return nil
}

// openGrants reads the grants in file. The store's counts are open already.
func (s *Store) openGrants(file string, log *slog.Logger) error {
	all, err := readGrants(file, s.seed, log)
	if err != nil {
		return err
	}
	s.grants.file = file
	s.grants.current.Store(newGrantSet(all, s.clock.now()))
	return nil
}
