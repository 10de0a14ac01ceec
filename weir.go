// Package weir decides whether a request fits its rate limits.
//
// It is the waist of an hourglass. Above it are the front doors (net/http middleware, a gateway, a
// log), and below it are the stores (memstore, redisstore). The waist knows neither HTTP nor a
// database. A [Policy] declares limiters. [New] compiles a policy and connects it to a [Store].
// [Decider.Decide] answers one [Request] with one [Decision].
//
// The files follow one request. Read them in this order, each from the top:
//
//	weir.go       New, and Decide in its four steps
//	route.go      1. the limiter that covers the request
//	fold.go          the form of a path that chooses it
//	parameter.go     the parameters of its route, which a window can count by
//	charge.go     2. one charge for each window of the limiter
//	asks.go          of several limiters, each in a way of its own
//	who.go           the callers that have other limits, or none, or are denied
//	special.go       what holds for one caller        networks.go  the sets that files have
//	plan.go          limits by a caller's plan
//	required.go      callers without the credential that the limiter requires
//	key.go           the bytes that a window counts by
//	unread.go        a request that is refused before its body reports its cost
//	store.go      3. the store takes all charges, or none
//	decision.go   4. the standing of each window, the binding one first
//	window.go        the arithmetic of a window, without clock or I/O
//	settle.go     what a request turns out to have cost, and when it has ended
//	penalty.go    what becomes of callers that are refused often
//	trial.go      limiters in Shadow mode: what is tried out has no effect on the request
//	reports.go       what is reported to a trial of its request
//	candidate.go  a whole policy that is tried out
//
// The rest prepares a policy or serves operators:
//
//	policy.go     the policy as a document
//	responses.go  its responses to requests that end at a limiter
//	source.go     the table of key sources
//	sourcename.go    the spelling of what a source reads, as in header:X-Api-Key
//	parse.go      its spelling
//	compile.go    what New makes of it
//	problems.go   what can be wrong with it, and responseproblems.go with its responses
//	overlap.go       the paths that limiters in Shadow mode have in common
//	keeper.go     Inspect, Reset and Grant change one caller's windows
//	saved.go      a caller to be asked about later
//	usage.go      the state of a caller's windows, for the caller
//	crossed.go    requests that bring a count to a percentage of its limit
//	anew.go       which windows are the same under two policies
//	routes.go     step 1 alone, for callers that pace themselves
//
// A store that can fail belongs in a failover.Store (package failover).
package weir

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Decider answers requests under one policy and counts in one store. It is safe for concurrent
// use.
type Decider struct {
	store     Store
	inProcess bool // store is InProcess
	// store, if its counts are in this process at times; nil: it is not such a store
	here    interface{ CountsHere() bool }
	bounded bool    // store is Bounded
	direct  Store   // the store that operators ask: store, or the innermost one inside it
	keeper  Keeper  // store; nil for a store that is not a Keeper
	settler Settler // store; nil for a store that is not a Settler
	options Options

	compiled  atomic.Pointer[compiled]
	candidate atomic.Pointer[candidate] // nil: there is none
	trials    waiters
	kept      atomic.Int64 // trials that wait for reports on how their requests go on
	settling  waiters
	scratches sync.Pool
}

// Options are the settings of a Decider; the zero value is useful.
type Options struct {
	// Sources are the key sources that callers can have. A policy that names another has a problem.
	// If nil, any name is accepted.
	Sources []Source

	// OnShadow is optional. It is called with the decision of each limiter in Shadow mode. It must
	// not block, and must not keep its argument. It is called before Decide returns; if the store
	// is not in this process, it may be called at any later time.
	OnShadow func(Shadowed)

	// OnCrossed is optional. It is called for each window whose count a request brings to a
	// percentage of Limiter.Notify. It must not block, and must not keep its argument. It is called
	// when OnShadow is for a limiter in Shadow mode, and before Decide returns for any other. For a
	// window that may be settled it is called after OnSettled instead, or by End. So the Keys of
	// such a request must be valid until then.
	OnCrossed func(Crossed)

	// OnSettled is optional. It is called for each limiter in whose windows a request is settled.
	// It must not block, and must not keep its argument. It is called before Answered or Spent
	// returns; if the store is not in this process, it may be called at any later time.
	OnSettled func(Settled)

	// OnHeld is optional. It is called with 1 when a request takes a slot of a limiter
	// (Limiter.InFlight), and with -1 when it gives that back, also if the store does not answer.
	// It must not block, and must not keep its argument. Limiters in Shadow mode are left out.
	OnHeld func(l *Limiter, slots int64)

	// OnCandidate is optional. It is called with each decision and the candidate policy's decision
	// on the same request (see SetCandidate). It is called before Decide returns, must not block,
	// and must not keep its argument.
	OnCandidate func(Compared)
}

// New compiles the policy and returns a Decider that counts in s. If the policy has problems, the
// error is a *PolicyError with all of them.
//
// A store that is not in this process should be wrapped in a failover.Store. Without it, a request
// waits as long as the store takes. An error of the store then refuses the request with
// StoreUnavailable, whatever Limiter.OnStoreFailure declares.
func New(p Policy, s Store, o Options) (*Decider, error) {
	if s == nil {
		return nil, errors.New("new decider: no store: pass a Store, such as memstore.New's")
	}
	d := &Decider{store: s, direct: s, options: o, trials: waiters{max: maxTrials}, settling: waiters{max: maxSettling}}
	_, d.inProcess = s.(InProcess)
	d.here, _ = s.(interface{ CountsHere() bool })
	for b, ok := s.(Bounded); ok; b, ok = d.direct.(Bounded) {
		d.bounded, d.direct = true, b.Unwrap()
	}
	if _, ok := d.direct.(Keeper); ok {
		d.keeper, _ = s.(Keeper)
	}
	if _, ok := d.direct.(Settler); ok {
		d.settler, _ = s.(Settler)
	}
	d.scratches.New = func() any { return new(Scratch) }
	if err := d.Swap(p); err != nil {
		return nil, err
	}
	return d, nil
}

// Swap replaces the policy for every later request. A window keeps its count if its limiter's name,
// its length, its key and when it ends by the clock stay the same (D5): Policy.Anew returns the
// others. If p has problems, the error is a *PolicyError, and the old policy stays in force.
func (d *Decider) Swap(p Policy) error {
	c, problems := compile(p, d.options.Sources)
	if d.settler == nil {
		problems = append(problems, settlingProblems(p)...)
	}
	if len(problems) > 0 {
		return &PolicyError{Policy: p, Problems: problems}
	}
	d.compiled.Store(c)
	return nil
}

// InProcess reports whether Decide and what follows it do not wait for the store. If the store has
// a method CountsHere, that reports it for now; else it is whether the store is InProcess.
func (d *Decider) InProcess() bool {
	if d.here != nil {
		return d.here.CountsHere()
	}
	return d.inProcess
}

// Policy returns a copy of the policy in force.
func (d *Decider) Policy() Policy {
	return d.compiled.Load().policy.clone()
}

// Responses returns the responses of the policy in force. It is read only, and the same pointer
// until the next Swap.
func (d *Decider) Responses() *Responses { return &d.compiled.Load().policy.Responses }

// Close ends the trials of limiters in Shadow mode, and settlement: no more begin, and Close waits
// for those under way until ctx ends. Decide still works. Close does not close the store.
func (d *Decider) Close(ctx context.Context) {
	d.trials.close(ctx)
	d.settling.close(ctx)
}

// Keys identify a caller. They are the seam between who and how much: package identity has Keys of
// HTTP requests, and other front doors have their own.
type Keys interface {
	// AppendKey appends the caller's value for a key source to dst. If the caller has none, ok is
	// false and value is dst. Values may hold any bytes. Keys that only have the SHA-256 of a value
	// over 256 bytes append that, and report it by a method Digested(source string) bool.
	AppendKey(dst []byte, source string) (value []byte, ok bool)
}

// A Request is what Decide judges.
type Request struct {
	Method string // case-sensitive, as received
	Host   string // of its Host field, as received; empty: routes that name a host do not cover it
	Path   string // decoded, without query
	Keys   Keys   // required

	// Cost is the number of units to spend. 0 means the limiter's own cost, and Peek reads without
	// spending.
	Cost int64

	// Reporter has what the request reports of its own cost. It is used if Cost is 0, for the
	// limiters whose Reserve reads it, also for those that the request is only tried out under. If
	// nil, the request reports nothing.
	Reporter Reporter

	// Match is the result of Decider.Match, if the caller has it already. If zero, Decide matches.
	Match Match

	// Scratch is working memory that the caller keeps for its next request. If nil, Decide takes
	// one from a pool. Two requests must not use a Scratch at the same time. Answered, Spent and
	// End need the Scratch of the decision, so a limiter that holds slots (Limiter.InFlight) cannot
	// decide without one.
	Scratch *Scratch

	// Limiters names limiters that replace Method and Path: all of them are charged, or none.
	Limiters []string

	// Asks replace Limiters, and Cost: each names a limiter, and has the caller, the cost and the
	// limit by which it is asked. All of them are charged, or none. Two of them may name the same
	// limiter, for different callers. They are not tried out under a candidate policy.
	Asks []Ask
}

// Peek is the Request.Cost that reads the standings without spending.
const Peek = -1

// An Outcome is the way a Decision was made.
type Outcome uint8

const (
	// Counted: the store counted the request.
	Counted Outcome = iota
	// CountedLocally: the store did not answer, and this process counted (FailLocal).
	CountedLocally
	// AllowedUncounted: the store did not answer, and the request was admitted (FailAllow).
	AllowedUncounted
	// StoreUnavailable: the store did not answer, and the request was refused (FailDeny).
	StoreUnavailable
	// Unlimited: no limiter covers the request.
	Unlimited
	// Denied: Limiter.Deny names the caller, so nothing was counted and no store was asked.
	Denied
)

// Decide judges one request. It charges every window of the limiter, or none. It returns an error
// only if the request cannot be judged (an unknown limiter, a cost out of range). If the store
// fails, Decide does what the limiter's OnStoreFailure declares (D25).
//
// If the body of the request reports its cost (Reporter.Waits), Decide first asks the store whether
// the least cost would fit. If not, it refuses the request as a take of that cost, and the body is
// not read.
//
// With an in-process store, Decide never waits, and it allocates only for more than two windows. A
// caller that goes away is charged all the same (D5), so Decide ignores the cancellation of ctx.
// The store gets the values of ctx.
func (d *Decider) Decide(ctx context.Context, r Request) (Decision, error) {
	var out Decision
	err := d.DecideInto(ctx, &r, &out)
	return out, err
}

// DecideInto is Decide into the caller's memory: copying a Decision costs 30 ns and more. It
// overwrites out. After an error, out is the zero Decision.
func (d *Decider) DecideInto(ctx context.Context, r *Request, out *Decision) error {
	s := r.Scratch
	if s == nil {
		s = d.scratches.Get().(*Scratch)
		defer d.scratches.Put(s)
	} else if s.awaits != 0 || s.waiting != nil {
		d.End(ctx, s)
	}
	m := d.find(r)
	err := d.charge(s, m, r, bodyCostsLeast)
	refused := err == nil && s.unread && d.wouldRefuse(ctx, s)
	if err == nil && s.unread && !refused {
		err = d.charge(s, m, r, bodyIsRead)
	}
	if err == nil && !refused {
		refused, err = d.resolve(ctx, s, m, r)
	}
	if err != nil {
		*out = Decision{}
		return err
	}
	switch {
	case s.denied != nil:
		s.deny(out)
	case s.n == 0:
		*out = Decision{Allowed: true, Outcome: Unlimited}
	default:
		if !refused {
			d.take(ctx, s)
		}
		if r.Scratch != nil { // else nothing can settle it
			s.awaiting(d.settler, d.inProcess)
		}
		if s.awaits&AwaitsEnd != 0 {
			d.reportHeld(s, 1)
		}
		s.decide(out)
		if s.gates > 0 && !out.Allowed {
			d.penalize(ctx, d.store, s, out)
		}
		if s.notifies {
			d.reportCrossed(s, out, s.Caller(r.Keys))
		}
	}
	if s.trials != nil && r.Cost != Peek {
		d.try(ctx, s, r, out)
	}
	return nil
}

// take asks the store. If it returns an error, it may have counted or not: the request is refused.
func (d *Decider) take(ctx context.Context, s *Scratch) {
	if !d.inProcess && !d.bounded {
		ctx = context.WithoutCancel(ctx) // a caller that goes away is charged all the same (D5)
	}
	charges := s.charges[:s.n]
	if err := d.store.Take(ctx, charges, &s.receipt); err != nil {
		s.receipt.Refuse(charges, time.Now())
	}
}
