package redisstore

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// leasable reports whether units that were charged before may serve a take. They may not if it
// reads, asks a gate or takes slots, or if the server's very count is needed.
func leasable(charges []weir.Charge) bool {
	for i := range charges {
		if !isLeasable(&charges[i]) {
			return false
		}
	}
	return true
}

func isLeasable(c *weir.Charge) bool { return c.Cost > 0 && !c.Held && !c.Exact }

// spend serves a take from pockets, and reports whether it did.
func (a *leases) spend(charges []weir.Charge, hashes *[weir.MaxCharges]hash, r *weir.Receipt) bool {
	if !leasable(charges) {
		return false
	}
	var entries [weir.MaxCharges]*leased
	for i := range charges {
		e := a.table.find(hashes[i])
		if e == nil || e.pocket.Units() < charges[i].Cost {
			return false
		}
		entries[i] = e
	}
	now, ok := a.clock()
	if !ok {
		return false
	}
	var spent [weir.MaxCharges]lease.Lot
	if len(charges) == 1 {
		spent[0], now, ok = entries[0].pocket.Spend(charges[0].Cost, charges[0].Limit, now)
	} else {
		now, ok = spendAll(charges, &entries, &spent, now)
	}
	if !ok {
		return false
	}
	valid := a.of.lasts
	if spendsPocket(charges) {
		valid = a.of.outlives
	}
	for i := range charges {
		if w := spent[i].Window; !valid(entries[i], w.Epoch) {
			// and what was spent now: the server may not count it
			a.stranded.Add(entries[i].pocket.DrainOf(w).Units)
			return false
		}
	}
	a.allow(r, entries[:len(charges)], spent[:len(charges)], now)
	for i := range charges {
		l := &spent[i]
		if i == 0 || l.At < r.Ticket.At {
			r.Ticket.At = l.At
		}
		if i == 0 || l.Window.Epoch < r.Ticket.Epoch {
			r.Ticket.Epoch = l.Window.Epoch
		}
	}
	a.served.Add(1)
	a.refillLow(charges, entries[:len(charges)])
	return true
}

// allow makes r the receipt of a take at now that units of lots of some windows serve. It shows the
// latest of the times that are known for these.
func (a *leases) allow(r *weir.Receipt, entries []*leased, lots []lease.Lot, now time.Duration) {
	*r = weir.Receipt{Allowed: true, Leased: true, Now: a.latestOf(entries).at(now) / int64(time.Second)}
	for i := range lots {
		w := lots[i].Window
		r.Used[i] = weir.Used{Count: lots[i].Count, Reset: w.Reset}
		r.Now = min(r.Now, w.Reset-1)
	}
}

// spendAll spends from all pockets or from none, in one step. It returns the time of that.
//
// A take has one ticket, with the time of the earliest charge. If that was before another window
// was last reset by an operator, its settlement would be taken for one from before the reset, and
// be dropped. So such pockets serve no take together.
func spendAll(charges []weir.Charge, entries *[weir.MaxCharges]*leased, spent *[weir.MaxCharges]lease.Lot, now time.Duration) (at time.Duration, ok bool) {
	at, ok = now, true
	pockets := lockAll(entries[:len(charges)])
	defer pockets.unlock()
	earliest, reset := int64(math.MaxInt64), int64(0)
	for i := range charges {
		ok = ok && entries[i].pocket.Has(charges[i].Cost, charges[i].Limit, now)
		at = entries[i].pocket.Last(at)
		charged, generation := entries[i].pocket.Charged()
		earliest, reset = min(earliest, charged), max(reset, generation)
	}
	ok = ok && earliest > reset
	for i := range charges {
		if ok {
			spent[i] = entries[i].pocket.Take(charges[i].Cost, at)
		}
	}
	return at, ok
}

// locked are windows whose pockets are locked, so that what is read or changed in all of them is of
// one moment.
type locked struct {
	all [weir.MaxCharges]*leased
	n   int
}

// lockAll locks the pockets of windows, always in the same order. Some may be nil.
func lockAll(entries []*leased) (l locked) {
	for _, e := range entries {
		if e != nil {
			l.all[l.n] = e
			l.n++
		}
	}
	slices.SortFunc(l.all[:l.n], func(a, b *leased) int { return a.hash.compare(b.hash) })
	for _, e := range l.all[:l.n] {
		e.pocket.Lock()
	}
	return l
}

func (l *locked) unlock() {
	for _, e := range l.all[:l.n] {
		e.pocket.Unlock()
	}
}
