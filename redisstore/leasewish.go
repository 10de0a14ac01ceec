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
		e := a.table.find(t.hashes[i])
		t.entries[i], t.wants[i] = e, false
		if e == nil {
			wishes = wishes && a.eager && !a.ending.Load()
			continue
		}
		held = held || e.busy()
		wish, suits := a.wish(e, &t.charges[i], t.hashes[i], now)
		t.wants[i] = wish != lease.Wish{}
		wishes = wishes && t.wants[i] && suits
	}
	return held, wishes
}

// wish returns what a take would wish for of a window, and whether units of it are worth leasing.
func (a *leases) wish(e *leased, c *weir.Charge, x hash, now time.Duration) (w lease.Wish, suits bool) {
	switch {
	case a.ending.Load():
		return lease.Wish{}, false
	case a.eager:
		return lease.Wish{Units: 7, Part: 1000, Least: 1}, true
	}
	waiting := (e.waiting.Load() + a.table.apartAt(x).underWay()) * max(1, c.Cost)
	e.mu.Lock()
	defer e.mu.Unlock()
	second := a.aheadOf(e).at(now) / int64(time.Second)
	return e.trend.Wish(now, time.Duration(c.Per)*time.Second, c.Limit, second, waiting), e.trend.Suits(now)
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
		if t.wishes[i], suits = a.wish(e, &t.charges[i], t.hashes[i], now); t.wishes[i].Units == 0 || !suits {
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
			wish, suits := a.wish(e, &t.charges[i], t.hashes[i], now)
			wants[i], suit = wish != lease.Wish{}, suit && suits
		}
	}
	for i, e := range t.entries[:len(t.charges)] {
		if e != nil && e.pocket.Units() > 0 && !(wants[i] && suit) {
			a.giveBack(ctx, e)
		}
	}
}
