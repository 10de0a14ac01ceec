package verify

import (
	"context"
	"fmt"
	"sync"
)

// A check is one clause at work on one limiter. It records verdicts for its clause alone. Its
// methods are safe for concurrent use.
type check struct {
	*probe
	clause string // the clause's id
	on     hooks

	mu        sync.Mutex
	suspicion *suspicion
}

// Hooks are what a clause observes. Clauses share traffic, since requests and time are limited: a
// budget is used up once, and every clause reads the answers. The timeline calls the hooks, those of
// one moment in the table's order; a nil hook observes nothing.
type hooks struct {
	// Passive hooks: each answer as it arrives, called by several goroutines at once.
	answered  func(a *answer)           // on a path that the policy covers, whichever limiter counted it
	counted   func(a *answer)           // that this limiter counted, with all three fields
	failed    func(a *answer)           // a 5xx that does not show whether the request was counted
	preflight func(a *answer)           // to a preflight
	refused   func(t *tally, a *answer) // main's request was refused in the window t; one call at a time

	// Experiments: one call at a time, in this order.
	began       func(first *answer)                             // the answer to main's first request
	between     func(ctx context.Context) error                 // budget is left: may send requests between two of main's
	preflighted func(ctx context.Context, p preflighting) error // a preflight was sent between two of main's requests
	paused      func(p pause)                                   // half the budget was spent before a pause
	drained     func(ctx context.Context, s *spending) error    // the budget is used up
	leaked      func(a *answer, how string)                     // a plain request was admitted by a window that had refused
	escaped     func(a *answer, with string)                    // a request was admitted though main's budget is spent
	spent       func(ctx context.Context, t *tally) error       // no budget is left: may try to get more
	rolled      func(r rollover)                                // what happened at the end of the window
	later       func(ctx context.Context) error                 // the next window has begun
	again       func(ctx context.Context, t *tally) error       // the next budget is used up as well
	concluded   func()                                          // the timeline has ended without an error
	settle      func(s *suspicion, otherClock string)           // see check.settle; nil: check.settleDefault

	// Why there is no verdict, if none was found.
	needsRefusals bool       // the clause cannot be tested unless the budget is used up
	unseen        gap        // the usual reason
	why           func() gap // the reason as known at the end; the zero gap: unseen
}

// newChecks returns a check for each clause.
func newChecks(p *probe) []*check {
	all := make([]*check, len(Clauses))
	for i := range Clauses {
		c := &check{probe: p, clause: Clauses[i].ID}
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
	c.run.book.broken(c.clause, c.name, a, format, args...)
}

// verdict returns the verdict so far, or "" if there is none.
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

// settle turns a suspicion into a verdict at the end. otherClock says why Date is not of the clock
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

// excuse records why there is no verdict, if there is none. err is the error that ended the
// timeline, if any; spent reports whether every request was refused.
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
