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
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	answers := a.of.answers()
	a.returnThese(ctx, slices.DeleteFunc(a.active.idle(a.ahead.at(now)/int64(time.Second)), func(e *leased) bool {
		return a.keeps(e, now, answers)
	}))
}

// returnAll gives back all units: before the process ends, or because an operator has reset a
// window somewhere.
func (a *leases) returnAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxReturn)
	defer cancel()
	a.returnThese(ctx, a.active.list())
}

// maxReturning is how many windows' units are on their way back at the same time.
const maxReturning = 64

func (a *leases) returnThese(ctx context.Context, all []*leased) {
	var returning sync.WaitGroup
	slots := make(chan struct{}, maxReturning)
	for _, e := range all {
		slots <- struct{}{}
		returning.Go(func() {
			defer func() { <-slots }()
			if e.acquire(ctx) != nil {
				return // it is in use
			}
			defer e.release()
			a.giveBack(ctx, e)
		})
	}
	returning.Wait()
}

// giveBack sends back what a pocket has, once, unless ctx has ended. The caller has its turn.
func (a *leases) giveBack(ctx context.Context, e *leased) {
	if ctx.Err() != nil {
		return
	}
	l := e.pocket.Drain()
	if l.Units == 0 {
		return
	}
	e.filled.Store(0)
	if !a.of.lasts(e, l.Window.Epoch) {
		a.stranded.Add(l.Units)
		return
	}
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
			e.filled.Store(0)
			e.mu.Lock()
			e.trend = lease.Trend{}
			e.mu.Unlock()
		}
	}
	return end, nil
}

// settling keeps takes of the windows of a settlement from being counted while it is under way, if
// their pockets have units: it takes their turns. For each change that is done the caller asks
// settled how much of the new count is in a pocket. The caller calls end at last.
func (a *leases) settling(ctx context.Context, o *order, changes []weir.Change) (settled func(i int, count int64) int64, end func()) {
	t := &leaseTake{}
	var of [weir.MaxCharges]int // by change, the window's index in t
	for i := range changes {
		if of[i] = -1; !changes[i].Held {
			of[i] = len(t.charges)
			t.hashes[of[i]] = o.link.hasher.hash(&changes[i].Charge)
			t.charges = append(t.charges, changes[i].Charge)
		}
	}
	leave := a.table.enterApart(t, false)
	if held, _ := a.look(t); !held {
		return func(int, int64) int64 { return 0 }, leave
	}
	leave()
	end, err := a.acquire(ctx, t)
	if err != nil {
		return func(int, int64) int64 { return 0 }, func() {}
	}
	return func(i int, count int64) int64 {
		if of[i] < 0 || t.entries[of[i]] == nil {
			return 0
		}
		e := t.entries[of[i]]
		if count == countMask { // it may stand for more, so nothing can be left in a pocket
			a.void(e)
		}
		return e.pocket.Recount(changes[i].Reset, count)
	}, end
}
