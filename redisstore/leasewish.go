package redisstore

import (
	"context"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// look finds the windows of a take, and reports whether one has units or is being asked for, and
// whether the take wishes for units of all of them.
func (a *leases) look(t *leaseTake) (held, wishes bool) {
	wishes = leasable(t.charges)
	now, ok := a.clock()
	wishes = wishes && ok
	for i := range t.charges {
		w, e := a.table.watched(t.hashes[i]), a.table.find(t.hashes[i])
		t.watches[i], t.entries[i], t.wants[i] = w, e, false
		held = held || e != nil && e.busy()
		if w == nil {
			wishes = wishes && a.eager && !a.ending.Load()
			continue
		}
		wish, suits := a.wish(t, i, t.charges[i].Cost, now)
		t.wants[i] = wish != lease.Wish{}
		wishes = wishes && t.wants[i] && suits
	}
	return held, wishes
}

// wish returns what a take of a cost would wish for of a window that is observed, and whether units
// of it are worth leasing.
func (a *leases) wish(t *leaseTake, i int, cost int64, now time.Duration) (wish lease.Wish, suits bool) {
	switch {
	case a.ending.Load():
		return lease.Wish{}, false
	case a.eager:
		return lease.Wish{Units: 7, Part: 1000, Least: 1}, true
	}
	c, x := &t.charges[i], t.hashes[i]
	w, ahead, waiting := t.watches[i], &a.ahead, a.table.apartAt(x).underWay()
	if e := t.entries[i]; e != nil {
		w, ahead, waiting = e.watch, a.aheadOf(e), waiting+e.waiting.Load()
	}
	return w.wish(x, c, now, ahead.at(now)/int64(time.Second), waiting*max(1, cost))
}

// servedNot reports of which windows of a take, that has its turns, the units in the pockets cannot
// serve it: it has to wait because of these.
func (a *leases) servedNot(t *leaseTake) (others [weir.MaxCharges]bool) {
	some := false // units of another window are missing, and not wished for
	for i, e := range t.entries[:len(t.charges)] {
		some = some || e == nil || e.pocket.Units() == 0 && t.wishes[i] == (lease.Wish{})
	}
	for i, e := range t.entries[:len(t.charges)] {
		if c := &t.charges[i]; e != nil && e.pocket.Units() > 0 {
			others[i] = some || !isLeasable(c) || e.pocket.Limit() != c.Limit
		}
	}
	return others
}

// wishFor sets what a take wishes for: units of all windows whose pockets are short, or of none.
func (a *leases) wishFor(t *leaseTake) {
	t.wishes = [weir.MaxCharges]lease.Wish{}
	now, ok := a.clock()
	if !ok || !leasable(t.charges) {
		return
	}
	for i := range t.charges {
		e := t.entries[i]
		if e == nil {
			t.wishes = [weir.MaxCharges]lease.Wish{}
			return
		}
		var suits bool
		if t.wishes[i], suits = a.wish(t, i, t.charges[i].Cost, now); t.wishes[i].Units == 0 || !suits {
			t.wishes = [weir.MaxCharges]lease.Wish{}
			return
		}
	}
	for i := range t.charges {
		if t.entries[i].pocket.Units() >= t.charges[i].Cost {
			t.wishes[i] = lease.Wish{}
		}
	}
}

// giveUselessBack gives back what pockets have, after a take that they could not serve: of windows
// of which nothing is wished for, such as a unit where each request costs three, and of all if
// units of one are not worth leasing. While a pocket has units, such takes wait for each other.
func (a *leases) giveUselessBack(ctx context.Context, t *leaseTake) {
	now, ok := a.clock()
	if !ok {
		return
	}
	var wants [weir.MaxCharges]bool
	suit := true
	for i, e := range t.entries[:len(t.charges)] {
		if e != nil {
			wish, suits := a.wish(t, i, t.charges[i].Cost, now)
			wants[i], suit = wish != lease.Wish{}, suit && suits
		}
	}
	for i, e := range t.entries[:len(t.charges)] {
		if e != nil && e.pocket.Units() > 0 && !(wants[i] && suit) {
			a.giveBack(ctx, e)
		}
	}
}
