package redisstore

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// TakeLeased implements weir.Leaser.
func (s *Store) TakeLeased(charges []weir.Charge, r *weir.Receipt) bool {
	h := s.hasher.Load()
	if s.leases == nil || h == nil || !spendsPocket(charges) {
		return false
	}
	var hashes [weir.MaxCharges]hash
	for i := range charges {
		hashes[i] = h.hash(&charges[i])
	}
	return s.leases.spend(charges, &hashes, r) || s.leases.pass(charges, &hashes, true, r)
}

// pass lets gates pass, and reports whether it did. It spends nothing. Each pocket has the units
// that a gate looks for; in an outage it is enough if it has some.
func (a *leases) pass(charges []weir.Charge, hashes *[weir.MaxCharges]hash, outage bool, r *weir.Receipt) bool {
	var entries [weir.MaxCharges]*leased
	for i := range charges {
		c := &charges[i]
		if entries[i] = a.table.find(hashes[i]); entries[i] == nil || c.Cost != weir.Gate || c.Held || c.Exact {
			return false
		}
	}
	now, ok := a.clock()
	if !ok {
		return false
	}
	pockets := lockAll(entries[:len(charges)])
	defer pockets.unlock()
	for i := range charges {
		now = entries[i].pocket.Last(now)
	}
	var lots [weir.MaxCharges]lease.Lot
	for i := range charges {
		l, ok := entries[i].pocket.Look(now)
		epoch, limit := l.Window.Epoch, charges[i].Limit
		switch {
		case !ok, l.Count >= limit, outage && !a.of.outlives(entries[i], epoch):
			return false
		// others may have spent what was left at the server
		case !outage && (l.Limit < limit || l.Units <= l.Limit-limit || !a.of.lasts(entries[i], epoch)):
			return false
		}
		lots[i] = l
	}
	a.allow(r, entries[:len(charges)], lots[:len(charges)], now)
	return true
}

// spendsPocket reports whether a take may be served while the server does not answer.
func spendsPocket(charges []weir.Charge) bool {
	for i := range charges {
		if !charges[i].OnFailure.SpendsPocket() {
			return false
		}
	}
	return true
}

// keeps reports whether idle units stay, because they would not arrive: their server does not
// answer, or their connection is gone and none has taken its place. They are of use in the outage,
// until they are dead.
func (a *leases) keeps(e *leased, now time.Duration, answers bool) bool {
	epoch, deadline := e.pocket.Lasts()
	gone := !a.of.lasts(e, epoch) && a.of.outlives(e, epoch)
	return (gone || !answers) && now < deadline
}
