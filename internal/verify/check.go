package verify

import (
	"context"
	"fmt"
	"sync"
)

// A check is one clause at work on one limiter. It records verdicts for its clause alone. Its
// methods are safe for concurrent use.
type check struct {
	*attempts
	clause string // the clause's id
	on     hooks

	mu        sync.Mutex
	suspicion *suspicion
}

// Hooks are what a clause observes, and what it sends itself. Clauses share traffic, since requests
// and time are limited: a budget is used up once, and every clause reads the answers. The timeline
// calls the hooks of one moment in the table's order. A nil hook observes nothing. Main is the
// caller whose budget is used up.
type hooks struct {
	// These are called for every answer as it arrives, by several goroutines at once.

	answered  func(a *answer) // on a path that the policy covers, whichever limiter counted it
	counted   func(a *answer) // counted by this limiter, and with all three fields
	failed    func(a *answer) // a 5xx that does not show whether the request was counted
	preflight func(a *answer) // to a preflight

	// refused is called for each of main's refused requests, one call at a time, before t
	// reads its Retry-After.
	refused func(t *tally, a *answer)

	// The others are called by one goroutine, in this order. Those with a context may send
	// requests.

	began       func(first *answer)             // main's first request was answered
	between     func(ctx context.Context) error // budget is left: sends between two of main's
	preflighted func(ctx context.Context, p preflighting) error
	paused      func(p pause)                                // half of a budget is spent
	drained     func(ctx context.Context, s *spending) error // a budget is used up
	// The limiter has a penalty, which its tests would begin: it is begun. None of the hooks below
	// is called then.
	penalized func(ctx context.Context) error
	// Budget is left: sends requests whose units or slots come back.
	settles func(ctx context.Context) error
	// Nothing is left of t: tries to get more.
	tries func(ctx context.Context, t *tally) error
	// Nothing is left of t, after the tries.
	spent  func(ctx context.Context, t *tally) error
	rolled func(r rollover)                          // something was seen at a window's end
	later  func(ctx context.Context) error           // the next window has begun
	again  func(ctx context.Context, t *tally) error // the next budget is used up as well
	last   func(ctx context.Context) error           // after all others: a new budget may be spent
	// The timeline has ended without an error.
	concluded func()

	// settle gives the final verdict; nil: check.settleDefault.
	settle func(s *suspicion, otherClock string)

	// These are called when a request was admitted although main's budget is spent: by chance (how
	// is when it was refused), or each time with a certain field.

	leaked  func(a *answer, how string)
	escaped func(a *answer, with string)

	// These give the reason for a missing verdict.

	needsRefusals bool       // the clause cannot be tested unless the budget is used up
	readsCount    bool       // the clause takes units to come back at Reset alone
	unseen        gap        // the usual reason
	why           func() gap // the reason as known at the end; nil or the zero gap: unseen
}

// Checks are one check for each clause, in the table's order.
type checks []*check

// each calls f with each check's hooks.
func (all checks) each(f func(*hooks)) {
	for _, c := range all {
		f(&c.on)
	}
}

// eachStep is each for hooks that send requests. It stops at the first error.
func (all checks) eachStep(f func(*hooks) error) error {
	for _, c := range all {
		if err := f(&c.on); err != nil {
			return err
		}
	}
	return nil
}

// newChecks returns a check for each clause.
func newChecks(tries *attempts) checks {
	all := make(checks, len(Clauses))
	for i := range Clauses {
		c := &check{attempts: tries, clause: Clauses[i].ID}
		c.on = Clauses[i].check(c)
		all[i] = c
	}
	return all
}

// kept records that the clause was seen to hold. A broken clause stays broken.
func (c *check) kept(format string, args ...any) {
	c.run.book.kept(c.clause, c.name, format, args...)
}

// untested records why the clause could not be tested. An earlier verdict stays.
func (c *check) untested(why gap) { c.run.book.untested(c.clause, c.name, why) }

// broken records that the clause is broken, with the answer that shows it. The first record stays.
func (c *check) broken(a *answer, format string, args ...any) {
	if c.on.readsCount {
		c.brokenByCount(a, format, args...)
		return
	}
	c.certainly(a, format, args...)
}

// brokenByCount is broken for what units that come back before Reset would explain.
func (c *check) brokenByCount(a *answer, format string, args ...any) {
	if why := c.whyGivenBack(); !why.isZero() {
		c.untested(why)
		return
	}
	c.certainly(a, format, args...)
}

// certainly is broken for what no unit that comes back can explain.
func (c *check) certainly(a *answer, format string, args ...any) {
	c.run.book.broken(c.clause, c.name, a, format, args...)
}

// verdict returns the verdict so far, or "" before there is one.
func (c *check) verdict() Verdict { return c.run.book.verdict(c.clause, c.name) }

// A suspicion is a clause that is broken if Date is right.
type suspicion struct {
	shows *answer
	text  string
}

// suspect records that the clause is broken if Date is right. The first suspicion stays.
func (c *check) suspect(a *answer, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspicion == nil {
		c.suspicion = &suspicion{shows: a, text: fmt.Sprintf(format, args...)}
	}
}

// suspected returns the suspicion, or nil if there is none.
func (c *check) suspected() *suspicion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspicion
}

// settle turns a suspicion into a verdict at the end. otherClock is why Date is not of the clock
// that decides; "" means that it is.
func (c *check) settle(otherClock string) {
	if c.on.settle != nil {
		c.on.settle(c.suspected(), otherClock)
		return
	}
	c.settleDefault(c.suspected(), otherClock)
}

func (c *check) settleDefault(s *suspicion, otherClock string) {
	switch {
	case s == nil:
	case otherClock == "":
		c.broken(s.shows, "%s", s.text)
	default:
		c.untested(Unobservable.because("%s", otherClock))
	}
}

// excuse records the reason for a missing verdict. err is the error that ended the timeline, if
// any; spent reports whether every request was refused.
func (c *check) excuse(err error, spent bool) {
	if c.verdict() != "" {
		return
	}
	why := gap{}
	if c.on.why != nil {
		why = c.on.why()
	}
	switch {
	case err != nil:
		why = endedEarly(err)
	case !why.isZero():
	case spent:
		why = Shared.because("every request was refused: the budget was spent at the start")
	case !c.on.unseen.isZero():
		why = c.on.unseen
	default:
		why = Unobservable.because("no answer showed it")
	}
	c.untested(why)
}

// isBroken reports whether another clause is broken for this limiter.
func (c *check) isBroken(clause string) bool {
	return c.run.book.verdict(clause, c.name) == Broken
}
