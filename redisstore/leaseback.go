package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

const (
	// lookAtIdle is the time between two looks for idle units.
	lookAtIdle = 250 * time.Millisecond
	// maxReturn bounds the time for what goes back at once.
	maxReturn = time.Second
)

// activeLeases are the windows whose pockets may have units.
type activeLeases struct {
	mu  sync.Mutex
	all map[*leased]*idling
}

// An idling is how long a pocket has had as many units.
type idling struct {
	reset, units int64
	looks        int // in a row that have found as many
	patience     int // so many
}

func (a *activeLeases) add(e *leased, reset int64, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.all[e]; i == nil {
		a.all[e] = &idling{reset: reset, units: -1, patience: int(patience / lookAtIdle)}
	} else {
		i.reset, i.looks, i.patience = reset, 0, int(patience/lookAtIdle)
	}
}

// idle returns the windows whose units are idle, and forgets those without units.
func (a *activeLeases) idle(second int64) (all []*leased) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e, i := range a.all {
		units := e.pocket.Units()
		switch {
		case units == 0:
			delete(a.all, e)
			continue
		case units != i.units:
			i.units, i.looks = units, 0
		}
		if i.looks++; i.looks >= i.patience || second >= i.reset {
			all = append(all, e)
		}
	}
	return all
}

func (a *activeLeases) list() (all []*leased) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := range a.all {
		all = append(all, e)
	}
	return all
}

// holds reports whether a pocket has units.
func (a *activeLeases) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := range a.all {
		if e.pocket.Units() > 0 {
			return true
		}
	}
	return false
}

// keepReturning gives idle units back until ctx ends.
func (a *leases) keepReturning(ctx context.Context) {
	ticker := time.NewTicker(lookAtIdle)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.returnIdle(ctx)
		}
	}
}

func (a *leases) returnIdle(ctx context.Context) {
	now, ok := a.clock()
	if !ok {
		return
	}
	answers := a.of.answers()
	a.returnThese(ctx, slices.DeleteFunc(a.active.idle(a.ahead.at(now)/int64(time.Second)), func(e *leased) bool {
		return a.keeps(e, now, answers)
	}))
}

// returnAll gives back all units: before the process ends, or because an operator has reset a
// window somewhere. It returns the windows that it had no time for.
func (a *leases) returnAll(ctx context.Context) (late []*leased) {
	return a.returnThese(ctx, a.active.list())
}

// end gives back all units, and has no more asked for. What is just being asked for is not among
// the units of the first time.
func (a *leases) end(ctx context.Context) {
	a.ending.Store(true)
	a.awaitChores(ctx)
	for range 3 {
		if a.returnAll(ctx); !a.active.holds() {
			return
		}
	}
}

// awaitChores waits for refills, and for units that go back, that have begun.
func (a *leases) awaitChores(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	for p := (poll{ctx: ctx, since: time.Now()}); a.doing.Load() > 0; {
		if p.wait() != nil {
			return
		}
	}
}

// maxReturning is how many windows' units are on their way back at the same time.
const maxReturning = 64

// returnThese gives back the units of windows within maxReturn, and returns those that it had no
// time for.
func (a *leases) returnThese(ctx context.Context, all []*leased) (late []*leased) {
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	var returning sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, maxReturning)
	for _, e := range all {
		slots <- struct{}{}
		returning.Go(func() {
			defer func() { <-slots }()
			if !a.returnOne(ctx, e) {
				mu.Lock()
				late = append(late, e)
				mu.Unlock()
			}
		})
	}
	returning.Wait()
	return late
}

func (a *leases) returnOne(ctx context.Context, e *leased) bool {
	if e.acquire(ctx) != nil {
		return false
	}
	defer e.release()
	return a.table.apartAt(e.hash).await(ctx) == nil && a.giveBack(ctx, e)
}

// giveBack sends back what a pocket has, once. If ctx has ended, it does not, and returns false.
// The caller has its turn.
func (a *leases) giveBack(ctx context.Context, e *leased) (inTime bool) {
	if ctx.Err() != nil {
		return false
	}
	e.returning.Store(true) // before the pocket looks empty
	defer e.returning.Store(false)
	a.sendBack(ctx, e, e.pocket.Drain())
	return true
}

// sendBack sends units of a window back that are in no pocket. The caller has its turn.
func (a *leases) sendBack(ctx context.Context, e *leased, l lease.Lot) {
	if l.Units == 0 {
		return
	}
	if !a.of.lasts(e, l.Window.Epoch) {
		a.stranded.Add(l.Units)
		return
	}
	a.returns.Add(1)
	e.watch.noteGaveBack(e.hash, l.Window.Reset)
	count, ok := a.of.giveBack(ctx, e, l)
	switch {
	case !ok:
		a.stranded.Add(l.Units)
	case count+l.Units >= l.Limit:
		a.heldBack.Add(l.Units)
	default:
		a.returned.Add(l.Units)
	}
}

// hold takes the turns of windows that an operator resets, and drops what their pockets have. The
// caller calls the function that it returns when the reset is answered.
func (a *leases) hold(ctx context.Context, charges []weir.Charge, hashes []hash) (end func(), err error) {
	t := &leaseTake{charges: charges}
	copy(t.hashes[:], hashes)
	for i := range charges {
		t.entries[i] = a.table.find(hashes[i])
	}
	if end, err = a.acquire(ctx, t); err != nil {
		return nil, err
	}
	for _, e := range t.entries[:len(charges)] {
		if e != nil {
			a.void(e)
		}
	}
	for _, x := range hashes[:len(charges)] {
		a.table.watched(x).forget(x)
	}
	return end, nil
}

// settling keeps units of the windows of a settlement from being asked for, and from going back,
// until the order is finished; other settlements may be under way. It waits while a window's turn
// is in use. If ctx ends first, the order goes on without, and tells the pockets nothing.
func (a *leases) settling(ctx context.Context, o *order) {
	t := &leaseTake{charges: make([]weir.Charge, 0, len(o.changes))}
	for i := range o.changes {
		if d := &o.changes[i]; !d.held {
			t.hashes[len(t.charges)] = d.hash
			t.charges = append(t.charges, weir.Charge{})
		}
	}
	leave := a.table.enterApart(t, false)
	for a.inTurn(t) {
		leave()
		if a.acquireTurns(ctx, t) != nil {
			return
		}
		leave = a.table.enterApart(t, false)
		became := a.table.becameBusy(t)
		release(t)
		if !became {
			break
		}
	}
	o.leave = leave
	for _, e := range t.entries[:len(t.charges)] {
		o.tells = o.tells || e != nil && e.pocket.Units() > 0
	}
}

// inTurn finds the windows of a take, and reports whether the turn of one of them is in use.
func (a *leases) inTurn(t *leaseTake) (some bool) {
	for i := range t.charges {
		e := a.table.find(t.hashes[i])
		t.entries[i] = e
		some = some || e != nil && len(e.turn) > 0
	}
	return some
}

// settled makes the pocket of a window know the count that a settlement was answered. It returns
// the count without what is in the pocket.
//
// It must be called in the order in which the server has counted.
func (a *leases) settled(x hash, reset, count int64) int64 {
	a.table.watched(x).noteGaveBack(x, reset)
	e := a.table.find(x)
	if e == nil {
		return count
	}
	e.pocket.Lock()
	defer e.pocket.Unlock()
	return count - a.recount(e, reset, count)
}

// recount makes a pocket know, locked, a count of its window, and returns how many units it has of
// that. A count of countMask may stand for more, so nothing can be left in a pocket.
func (a *leases) recount(e *leased, reset, count int64) int64 {
	if count == countMask {
		count = 0
	}
	units, dropped := e.pocket.Recount(reset, count)
	a.stranded.Add(dropped)
	return units
}
