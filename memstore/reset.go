package memstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/weirlimit/weir"
)

var _ weir.Keeper = (*Store)(nil)

// ErrShared is wrapped by the error of a Reset of a window that shares its budget with others, because the table was full when it
// was opened (Stats.Shared): it has nothing of its own that could be reset.
var ErrShared = errors.New("a budget that several callers share, because the table was full, cannot be reset for one of them")

// Reset implements weir.Keeper: no take sees one of the windows reset and another not. It ignores ctx, since it never waits. Where
// it errs nothing was reset: ErrClosed, ErrShared, or more charges than a take may have.
func (s *Store) Reset(_ context.Context, charges []weir.Charge) error {
	if len(charges) > weir.MaxCharges {
		return fmt.Errorf("reset %d windows: at most %d are allowed at once", len(charges), weir.MaxCharges)
	}
	hashes := make([]uint64, len(charges))
	for i := range charges {
		hashes[i] = s.seed.hash(charges[i].Key)
	}
	err := s.reset(charges, hashes)
	runtime.KeepAlive(s) // its memory is unmapped with it
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

// reset has no entry of the attempt hold a window. All are held until the last is frozen, so a take finds all of them as they were
// or waits.
func (a *attempt) reset() error {
	for i := range a.charges {
		a.find(i)
		if a.spots[i].shared {
			return ErrShared
		}
	}
	a.freeze()
	for i := range a.charges {
		if p := &a.spots[i]; p.entry != nil && p.twin < 0 {
			p.write() // the zero Used: the slot is free for whoever comes
		}
	}
	return nil
}
