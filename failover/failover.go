// Package failover keeps limits in force while a store does not answer.
//
// A [Store] is a store around a store. Each take asks the inner store and waits no longer than a
// deadline. If the inner store fails, the take does what its limiter declares
// ([weir.FailureMode]): it counts in a fallback in this process, admits, or refuses. A circuit
// breaker stops the waiting when failures repeat.
//
// Some inner stores count for several processes ([weir.Shared]). Then the fallback continues from
// the counts of the inner store's last answer. When the inner store answers again, it receives the
// units that were counted here. It receives each unit at most once, and before requests ask it
// about that window.
//
// A Decider of several processes with one Redis:
//
//	shared, err := redisstore.New(ctx, o)
//	local, err := memstore.New(memstore.Options{Now: shared.Now})
//	store, err := failover.New(shared, local, failover.Options{})
//	decider, err := weir.New(policy, store, weir.Options{})
//
// Close them in the reverse order, and call Store.Probe about once a second.
//
// The files, in the order of reading:
//
//	failover.go   one take: ask the inner store, or decide without it
//	deadline.go   how long a take waits
//	breaker.go    whether a take may ask
//	outage.go     when the inner store failed, and who is notified
//	owed.go       the units that the inner store has not received
//	settle.go     what a take turns out to have cost, in the store that counted it
//	slots.go      the slots that requests here hold in either store
//	reconcile.go  gives it those units
package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// A Store asks an inner store, and decides without it while it does not answer. It is safe for
// concurrent use. Its goroutines end with Close.
type Store struct {
	inner    weir.Store
	shared   weir.Shared  // inner; nil if it is not Shared
	keeper   weir.Keeper  // inner; nil if it is not a Keeper
	settler  weir.Settler // inner; nil if it is not a Settler
	leaser   weir.Leaser  // inner; nil if it is not a Leaser
	fallback weir.Store   // nil: there is no fallback
	starter  weir.Starter // fallback; nil if it is not a Starter
	options  Options

	localSettler weir.Settler // fallback; nil if it is not a Settler

	deadlines deadlines
	breaker   breaker
	outage    outage
	slots     slots
}

var (
	_ weir.Bounded       = (*Store)(nil)
	_ weir.Keeper        = (*Store)(nil)
	_ weir.SettleStarter = (*Store)(nil)
)

// Options are the settings of a Store; the zero value is useful.
type Options struct {
	// Deadline bounds the wait for the inner store; 0 means 100 ms. Takes share timers, so some
	// wait up to a sixteenth less.
	Deadline time.Duration

	// OnEvent is optional. It is called once when the inner store stops answering. It is called
	// again when the outage is over: the inner store answers, has received what was counted here,
	// and has not failed for 3 seconds. It must not block.
	OnEvent func(Event)

	// OnTake is optional. It is called after each take of the inner store with its duration and its
	// error. It must not block.
	OnTake func(took time.Duration, err error)

	// Now is the clock of the circuit breaker; nil means time.Now. The stores count by their own
	// clocks.
	Now func() time.Time
}

// New returns a Store around inner.
//
// fallback counts while inner does not answer. It must be [weir.InProcess]. If it is nil, FailLocal
// and FailAllow act as FailDeny, because what cannot be counted is refused. If inner is
// [weir.Shared], the fallback should be a [weir.Starter], and its clock should be inner's Now.
//
// The caller closes inner and fallback, after the Store.
func New(inner, fallback weir.Store, o Options) (*Store, error) {
	if inner == nil {
		return nil, errors.New("new failover: no store: pass the store that can fail, such as redisstore.New's")
	}
	if fallback != nil {
		if _, ok := fallback.(weir.InProcess); !ok {
			return nil, fmt.Errorf("new failover: fallback %T can fail itself: pass an in-process store, such as memstore.New's", fallback)
		}
	}
	if o.Deadline < 0 {
		return nil, fmt.Errorf("new failover: deadline %v: a positive duration is allowed, or 0 for 100ms", o.Deadline)
	}
	if o.Deadline == 0 {
		o.Deadline = 100 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{inner: inner, fallback: fallback, options: o}
	s.shared, _ = inner.(weir.Shared)
	s.keeper, _ = inner.(weir.Keeper)
	s.settler, _ = inner.(weir.Settler)
	s.leaser, _ = inner.(weir.Leaser)
	s.localSettler, _ = fallback.(weir.Settler)
	s.starter, _ = fallback.(weir.Starter)
	s.deadlines = deadlines{length: o.Deadline, start: time.Now()}
	s.outage.onEvent = o.OnEvent
	return s, nil
}

// Unwrap returns the inner store. It implements weir.Bounded.
func (s *Store) Unwrap() weir.Store { return s.inner }

// Take asks the inner store. If that does not answer, Take does what the charges declare (D25) and
// sets Receipt.Outcome. It waits no longer than the deadline, ignores the cancellation of ctx, and
// never returns an error.
func (s *Store) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	r.Outcome, r.Remembered, r.Leased, r.Ticket = weir.Counted, false, false, weir.Ticket{}
	found := s.breaker.enter(s.options.Now)
	switch {
	case found == open:
		s.decide(ctx, charges, r, nil)
		return nil
	case found == halfOpen && s.outage.owes():
		s.decide(ctx, charges, r, nil)
		s.ping(ctx, found)
		return nil
	case s.mustGiveFirst(charges):
		s.giveFirst(ctx, charges, r)
		return nil
	}
	err := s.ask(ctx, charges, r)
	s.learn(found, r.Remembered || r.Leased, err)
	if err != nil {
		s.decide(ctx, charges, r, err)
	}
	return nil
}

// mustGiveFirst reports whether the inner store must receive units before it is asked about these
// windows. Callers know the reset of a window that was counted here. A take that arrived at the
// inner store first would open the window with a later reset.
func (s *Store) mustGiveFirst(charges []weir.Charge) bool {
	return s.shared != nil && s.outage.active.Load() && s.fallback != nil && failureMode(charges) != weir.FailDeny &&
		s.outage.owesWindow(charges, s.now())
}

// giveFirst decides without the inner store. Then it pings that store, unless another request does:
// the answer starts a reconciliation. If a window's machine was silent a moment ago, giveFirst does
// not ping until the machine is due again.
func (s *Store) giveFirst(ctx context.Context, charges []weir.Charge, r *weir.Receipt) {
	s.decide(ctx, charges, r, nil)
	if s.outage.pinging.CompareAndSwap(false, true) {
		if s.outage.canReconcile(s.options.Now()) {
			s.ping(ctx, closed)
		}
		s.outage.pinging.Store(false)
	}
}

// ask asks the inner store, within the deadline.
func (s *Store) ask(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if s.options.OnTake == nil {
		return s.takeInner(s.deadlines.context(ctx), charges, r)
	}
	start := s.options.Now()
	err := s.takeInner(s.deadlines.context(ctx), charges, r)
	s.options.OnTake(s.options.Now().Sub(start), err)
	return err
}

// Probe asks the inner store in place of a request, if it fails or is owed units. So a process with
// few requests notices that its store answers again, and gives it what was counted here. Call it
// about once a second, or let KeepProbing do so; if there is nothing to do, it returns at once. It
// waits no longer than the deadline, even if ctx lasts longer, and the circuit breaker limits it
// like requests. It does nothing for an inner store that is not weir.Shared.
func (s *Store) Probe(ctx context.Context) {
	if s.shared == nil || !s.outage.active.Load() {
		return
	}
	if found := s.breaker.enter(s.options.Now); found != open {
		s.ping(ctx, found)
	}
}

// ProbeInterval is the time between two probes of KeepProbing.
const ProbeInterval = time.Second

// KeepProbing calls Probe once in ProbeInterval, until ctx ends.
func (s *Store) KeepProbing(ctx context.Context) {
	ticker := time.NewTicker(ProbeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.Probe(ctx)
		}
	}
}

// ping asks the inner store without a take. If the store is owed units, a take must not be the
// trial: a store that was emptied would open windows with other resets than callers know, before
// the units arrive. A Give must not be the trial either: if it fails, its units are lost.
func (s *Store) ping(ctx context.Context, found state) {
	s.learn(found, false, s.shared.Ping(s.deadlines.context(ctx)))
}

// learn records the result of a take or a ping. ErrCharges and an answer from this process's memory
// show neither that the inner store answers nor that it fails.
func (s *Store) learn(found state, remembered bool, err error) {
	switch {
	case errors.Is(err, weir.ErrCharges) || err == nil && remembered:
		if found == halfOpen {
			s.breaker.release(s.options.Now())
		}
	case err != nil:
		now := s.options.Now()
		s.breaker.failure(now)
		s.outage.failure(now, err)
	default:
		now := s.options.Now()
		s.breaker.success(now)
		if s.outage.active.Load() {
			s.resume(now)
		}
	}
}

// decide decides without asking the inner store. Charges of several limiters follow the strictest
// mode. cause is the error of the inner store; nil if it was not asked.
func (s *Store) decide(ctx context.Context, charges []weir.Charge, r *weir.Receipt, cause error) {
	if s.leaser != nil && s.leaser.TakeLeased(charges, r) {
		return
	}
	apart := errors.Is(cause, weir.ErrCharges)
	if !apart {
		s.outage.local.Add(1)
	}
	mode := failureMode(charges)
	if s.fallback == nil || mode == weir.FailDeny || !s.countLocally(ctx, charges, r, apart) {
		now := s.options.Now
		if s.shared != nil {
			now = s.shared.Now
		}
		r.Refuse(charges, now())
		return
	}
	r.Outcome = weir.CountedLocally
	if mode == weir.FailAllow {
		r.Allowed, r.Outcome = true, weir.AllowedUncounted
	}
}

// countLocally takes from the fallback, and reports whether that answered. The fallback continues
// from the counts that the inner store last answered. The inner store is owed what it admits.
func (s *Store) countLocally(ctx context.Context, charges []weir.Charge, r *weir.Receipt, apart bool) bool {
	if s.localSettler == nil && holds(charges) {
		return false
	}
	if s.shared != nil && s.starter != nil {
		used := r.Used[:len(charges)]
		s.shared.Recall(charges, used)
		s.starter.StartFrom(charges, used)
	}
	if err := s.takeLocally(ctx, charges, r); err != nil {
		return false
	}
	if r.Ticket.Local = true; !r.Allowed || s.localSettler == nil {
		r.Ticket = weir.Ticket{} // it may be admitted all the same, uncounted
	}
	if s.shared != nil && r.Allowed && spends(charges) {
		s.outage.owe(charges, r, apart, s.options.Now())
	}
	return true
}

// spends reports whether any charge costs a unit of a window.
func spends(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Cost > 0 && !charges[i].Held {
			return true
		}
	}
	return false
}

// failureMode returns the strictest mode of the charges.
func failureMode(charges []weir.Charge) weir.FailureMode {
	mode := weir.FailAllow
	for i := range charges {
		switch charges[i].OnFailure.Then() {
		case weir.FailDeny:
			mode = weir.FailDeny
		case weir.FailLocal:
			if mode == weir.FailAllow {
				mode = weir.FailLocal
			}
		}
	}
	return mode
}

// Reset resets windows of the inner store and of the fallback, and drops what the inner store is
// owed for them. It returns weir.ErrNoKeeper for an inner store that is not a Keeper.
func (s *Store) Reset(ctx context.Context, charges []weir.Charge) error {
	if s.keeper == nil {
		return weir.ErrNoKeeper
	}
	if err := s.keeper.Reset(ctx, charges); err != nil {
		return err
	}
	s.outage.forgive(charges)
	if local, ok := s.fallback.(weir.Keeper); ok {
		// Otherwise an outage in this window would bring the old count back. If the fallback cannot
		// reset a window because newcomers share it, the outage refuses early.
		_ = local.Reset(ctx, charges)
	}
	return nil
}

// Grant gives grants in the inner store. It returns weir.ErrNoKeeper for one that is not a Keeper.
func (s *Store) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	if s.keeper == nil {
		return weir.ErrNoKeeper
	}
	return s.keeper.Grant(ctx, charges, grants)
}

// Granted returns the grants of the inner store, and false if that is not a Keeper.
func (s *Store) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	return s.keeper != nil && s.keeper.Granted(charges, grants)
}
