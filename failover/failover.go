// Package failover bridges the time in which a store does not answer.
//
// A [Store] is a store around a store. It asks the inner one within a deadline, and stops asking while that fails. Meanwhile
// it does what each limiter declared: it counts in this process, admits, or refuses. If the inner store counts for several
// processes ([weir.Shared]), the local count starts from what that store last answered, and what was counted here is given
// to it when it answers again.
//
//	failover.go    one take: ask the store, or decide without it
//	deadline.go    how long a take waits
//	breaker.go     whether a take may ask at all
//	outage.go      when the store failed, and what observers are told
//	owed.go        what was counted here and the store does not have yet
//	reconcile.go   gives it that
package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
)

// A Store asks the store inside it, and decides by itself while that does not answer. It is safe for concurrent use. Its
// Take returns no error: what came of it is Receipt.Outcome.
type Store struct {
	inner    weir.Store
	shared   weir.Shared // inner; nil if it is none
	keeper   weir.Keeper // likewise
	fallback weir.Store  // nil: none
	raiser   weir.Raiser // the fallback; nil if it is none
	options  Options

	deadlines deadlines
	breaker   breaker
	outage    outage
}

var (
	_ weir.Bounded = (*Store)(nil)
	_ weir.Keeper  = (*Store)(nil)
)

// Options are a Store's settings; the zero value is useful.
type Options struct {
	// Deadline bounds the wait for the inner store, from the moment of asking; 0 means 100 ms. Takes share deadlines, so some
	// wait up to a sixteenth less.
	Deadline time.Duration

	// OnEvent, if not nil, is called once when the inner store stops answering, and once when it answers again, has been given
	// what was counted here meanwhile, and has not failed for 3 seconds. It must not block.
	OnEvent func(Event)

	// OnTake, if not nil, is called with how long the inner store took to answer one take, and its error. It must not block.
	OnTake func(took time.Duration, err error)

	// Now is the clock by which the circuit breaker waits; nil means time.Now. Windows are counted by the stores' clocks.
	Now func() time.Time
}

// New returns a Store around inner. Fallback counts while inner does not answer; it must be [weir.InProcess]. With a nil
// fallback FailLocal and FailAllow act as FailDeny: what cannot be counted is refused. Beside a Shared store the fallback
// should be a [weir.Raiser], so that it continues from inner's counts, and count by that store's Now.
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
	s.raiser, _ = fallback.(weir.Raiser)
	s.deadlines = deadlines{length: o.Deadline, start: time.Now()}
	s.outage.told = o.OnEvent
	return s, nil
}

// Unwrap implements weir.Bounded: it returns the inner store.
func (s *Store) Unwrap() weir.Store { return s.inner }

// Take asks the inner store, and where that does not answer does what the charges say (D25). It never returns an error.
func (s *Store) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	r.Outcome, r.Remembered = weir.Counted, false
	turn := s.breaker.turn(s.options.Now)
	switch {
	case turn == barred:
		s.decide(ctx, charges, r, nil)
		return nil
	case turn == tries && s.outage.owes():
		s.decide(ctx, charges, r, nil)
		s.ping(ctx, turn)
		return nil
	case s.mustGiveFirst(charges):
		s.giveFirst(ctx, charges, r)
		return nil
	}
	err := s.ask(ctx, charges, r)
	s.learn(turn, r.Remembered, err)
	if err != nil {
		s.decide(ctx, charges, r, err)
	}
	return nil
}

// mustGiveFirst reports whether the store must be given units before it is asked to charge these
// windows: they were counted here, and callers were told when that window ends. A take that came
// first would open a window that ends later.
func (s *Store) mustGiveFirst(charges []weir.Charge) bool {
	return s.shared != nil && s.outage.astir.Load() && s.fallback != nil && failureMode(charges) != weir.FailDeny &&
		s.outage.owesWindow(charges, s.now())
}

// giveFirst decides without the store, and pings it unless another request does: its answer starts
// the giving. If the window's own machine did not answer when it was tried, nobody pings for that
// window until it is tried again.
func (s *Store) giveFirst(ctx context.Context, charges []weir.Charge, r *weir.Receipt) {
	s.decide(ctx, charges, r, nil)
	if s.outage.pinging.CompareAndSwap(false, true) {
		if s.outage.canGive(s.options.Now()) {
			s.ping(ctx, asks)
		}
		s.outage.pinging.Store(false)
	}
}

// ask asks the inner store, within the deadline.
func (s *Store) ask(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if s.options.OnTake == nil {
		return s.inner.Take(s.deadlines.bound(ctx), charges, r)
	}
	start := s.options.Now()
	err := s.inner.Take(s.deadlines.bound(ctx), charges, r)
	s.options.OnTake(s.options.Now().Sub(start), err)
	return err
}

// Probe asks the store in place of a request, where it is failing or is owed something: a process that is asked little finds out
// that its store answers again, gives it what was counted here meanwhile, and tells so. Call it about once a second; where
// there is nothing to do it returns at once. It waits no longer than the deadline, whatever ctx says, and an open circuit
// breaker lets it ask as seldom as requests. Only with a Shared store it does anything.
func (s *Store) Probe(ctx context.Context) {
	if s.shared == nil || !s.outage.astir.Load() {
		return
	}
	if turn := s.breaker.turn(s.options.Now); turn != barred {
		s.ping(ctx, turn)
	}
}

// ping asks the store in place of a take. While it is owed something nothing else may try it: a take would open windows at a
// store that was emptied, with other resets than callers were told, before what was counted in them here arrives; and a give that
// fails loses what it carries.
func (s *Store) ping(ctx context.Context, turn turn) {
	s.learn(turn, false, s.shared.Ping(s.deadlines.bound(ctx)))
}

// learn notes what a take or a ping tells of the store: an error that it does not answer, a receipt that it does, one that
// was only remembered nothing, and nor does ErrCharges.
func (s *Store) learn(turn turn, remembered bool, err error) {
	switch {
	case errors.Is(err, weir.ErrCharges) || err == nil && remembered:
		if turn == tries {
			s.breaker.pass(s.options.Now())
		}
	case err != nil:
		now := s.options.Now()
		s.breaker.failure(now)
		s.outage.failure(now, err)
	default:
		now := s.options.Now()
		s.breaker.answer(now)
		if s.outage.astir.Load() {
			s.resume(now)
		}
	}
}

// decide decides without the store. Charges of several limiters follow the strictest of them. cause is the store's error, nil
// if it was not asked.
func (s *Store) decide(ctx context.Context, charges []weir.Charge, r *weir.Receipt, cause error) {
	apart := errors.Is(cause, weir.ErrCharges)
	if !apart {
		s.outage.local.Add(1)
	}
	mode := failureMode(charges)
	if s.fallback == nil || mode == weir.FailDeny || !s.countHere(ctx, charges, r, apart) {
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

// countHere asks the fallback, and reports whether it has answered. It starts from what the store
// had counted when that last answered, and the store is owed what it admits.
func (s *Store) countHere(ctx context.Context, charges []weir.Charge, r *weir.Receipt, apart bool) bool {
	if s.shared != nil && s.raiser != nil {
		used := r.Used[:len(charges)]
		s.shared.Recall(charges, used)
		s.raiser.Raise(charges, used)
	}
	if err := s.fallback.Take(ctx, charges, r); err != nil {
		return false
	}
	if s.shared != nil && r.Allowed && spends(charges) {
		s.outage.note(charges, r, apart, s.options.Now())
	}
	return true
}

// spends reports whether charges ask for any unit.
func spends(charges []weir.Charge) bool {
	for i := range charges {
		if charges[i].Cost > 0 {
			return true
		}
	}
	return false
}

// failureMode returns the strictest of the charges' modes.
func failureMode(charges []weir.Charge) weir.FailureMode {
	mode := weir.FailAllow
	for i := range charges {
		switch charges[i].OnFailure {
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

// Reset implements weir.Keeper: the inner store forgets what was spent in the windows, and what it is owed for them is forgotten too.
// It returns weir.ErrNoKeeper if the inner store is no Keeper.
func (s *Store) Reset(ctx context.Context, charges []weir.Charge) error {
	if s.keeper == nil {
		return weir.ErrNoKeeper
	}
	if err := s.keeper.Reset(ctx, charges); err != nil {
		return err
	}
	s.outage.forgive(charges)
	if local, ok := s.fallback.(weir.Keeper); ok {
		// Or an outage in this very window would bring the old count back. Where it shares a budget with others it stays: then the
		// outage refuses early.
		_ = local.Reset(ctx, charges)
	}
	return nil
}

// Grant implements weir.Keeper. It returns weir.ErrNoKeeper if the inner store is no Keeper.
func (s *Store) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	if s.keeper == nil {
		return weir.ErrNoKeeper
	}
	return s.keeper.Grant(ctx, charges, grants)
}

// Granted implements weir.Keeper.
func (s *Store) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	return s.keeper != nil && s.keeper.Granted(charges, grants)
}
