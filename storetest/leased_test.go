package storetest_test

import (
	"context"
	"sync"

	"github.com/weirlimit/weir"
)

// A lender is a plain store that charges a second unit with each take of one window, and serves
// another take from it.
type lender struct {
	*plain
	weir.Shared // nil: the suite calls nothing of it but Take

	lenderFaults

	held sync.Mutex
	lots map[string]weir.Used // the unit that it has, of the window with a reset
}

// lenderFaults are what a lender does wrong.
type lenderFaults struct{ uncharged, anyMode, ignoresCost, outlives, survives bool }

func (s *plain) lends(wrong lenderFaults) weir.Store {
	return &lender{plain: s, lenderFaults: wrong, lots: map[string]weir.Used{}}
}

func (l *lender) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if l.TakeLeased(charges, r) {
		return nil
	}
	l.held.Lock()
	defer l.held.Unlock()
	if err := l.plain.Take(ctx, charges, r); err != nil || !r.Allowed || len(charges) > 1 || charges[0].Cost != 1 {
		return err
	}
	var more weir.Receipt
	if !l.uncharged {
		_ = l.plain.Take(ctx, charges, &more)
	}
	if more.Allowed || l.uncharged {
		l.lots[string(charges[0].Key)] = weir.Used{Count: r.Used[0].Count, Reset: r.Used[0].Reset}
	}
	return nil
}

// TakeLeased implements weir.Leaser.
func (l *lender) TakeLeased(charges []weir.Charge, r *weir.Receipt) bool {
	l.held.Lock()
	defer l.held.Unlock()
	c := &charges[0]
	lot, ok := l.lots[string(c.Key)]
	switch now := l.clock.Now().Unix(); {
	case !ok, len(charges) > 1,
		c.Cost != 1 && !(l.ignoresCost && c.Cost > 0),
		!c.OnFailure.SpendsPocket() && !l.anyMode,
		lot.Reset <= now && !l.outlives:
		return false
	default:
		delete(l.lots, string(c.Key))
		*r = weir.Receipt{Allowed: true, Leased: true, Now: now}
		r.Used[0] = weir.Used{Count: min(lot.Count+1, c.Limit), Reset: max(lot.Reset, now+1)}
		return true
	}
}

// Reset implements weir.Keeper.
func (l *lender) Reset(ctx context.Context, charges []weir.Charge) error {
	if !l.survives {
		l.held.Lock()
		for i := range charges {
			delete(l.lots, string(charges[i].Key))
		}
		l.held.Unlock()
	}
	return l.plain.Reset(ctx, charges)
}

const (
	leasedOnce = "leased units are charged, and are spent once"
	leasedOnly = "leased units serve only what they may"
	leasedEnds = "leased units end with their window"
)

// leaserFaults are wrong leases, and the subtests that detect them.
var leaserFaults = map[string]fault{
	"leases what it has not charged": {
		func(s *plain) weir.Store { return s.lends(lenderFaults{uncharged: true}) }, []string{leasedOnce},
	},
	"gives leased units out without FailPocket": {
		func(s *plain) weir.Store { return s.lends(lenderFaults{anyMode: true}) }, []string{leasedOnly},
	},
	"gives more out than it has leased": {
		func(s *plain) weir.Store { return s.lends(lenderFaults{ignoresCost: true}) }, []string{leasedOnly},
	},
	"gives units out after their window": {
		func(s *plain) weir.Store { return s.lends(lenderFaults{outlives: true}) }, []string{leasedEnds},
	},
	"gives units out after a reset": {
		func(s *plain) weir.Store { return s.lends(lenderFaults{survives: true}) }, []string{leasedEnds},
	},
}
