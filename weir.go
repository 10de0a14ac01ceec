// Package weir decides whether a request fits its rate limits.
//
// It is the narrow waist of the project. Above it stand the front doors (net/http middleware, a gateway), below it the
// stores (embedded, shared); it knows neither HTTP nor any database. A [Policy] declares limiters, [New] compiles one
// together with a [Store], and [Decider.Decide] answers one [Request] with one [Decision]:
//
//	route → limiter        route.go     which limiter applies
//	who → keys             key.go       what each of its windows counts by
//	charges → take         store.go     a store charges every window, or none; a new store implements its one method
//	receipt → standings    ticket.go    the binding window first, as the headers will tell it
//
// Some callers have other limits, or none: who.go. What is tried out beside the policy is shadow.go and candidate.go, and what an
// operator looks at and changes is keeper.go.
//
// The arithmetic of a fixed window stands alone in window.go: no clock, no I/O, no context. What happens while a store
// does not answer is failover.go; beneath it are deadline.go, breaker.go, and for a store that several processes share outage.go
// (what is known of the outage), notes.go (what the store is owed for it) and giveback.go (how it gets that).
package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Decider answers requests under one policy, from one store. It is safe for concurrent use.
type Decider struct {
	store     Store
	inProcess bool
	shared    Shared // store, or nil where it is not one
	raiser    Raiser // the fallback, likewise
	options   Options
	keeper    Keeper // likewise
	compiled  atomic.Pointer[compiled]
	candidate atomic.Pointer[candidate] // nil: none
	aside     aside
	tickets   sync.Pool

	deadlines deadlines
	breaker   breaker
	outage    outage
}

// Options are the Decider's settings; the zero value is useful.
type Options struct {
	// Sources are the key sources that callers can have, so that a policy cannot name another; nil accepts any name.
	Sources []Source

	// Deadline bounds the wait for a store that is not in this process, from the moment of asking; 0 means 100 ms. Requests
	// share deadlines, so some wait up to a sixteenth less.
	Deadline time.Duration

	// Fallback counts while the store does not answer. It must be InProcess. Without one, FailLocal and FailAllow act as
	// FailDeny: what nobody counts is refused. Beside a Shared store it should be a Raiser, so that it goes on from where the
	// store left off, and count by that store's Now.
	Fallback Store

	// OnStoreFailure, if set, is told once when the store stops answering, and once when it answers again, has been given
	// what was counted here meanwhile, and has not failed for 3 seconds. It must not block.
	OnStoreFailure func(StoreEvent)

	// OnTake, if set, is told how long a store that is not in this process took to answer one take, and its error. It must not
	// block.
	OnTake func(took time.Duration, err error)

	// OnShadow, if set, is told what a limiter in Shadow mode would have said to a request. It must not block, and must not keep
	// what it is given. It is called before Decide returns, or, where the store is not in this process, at any time later.
	OnShadow func(Shadowed)

	// OnCandidate, if set, is told what the candidate policy says of a request beside what was decided (see SetCandidate). It is
	// called before Decide returns, must not block, and must not keep what it is given.
	OnCandidate func(Compared)

	// Now is the clock by which the circuit breaker waits; nil means time.Now. Windows are counted by the store's clock.
	Now func() time.Time
}

// New compiles the policy and returns a Decider that counts in s. A policy with problems gives a *PolicyError that holds
// all of them.
func New(p Policy, s Store, o Options) (*Decider, error) {
	if s == nil {
		return nil, errors.New("new decider: no store: pass a Store, such as memstore.New's")
	}
	if o.Fallback != nil {
		if _, ok := o.Fallback.(InProcess); !ok {
			return nil, fmt.Errorf("new decider: fallback %T can fail itself: pass an in-process store, such as memstore.New's", o.Fallback)
		}
	}
	if o.Deadline < 0 {
		return nil, fmt.Errorf("new decider: deadline %v: a positive duration is allowed, or 0 for 100ms", o.Deadline)
	}
	if o.Deadline == 0 {
		o.Deadline = 100 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Decider{store: s, options: o}
	_, d.inProcess = s.(InProcess)
	d.shared, _ = s.(Shared)
	d.keeper, _ = s.(Keeper)
	d.raiser, _ = o.Fallback.(Raiser)
	d.deadlines = deadlines{length: o.Deadline, start: time.Now()}
	d.outage.told = o.OnStoreFailure
	d.tickets.New = func() any { return new(ticket) }
	if err := d.Swap(p); err != nil {
		return nil, err
	}
	return d, nil
}

// Swap puts another policy in force for every request that comes after. Counts survive where a window keeps its limiter's
// name, its length and its key (D5). After an error, a *PolicyError, the old policy is still in force.
func (d *Decider) Swap(p Policy) error {
	c, problems := compile(p, d.options.Sources)
	if len(problems) > 0 {
		return &PolicyError{Policy: p, Problems: problems}
	}
	d.compiled.Store(c)
	return nil
}

// Policy returns a copy of the policy in force.
func (d *Decider) Policy() Policy {
	return d.compiled.Load().policy.clone()
}

// Match returns the most specific route for a request (D8). path is decoded and need not be canonical.
func (d *Decider) Match(method, path string) Match {
	m := d.compiled.Load().match(method, path)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.table.match(method, path))
	}
	return m
}

// Fallback returns the least specific route that covers path, for any method where there is one: what a surface counts
// when a request has no safe reading of its own (D10).
func (d *Decider) Fallback(path string) Match {
	m := d.compiled.Load().table.fallback(path)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.table.fallback(path))
	}
	return m
}

// Named returns the limiter of that name; the zero Match where the policy has none.
func (d *Decider) Named(name string) Match {
	m := d.compiled.Load().byName(name)
	if c := d.candidate.Load(); c != nil {
		m = m.with(c, c.compiled.byName(name))
	}
	return m
}

// Keys answers who is calling. It is the seam between who and how much: HTTP answers from package identity, other doors
// from what they have.
type Keys interface {
	// AppendKey appends the value of the named key source to dst. ok is false where this caller has none; then dst is
	// returned as it was. Values may hold any bytes. Keys that know of a value over 256 bytes no more than its SHA-256 answer that,
	// and have a method Digested(source string) bool that says so.
	AppendKey(dst []byte, source string) (value []byte, ok bool)
}

// A Request is what Decide judges.
type Request struct {
	Method string // case-sensitive, as received
	Path   string // decoded, without query
	Keys   Keys   // required

	// Cost is the number of units to spend; 0 means the limiter's own cost, Peek reads without spending.
	Cost int64

	// Match is the result of Decider.Match, where the caller has asked already; the zero value lets Decide ask.
	Match Match

	// Scratch is working memory that the caller keeps from one request to the next; nil takes some from a pool. Two
	// requests must not use it at a time.
	Scratch *Scratch

	// Limiters names the limiters outright, instead of Method and Path: all are charged or none.
	Limiters []string
}

// Peek is the Request.Cost that reads the standings without spending.
const Peek = -1

// An Outcome says how a Decision came about.
type Outcome uint8

const (
	// Unlimited: no limiter covers the request.
	Unlimited Outcome = iota
	// Counted by the store.
	Counted
	// CountedLocally, because the store did not answer (FailLocal).
	CountedLocally
	// AllowedUncounted, because the store did not answer (FailAllow).
	AllowedUncounted
	// StoreUnavailable: refused because the store did not answer (FailDeny).
	StoreUnavailable
)

// A Decision answers one Request. It holds no memory that the Decider reuses.
type Decision struct {
	Allowed bool
	Outcome Outcome
	Now     int64 // Unix seconds on the clock that decided; 0 where Outcome is Unlimited
	Cost    int64 // units spent, or that would have been
	Exempt  bool  // whether the caller is one that is never refused (Limiter.Exempt)

	few  [2]Standing // most limiters have one window or two: those need no memory of their own
	many []Standing  // all of them, where there are more than fit into few
	n    int
}

// A Standing is where one window stands after a Decision.
type Standing struct {
	Limiter   *Limiter // the limiter of the window; read only
	Window    *Window  // read only
	Limit     int64    // what holds for this caller: Window.Limit, or that of an override or a grant
	Count     int64    // units spent, as the store has them
	Remaining int64    // units left, never negative; of an exempt caller Limit, since that many will be admitted whatever was spent
	Reset     int64    // Unix seconds at which the budget is restored
	Refused   bool     // whether this window is a reason for the refusal

	charge uint8 // which of the take's charges it is about
}

// Standings returns where every charged window stands, the binding one first; none where no limiter covers the request.
func (d *Decision) Standings() []Standing {
	if d.many != nil {
		return d.many
	}
	return d.few[:d.n]
}

// Binding returns the window that the headers describe (D4): of those that refused, the one that frees last; served, the
// one with the least left. It is the zero Standing where no limiter covers the request.
func (d *Decision) Binding() Standing {
	if d.many != nil {
		return d.many[0]
	}
	return d.few[0]
}

// RetryAfter returns the seconds after which a refused request can be sent again; 0 where it was allowed.
func (d *Decision) RetryAfter() int64 {
	if d.Allowed {
		return 0
	}
	return max(d.Binding().Reset-d.Now, 1)
}

// Near reports whether little is left: less than a fifth of the limit.
func (s *Standing) Near() bool { return s.Remaining*5 < s.Limit }

// Decide judges one request and charges it: to every window of its limiter, or to none. It errs only where the request
// itself cannot be judged (an unknown limiter, a cost out of range); a store that fails follows the limiter's
// OnStoreFailure (D25). With an in-process store it never waits, and allocates only for more than two windows. ctx carries
// values to the store; that a caller has gone away does not undo a charge (D5), so its cancellation is ignored.
func (d *Decider) Decide(ctx context.Context, r Request) (Decision, error) {
	var out Decision
	err := d.DecideInto(ctx, &r, &out)
	return out, err
}

// DecideInto is Decide into memory of the caller's: a Decision is large enough that copying it shows (30 ns and more).
// Whatever out held is overwritten; after an error it holds no decision.
func (d *Decider) DecideInto(ctx context.Context, r *Request, out *Decision) error {
	var t *ticket
	if r.Scratch != nil {
		t = &r.Scratch.ticket
	} else {
		t = d.tickets.Get().(*ticket)
		defer d.tickets.Put(t)
	}
	t.reset()
	if err := d.fill(t, r); err != nil {
		*out = Decision{}
		return err
	}
	if t.n == 0 {
		*out = Decision{Allowed: true, Outcome: Unlimited}
	} else {
		t.decide(d.take(ctx, t), out)
	}
	if t.beside != nil && r.Cost != Peek {
		d.decideBeside(ctx, r, t, out)
	}
	return nil
}
