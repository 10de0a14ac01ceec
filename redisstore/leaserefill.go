package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

const (
	// maxRefill bounds the time for a refill, with its turns: takes may wait for these. An answer
	// that is late keeps the turns for longer, see chargeOrKeep.
	maxRefill = 250 * time.Millisecond
	// maxChores is how many may wait to begin. Without a refill, a take finds the pocket empty, and
	// asks.
	maxChores = 256
)

// A refill is a take that is asked for before a pocket is empty, so that no request waits for the
// turn, for settlements and for the answer. What it costs goes into the pockets with what is
// granted.
type refill struct {
	leaseTake
	charge [weir.MaxCharges]weir.Charge
	costs  [weir.MaxCharges]int64 // of the take that found a pocket low
	low    *leased
	at     int64 // below so many units
}

// noteAsked keeps how long a question took with its turns, and below how many units the next one
// is due: those that are spent in twice that time. own units were spent since the last answer, and
// units are in the pocket now. Near the end of a budget, where each answer grants less, none is
// asked early.
func (e *leased) noteAsked(c *weir.Charge, now, took time.Duration, own, units int64) {
	rate := e.watch.rate(e.hash, c, now)
	e.mu.Lock()
	e.took = min(max(took, e.took-e.took/8), maxRefill)
	// at the beginning of a burst that is too low
	if passed := now - e.filled; passed > 0 {
		rate = max(rate, float64(own)/passed.Seconds())
	}
	e.filled = now
	low := int64(2 * e.took.Seconds() * rate)
	e.mu.Unlock()
	if units < 2*low {
		low = 0
	}
	e.low.Store(low)
}

// refillLow has the pockets of a take refilled if one that it has spent from is low. It does not
// block.
func (a *leases) refillLow(charges []weir.Charge, entries []*leased) {
	for _, e := range entries {
		low := e.low.Load()
		if e.pocket.Units() >= low || !e.low.CompareAndSwap(low, 0) { // once until it is filled
			continue
		}
		r := &refill{low: e, at: low}
		r.charges, r.r, r.early, r.waited, r.marked = r.charge[:len(charges)], new(weir.Receipt), true, true, true
		for i := range charges { // the caller uses its keys again
			c := &r.charge[i]
			*c, r.costs[i], r.hashes[i] = charges[i], charges[i].Cost, entries[i].hash
			c.Key, c.Cost = slices.Clone(c.Key), 1
		}
		begun := a.begin(func(ctx context.Context) {
			if !a.refill(ctx, r) {
				r.leave()
			}
		})
		if !begun {
			r.leave()
		}
		return
	}
}

// begin has a chore done in the background. It does not block: without a place the chore is left.
func (a *leases) begin(chore func(context.Context)) (begun bool) {
	a.doing.Add(1)
	select {
	case a.chores <- chore:
		return true
	default:
		a.doing.Add(-1)
		return false
	}
}

// keepDoing does chores until ctx ends.
func (a *leases) keepDoing(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case chore := <-a.chores:
			all.Go(func() {
				defer a.doing.Add(-1)
				chore(ctx)
			})
		}
	}
}

// leave has another take try, after a refill that has filled nothing. That one may be of other
// windows beside the one that is low: this one's may be full, or not worth leasing.
func (r *refill) leave() { r.low.low.CompareAndSwap(0, r.at/2) }

// refill asks the lender for units of windows, unless they are not worth it any more. It reports
// whether the pockets were filled.
func (a *leases) refill(ctx context.Context, r *refill) (filled bool) {
	t := &r.leaseTake
	ctx, cancel := context.WithTimeout(ctx, maxRefill)
	defer cancel()
	began, ok := a.clock()
	if !ok || !a.of.prepare(t) {
		return false
	}
	for i := range t.charges {
		if t.entries[i] = a.table.find(t.hashes[i]); t.entries[i] == nil {
			return false
		}
		t.watches[i] = t.entries[i].watch
	}
	done, err := a.acquire(ctx, t)
	if err != nil {
		return false
	}
	defer done()
	if r.low.low.Load() > 0 || !a.wishEarly(r) { // filled meanwhile, or not worth it
		return false
	}
	if err := a.chargeOrKeep(ctx, t); err != nil {
		return false
	}
	if !t.r.Allowed {
		a.refused(t)
		return false
	}
	a.fill(t, began)
	return true
}

// giveBackSoon has the units of a window go back, since takes have to wait because of them. Those
// that wait may all miss their deadlines, and then none of them could do it.
func (a *leases) giveBackSoon(e *leased) {
	if e.pocket.Units() == 0 || e.slow.Swap(true) {
		return
	}
	if !a.begin(func(ctx context.Context) { a.giveBackSlow(ctx, e) }) {
		e.slow.Store(false)
	}
}

func (a *leases) giveBackSlow(ctx context.Context, e *leased) {
	defer e.slow.Store(false)
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	// in an outage the units would not arrive, and may be of use: see keeps
	if epoch, _ := e.pocket.Lasts(); a.of.lasts(e, epoch) && a.of.reaches(ctx, e) {
		a.returnOne(ctx, e)
	}
}

// errNotOpen means that a window of a refill has ended, or was reset. A window opens with the first
// request, so a refill opens none.
var errNotOpen = errors.New("the window is not open any more")

// wishEarly sets what a refill wishes for, of which windows, and reports whether units of all of
// them are worth it, and some of the one that is low are needed.
func (a *leases) wishEarly(r *refill) (needed bool) {
	t := &r.leaseTake
	now, ok := a.clock()
	t.wishes = [weir.MaxCharges]lease.Wish{}
	for i := range t.charges {
		e := t.entries[i]
		if !ok || e == nil {
			return false
		}
		w, suits := a.wish(t, i, r.costs[i], now)
		if w == (lease.Wish{}) || !suits {
			return false
		}
		e.pocket.Lock()
		t.opened[i] = e.pocket.Held().Reset
		e.pocket.Unlock()
		if t.opened[i] == 0 {
			return false
		}
		if w.Units -= e.pocket.Units(); w.Units >= w.Least {
			t.wishes[i] = w
			needed = needed || e == r.low
		}
	}
	return needed
}
