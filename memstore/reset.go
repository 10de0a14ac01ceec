package memstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/weirlimit/weir"
)

var _ weir.Keeper = (*Store)(nil)

// ErrShared is wrapped by the error of Reset for a window that shares its budget with others
// because the table was full when it was opened (Stats.Shared). Such a window has no count of its
// own.
var ErrShared = errors.New("a budget that several callers share, because the table was full, cannot be reset for one of them")

// Reset implements weir.Keeper: no take sees some of the windows reset and others not. It never
// waits, so it ignores ctx. If it returns an error, nothing was reset: ErrClosed, ErrShared, or
// more charges than weir.MaxCharges.
func (s *Store) Reset(_ context.Context, charges []weir.Charge) error {
	if len(charges) > weir.MaxCharges {
		return fmt.Errorf("reset %d windows: at most %d are allowed at once", len(charges), weir.MaxCharges)
	}
	hashes := make([]uint64, len(charges))
	for i := range charges {
		hashes[i] = s.seed.hash(charges[i].Key)
	}
	err := s.reset(charges, hashes)
	runtime.KeepAlive(s) // the memory is unmapped when s is collected
	if err != nil {
		return fmt.Errorf("reset %d windows: %w", len(charges), err)
	}
	return nil
}

func (s *Store) reset(charges []weir.Charge, hashes []uint64) error {
	for !s.closed.Load() {
		a := attempt{store: s, charges: charges}
		if !a.lock(hashes) {
			continue
		}
		err := a.reset()
		a.unlock()
		return err
	}
	return ErrClosed
}

// reset empties all entries of the attempt. It freezes every one of them before it writes the
// first, so a take either sees all of them unchanged or waits.
func (a *attempt) reset() error {
	for i := range a.charges {
		a.find(i)
		if a.refs[i].shared {
			return ErrShared
		}
	}
	a.freeze()
	for i := range a.charges {
		if p := &a.refs[i]; p.entry != nil && p.sameAs < 0 {
			if until := unpack(p.word, p.hash).Reset; until > a.now {
				a.store.resets.note(p.hash, until, a.now, false)
			}
			p.entry.word.Store(pack(weir.Used{}, p.hash)) // marks the slot as reusable
		}
	}
	return nil
}
