package verify

import (
	"context"
	"strconv"
)

// checkUnverified sends altered credentials, and none, between two of main's requests, and an
// altered one while main is refused. Each must be charged to the address, and be answered 401 if
// the limiter requires the credential.
func checkUnverified(c *check) hooks {
	u := &unverifiedCheck{check: c}
	return hooks{readsCount: true, between: u.between, spent: u.spent, why: func() gap {
		if c.who.credential == "" {
			return c.who.noneToAlter()
		}
		return gap{}
	}}
}

type unverifiedCheck struct {
	*check
	last *answer // the last that was sent while main had budget left
}

func (c *unverifiedCheck) between(ctx context.Context) error {
	if c.who.credential == "" || c.who.main.authorization == "" {
		c.untested(c.who.noneToAlter())
		return nil
	}
	before := c.seen.last
	if err := c.sendAll(ctx); err != nil {
		return err
	}
	after, err := c.ask(ctx)
	if err != nil {
		return err
	}
	switch spent, ok := c.probe.between(before, after); {
	case !ok:
		c.untested(NeedsMore.because("the window or its budget ended meanwhile"))
		return nil
	case !c.steady:
		c.untested(unsteady())
		return nil
	case spent != 0 && !c.who.isCountedByCredential(after.limit):
		c.untested(Unobservable.because("the window with the least left is not counted by the credential"))
		return nil
	case spent == 0:
		how := "let in"
		if c.part.limiter.Requires != "" {
			how = strconv.Itoa(unauthenticatedStatus(c.seen.responses))
		}
		c.kept(how+", each counted by the address; meanwhile the valid one's Remaining went from %d to %d", before.remaining, after.remaining)
		return nil
	}
	bad := c.requestOf(c.who.unproven(tampered(c.who.main.authorization)))
	sure, ok, err := c.confirm(ctx, after, func(ctx context.Context) (*answer, error) { return c.send(ctx, bad) })
	if ok {
		c.broken(sure, "Remaining %d, then credentials that do not verify, then Remaining %d: they spent the valid one's budget", before.remaining, after.remaining)
	}
	c.untested(Shared.because("others use the same budget"))
	return err
}

// sendAll sends three requests that can only be charged to the address.
func (c *unverifiedCheck) sendAll(ctx context.Context) error {
	var before *answer
	for _, credential := range []string{tampered(c.who.main.authorization), forged(c.who.main.authorization), ""} {
		r := c.requestOf(c.who.unproven(credential)).with("Origin", verifyOrigin)
		if credential == "" {
			r = absentFrom(r, c.who.main.place) // not even one of Options.Header
		}
		a, err := c.send(ctx, r)
		if err != nil {
			return err
		}
		c.judge(a)
		c.judgeCounted(a)
		c.wantRejected(a, "a credential that does not verify, or none,")
		if before != nil && c.steady {
			c.wantOneBudget(before, a)
		}
		before = a
	}
	c.last = before
	return nil
}

func (c *unverifiedCheck) wantRejected(a *answer, what string) {
	if c.part.limiter.Requires != "" && a.admitted() && a.status != unauthenticatedStatus(c.seen.responses) && a.status < 500 {
		c.broken(a, "%s was answered %d", what, a.status)
	}
}

// wantOneBudget wants requests with different bad credentials to be charged to one budget.
func (c *unverifiedCheck) wantOneBudget(before, after *answer) {
	if c.part.isUncounted(before) || c.part.isUncounted(after) || !before.complete() || !after.complete() || after.date == absent || !before.admitted() || !after.admitted() || before.limit != after.limit {
		return
	}
	switch {
	case before.reset == after.reset && after.remaining >= before.remaining:
		c.broken(after, "Remaining was %d with one bad credential, and %d with the next: they are not charged to one budget", before.remaining, after.remaining)
	case before.reset != after.reset && after.date < before.reset-1:
		c.suspect(after, "Reset was %d with one bad credential, and %d with the next: they are not charged to one budget", before.reset, after.reset)
	}
}

func (c *unverifiedCheck) spent(ctx context.Context, t *tally) error {
	if c.last == nil {
		return nil
	}
	a, err := c.send(ctx, c.requestOf(c.who.unproven(tampered(c.who.main.authorization))))
	if err != nil {
		return err
	}
	c.judge(a)
	before := c.last
	// The address's next window may end when main's does.
	lasts := a.date != absent && a.date < before.reset
	if lasts && !a.admitted() && c.who.isCountedByCredential(t.limit) && a.reset == t.reset && a.limit == t.limit &&
		before.limit == t.limit && before.admitted() && before.reset != t.reset && before.remaining > c.part.costOf(before.limit) {
		c.broken(a, "a credential that does not verify was refused with the valid one's window instead of its address's")
	}
	c.wantRejected(a, "a credential that does not verify")
	return nil
}

// unsteady is the reason if Remaining falls by more than main's requests.
func unsteady() gap {
	return Shared.because("Remaining does not fall by one per request here, so it is not known what requests between them take")
}
