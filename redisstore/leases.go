package redisstore

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// Leases are units that the server has charged before this process gives them out, in the same step
// as an earlier take. While a window's pocket has units, takes of it need no round trip.
// docs/adr/0040-leases.md is the protocol.
//
// Takes of a window whose pocket has units, or that wish for some, go to the server in turn: one
// after the other, and not while others are under way. So the server's refusal is final, because
// nothing that this process holds of the window is under way then. All other takes go to the server
// at the same time, as without leases.
//
//	leases.go      a take that asks the server, in turn
//	leasespend.go  a take that pockets serve
//	leasetable.go  the windows whose requests are observed, and the leased ones
//	leasewatch.go  what is observed
//	leaserefill.go  pockets are filled before they are empty
//	leaselate.go   answers that come after their takes were given up
//	leaseahead.go  the server's time of takes that it was not asked for
//	leaseback.go   units go back: idle ones, at a reset, and at the end
//	leaseclaim.go  a refusal calls for what other processes hold
//	leaseoutage.go what is leased while the server does not answer
//	lend.go        what the server charges and takes back

// A Leasing is whether a store leases units.
type Leasing uint8

const (
	// LeasesOff: every take asks the server, or is refused from memory.
	LeasesOff Leasing = iota
	// LeasesAuto leases units of windows that this process spends often.
	LeasesAuto
	// LeasesEager leases a few units with every take that can have some. It is for tests, and asks
	// the server more often than LeasesOff if callers are many.
	LeasesEager
)

// A lender is what units are leased of: the server, in simulations another.
type lender interface {
	// charge asks for a take, and in the same step for the units that it wishes for.
	charge(ctx context.Context, t *leaseTake) error
	// giveBack sends units back, at most once. It returns the count of their window then, and
	// reports whether they have arrived.
	giveBack(ctx context.Context, e *leased, l lease.Lot) (count int64, ok bool)
	// lasts reports whether the server is the one that charged the units of an epoch.
	lasts(e *leased, epoch uint64) bool
	// outlives reports whether no other server has answered since units of an epoch were charged:
	// the server may have ended, or be out of reach.
	outlives(e *leased, epoch uint64) bool
	// answers reports whether the server answered when it was last asked.
	answers() bool
	// gaveUp records that an answer did not come in time.
	gaveUp(err error)
	// reaches asks the server of a window, and reports whether it answers.
	reaches(ctx context.Context, e *leased) bool
	// prepare makes a refill ready for charge, and reports whether it can be charged.
	prepare(t *leaseTake) bool
}

// A leaseTake is a take that its lender is asked for.
type leaseTake struct {
	charges []weir.Charge
	hashes  [weir.MaxCharges]hash
	r       *weir.Receipt

	// Of a server.
	link  *link
	epoch uint64
	names [weir.MaxCharges]string
	asked int64 // this process's clock when the take began

	in [weir.MaxCharges]uint32 // see leaseTable.enterApart

	watches [weir.MaxCharges]*watched   // nil: the window is not observed
	entries [weir.MaxCharges]*leased    // nil: no units of the window were wished for yet
	wants   [weir.MaxCharges]bool       // units of the window are wished for if the others allow it
	entered bool                        // places were asked for its windows
	waited  bool                        // for its turn
	marked  bool                        // the lender is asked for the marks of resets
	early   bool                        // a refill: what it costs goes into the pockets
	kept    bool                        // its turns are those of a copy, see chargeOrKeep
	caller  context.Context             // of a copy: it is void when that ends, see askInTime
	opened  [weir.MaxCharges]int64      // the resets that the windows must have; only if early
	wishes  [weir.MaxCharges]lease.Wish // only if marked
	lots    [weir.MaxCharges]lease.Lot  // of the answer, if it is allowed and marked
}

// later is how much of a charge's cost is for later takes: a refill's goes into the pocket.
func (t *leaseTake) later(i int) int64 {
	if !t.early {
		return 0
	}
	return t.charges[i].Cost
}

// leases are the leased units of a store.
type leases struct {
	of    lender
	clock func() (now time.Duration, ok bool) // counts while the machine sleeps
	eager bool

	table  leaseTable
	ahead  serverAhead
	active activeLeases
	chores chan func(context.Context) // that are to begin
	doing  atomic.Int64               // chores that have not ended
	// answers whose takes may be given up before they come
	awaited atomic.Int64
	ending  atomic.Bool // no units are asked for any more

	served, granted, returned, returns, heldBack, stranded atomic.Int64
}

func newLeases(of lender, clock func() (time.Duration, bool), how Leasing) *leases {
	a := &leases{of: of, clock: clock, eager: how == LeasesEager, active: activeLeases{all: make(map[*leased]*idling)}, chores: make(chan func(context.Context), maxChores)}
	a.table.init()
	return a
}

// know calls refuse with what the pockets have, and returns what it does. It returns false if units
// are on their way back: they are in no pocket, and the server still counts them.
func (a *leases) know(charges []weir.Charge, hashes *[weir.MaxCharges]hash, refuse func(held func(i int, reset int64) int64) bool) bool {
	var entries [weir.MaxCharges]*leased
	for i := range charges {
		entries[i] = a.table.find(hashes[i])
	}
	refused := refuse(func(i int, reset int64) (units int64) {
		if e := entries[i]; e != nil {
			e.pocket.Lock()
			units, _ = e.pocket.Of(reset)
			e.pocket.Unlock()
		}
		return units
	})
	for _, e := range entries[:len(charges)] {
		refused = refused && !(e != nil && e.returning.Load())
	}
	return refused
}

// take asks the lender for a take that no pocket serves. A take of windows without units, that
// wishes for none, does not wait for others.
func (a *leases) take(ctx context.Context, t *leaseTake, held, wishes bool) error {
	if !held && !wishes {
		leave := a.table.enterApart(t, false)
		if held = a.becameHeld(t); !held {
			defer leave()
			return a.askApart(ctx, t)
		}
		leave()
	}
	return a.takeInTurn(ctx, t)
}

// askApart asks the lender for a take that is not in turn.
func (a *leases) askApart(ctx context.Context, t *leaseTake) error {
	sent, _ := a.clock()
	err := a.of.charge(ctx, t)
	if err == nil && t.r.Allowed {
		a.observe(t, sent)
	} else if err == nil {
		a.refused(t)
	}
	return err
}

// refused records that the lender has refused a take.
func (a *leases) refused(t *leaseTake) {
	for i, w := range t.watches[:len(t.charges)] {
		if used := t.r.Used[i]; !used.Fits(t.charges[i].Cost, t.charges[i].Limit) {
			w.noteRefused(t.hashes[i], used)
		}
	}
}

// needsTurn reports whether a take wishes for units, or pockets of its windows have some.
func (a *leases) needsTurn(t *leaseTake) bool {
	for i, e := range t.entries[:len(t.charges)] {
		if t.wishes[i] != (lease.Wish{}) || e != nil && e.pocket.Units() > 0 {
			return true
		}
	}
	return false
}

// observe records a take that was not in turn, and was sent at sent.
func (a *leases) observe(t *leaseTake, sent time.Duration) {
	now, ok := a.clock()
	if !ok {
		return
	}
	leasable := leasable(t.charges)
	serves := leasable // leased units could, if some are wished for
	for i := range t.charges {
		serves = serves && t.wants[i]
	}
	a.watch(t, now)
	for i := range t.charges {
		c, w := &t.charges[i], t.watches[i]
		if leasable {
			w.note(t.hashes[i], c, now, c.Cost, t.r.Used[i].Count, 0, t.r.Used[i].Reset)
		}
		if t.wants[i] && !serves {
			w.noteOther(t.hashes[i], c, now, now-sent)
		}
	}
}

// watch asks for places for the windows of a take that are not observed, once for each take: the
// table counts how often windows come.
func (a *leases) watch(t *leaseTake, now time.Duration) {
	if t.entered || !leasable(t.charges) {
		return
	}
	t.entered = true
	for i, w := range t.watches[:len(t.charges)] {
		if w == nil {
			t.watches[i] = a.table.watch(t.hashes[i], now)
		}
	}
}

// lease makes windows of a take ready for units: those of which it would wish for some.
func (a *leases) lease(t *leaseTake) {
	for i, e := range t.entries[:len(t.charges)] {
		if e == nil && (t.wants[i] || a.eager) && t.watches[i] != nil {
			t.entries[i] = a.table.lease(t.hashes[i])
		}
	}
}

// takeInTurn asks the lender while no other take of these windows does.
func (a *leases) takeInTurn(ctx context.Context, t *leaseTake) (err error) {
	defer a.noteSlow(ctx, t, time.Now())
	now, ok := a.clock()
	if ok {
		a.watch(t, now)
		a.lease(t)
	}
	served, done, err := a.acquireToAsk(ctx, t)
	if err != nil {
		return fmt.Errorf("wait for the units that others ask for: %w", err)
	}
	if served {
		return nil
	}
	defer done()
	if !t.marked {
		return a.askApart(ctx, t)
	}
	others := a.servedNot(t)
	sent, ok := a.clock()
	useless := t.wishes == [weir.MaxCharges]lease.Wish{}
	if holds(t.charges) { // its script knows nothing of marks
		a.giveBackAll(ctx, t)
		err, useless = a.of.charge(ctx, t), false
	} else {
		err = a.askInTurn(ctx, t, now)
	}
	if now, _ := a.clock(); ok {
		for i, other := range others[:len(t.charges)] {
			if other {
				e := t.entries[i] // those that wait for its turn lose that time as well
				e.watch.noteOther(e.hash, &t.charges[i], now, (now-sent)*time.Duration(1+e.waiting.Load()))
			}
		}
	}
	if err == nil && useless {
		a.giveUselessBack(ctx, t)
	}
	return err
}

// noteSlow records that a take in turn, which began at began, took more than half of the time that
// it had: it waited for others, and these for settlements that were under way.
func (a *leases) noteSlow(ctx context.Context, t *leaseTake, began time.Time) {
	deadline, ok := ctx.Deadline()
	if !ok || time.Since(began) <= deadline.Sub(began)/2 {
		return
	}
	now, ok := a.clock()
	if !ok {
		return
	}
	for i, w := range t.watches[:len(t.charges)] {
		w.noteSlow(t.hashes[i], now)
		if e := t.entries[i]; e != nil {
			a.giveBackSoon(e)
		}
	}
}

// askInTurn asks the lender for a take that has its turns, and began at began, again if that may
// help.
func (a *leases) askInTurn(ctx context.Context, t *leaseTake, began time.Duration) error {
	for outdated := false; ; outdated = true {
		if err := a.chargeOrKeep(ctx, t); err != nil {
			return err
		}
		if t.r.Allowed {
			a.fill(t, began)
			return nil
		}
		a.refused(t)
		again, served := a.recover(ctx, t)
		if served {
			return nil
		}
		if !again && (a.show(t) || outdated) {
			return nil
		}
		t.wishes = [weir.MaxCharges]lease.Wish{}
	}
}

// acquireToAsk waits for the turns of a take, unless pockets serve it meanwhile, and marks it. If
// it needs none by then, it gives them back before others that are not in turn are answered: those
// that wait for them would otherwise be sent one after the other.
func (a *leases) acquireToAsk(ctx context.Context, t *leaseTake) (served bool, done func(), err error) {
	t.waited = true
	for {
		if err := a.acquireTurns(ctx, t); err != nil {
			return false, nil, err
		}
		if a.spend(t.charges, &t.hashes, t.r) || a.pass(t.charges, &t.hashes, false, t.r) {
			release(t)
			return true, nil, nil
		}
		a.wishFor(t)
		if a.needsTurn(t) {
			done, err = a.keepApart(ctx, t)
			if t.marked = done != nil; t.marked || err != nil {
				return false, done, err
			}
			continue
		}
		leave := a.table.enterApart(t, false)
		if !a.table.becameBusy(t) {
			release(t)
			return false, leave, nil
		}
		leave()
		a.giveTurnsBack(t)
	}
}

// fill puts what was granted into the pockets, to a take that began at began. The take is not
// before others were given units of its windows, and before each of them ends.
func (a *leases) fill(t *leaseTake, began time.Duration) {
	now, _ := a.clock()
	var own, held [weir.MaxCharges]int64
	var filled [weir.MaxCharges]lease.Filled
	pockets := lockAll(t.entries[:len(t.charges)])
	latest := t.r.Now
	for i := range t.charges {
		e, l := t.entries[i], t.lots[i]
		if e == nil {
			continue
		}
		if l.Window.Reset != t.r.Used[i].Reset { // the answer has no marks
			held[i] = a.recount(e, t.r.Used[i].Reset, t.r.Used[i].Count)
			_, last := e.pocket.Of(t.r.Used[i].Reset)
			latest = max(latest, a.aheadOf(e).at(last)/int64(time.Second))
			a.granted.Add(t.later(i))
			a.stranded.Add(t.later(i))
		} else {
			if t.charges[i].Cost > 0 {
				own[i] = e.pocket.Given() + t.charges[i].Cost - t.later(i)
			}
			l.Units += t.later(i)
			// of a cluster another machine may have been replaced meanwhile
			if had := e.pocket.Held(); e.pocket.Units() > 0 && had.Epoch < l.Window.Epoch && a.of.lasts(e, had.Epoch) {
				l.Window.Epoch = had.Epoch
			}
			filled[i] = e.pocket.Fill(l, a.aheadOf(e).when(t.r.Now))
			latest = max(latest, a.aheadOf(e).at(filled[i].Since)/int64(time.Second))
		}
	}
	t.r.Now = min(latest, t.ends()-1)
	pockets.unlock()
	for i := range t.charges {
		e, l, f := t.entries[i], t.lots[i], filled[i]
		if e == nil {
			if c := &t.charges[i]; c.Cost > 0 {
				t.watches[i].note(t.hashes[i], c, now, c.Cost, t.r.Used[i].Count, 0, t.r.Used[i].Reset)
			}
			continue
		}
		if l.Window.Reset != t.r.Used[i].Reset {
			t.r.Used[i].Count -= held[i]
			continue
		}
		a.granted.Add(l.Units + t.later(i))
		a.stranded.Add(f.Dropped)
		t.r.Used[i].Count = l.Count - f.Units
		if t.charges[i].Cost <= 0 { // a take that only looks does not use units
			continue
		}
		e.watch.note(e.hash, &t.charges[i], now, own[i], l.Count-l.Units, l.Units, l.Window.Reset)
		e.noteAsked(&t.charges[i], now, now-began, own[i], f.Units)
		if f.Units > 0 {
			a.active.add(e, l.Window.Reset, e.watch.patience(e.hash, &t.charges[i]))
		}
	}
}

// recover reports whether a take that the lender has refused fits with what this process holds: a
// pocket serves it, or the units have gone back and the lender is to be asked again.
func (a *leases) recover(ctx context.Context, t *leaseTake) (again, served bool) {
	fits := true
	pockets := lockAll(t.entries[:len(t.charges)])
	for i := range t.charges {
		e, used := t.entries[i], t.r.Used[i]
		if e != nil {
			units, _ := e.pocket.Of(used.Reset)
			again = again || units > 0
			used.Count -= min(units, used.Count)
		}
		fits = fits && used.Fits(t.charges[i].Cost, t.charges[i].Limit)
	}
	pockets.unlock()
	if !again || !fits {
		return false, false
	}
	if a.spend(t.charges, &t.hashes, t.r) {
		return false, true
	}
	a.giveBackAll(ctx, t)
	return true, false
}

// giveBackAll gives back what the pockets of a take have.
func (a *leases) giveBackAll(ctx context.Context, t *leaseTake) {
	for _, e := range t.entries[:len(t.charges)] {
		if e != nil {
			a.giveBack(ctx, e)
		}
	}
}

// ends returns when the first of the receipt's open windows ends.
func (t *leaseTake) ends() int64 {
	ends := int64(math.MaxInt64)
	for i := range t.charges {
		if reset := t.r.Used[i].Reset; reset > t.r.Now {
			ends = min(ends, reset)
		}
	}
	return ends
}

// show makes the receipt of a refused take show what this process could still give out, at a time
// that is not before others were given units. It returns false if one of its windows had ended by
// then: the lender is to be asked again. If it still knows the window, a clock was set back, and
// the time is the last of the window.
func (a *leases) show(t *leaseTake) bool {
	var units [weir.MaxCharges]int64
	pockets := lockAll(t.entries[:len(t.charges)])
	defer pockets.unlock()
	latest, ends := t.r.Now, t.ends()
	for i, e := range t.entries[:len(t.charges)] {
		if e == nil {
			continue
		}
		used := t.r.Used[i]
		held, last := e.pocket.Of(used.Reset)
		units[i] = min(held, used.Count)
		// also if none is left by now
		latest = max(latest, a.aheadOf(e).at(last)/int64(time.Second))
	}
	t.r.Now = min(latest, ends-1)
	for i := range t.charges {
		t.r.Used[i].Count -= units[i]
	}
	return latest < ends
}

// void drops what a pocket has: it stays spent.
func (a *leases) void(e *leased) { a.stranded.Add(e.pocket.Drain().Units) }
