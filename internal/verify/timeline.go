package verify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// A timeline runs the experiments on one limiter, in order, and passes what it sees to the checks.
type timeline struct {
	*probe
	tries  *attempts
	budget *budget
	ending *ending
}

// errDone ends a timeline early without an error: what would follow needs a spent budget.
var errDone = errors.New("done")

// verifyPart verifies one limiter, and gives every clause a verdict. The error is why it ended
// early.
func verifyPart(ctx context.Context, r *runner, w *part) error {
	p, tries := newProbe(r, w)
	l := &timeline{p, tries, &budget{probe: p}, &ending{p}}
	err := l.experiment(ctx)
	l.settle()
	spent := l.seen.last != nil && l.seen.served == nil
	for _, c := range l.checks {
		c.excuse(err, spent)
	}
	return err
}

// experiment runs the experiments.
func (l *timeline) experiment(ctx context.Context) error {
	l.adopt()
	if l.part.penalized {
		return l.bePenalized(ctx)
	}
	for _, step := range []func(context.Context) error{
		l.findHost,        // whether made-up hosts are the API's
		l.look,            // a few requests of each kind, while there is budget
		l.budget.makeRoom, // waits if the window ends too soon
		l.budget.drain,    // the budget is used up in two parts
		l.trySpent,        // attempts to get more
		l.ending.watch,    // the end of the window
		l.lookLater,       // what the end of the window left open
		l.provoke,         // errors
		l.drainAgain,      // a small next budget is used up as well
		l.spendLast,       // what takes a budget for itself
	} {
		var far *farError
		switch err := step(ctx); {
		case errors.As(err, &far):
			l.ending.pass(rollover{kind: notSeen, tally: l.seen.now(), why: NeedsMore.because("%s", far)})
		case errors.Is(err, errDone):
			l.conclude()
			return nil
		case err != nil:
			return err
		}
	}
	l.conclude()
	return nil
}

func (l *timeline) conclude() {
	l.checks.each(func(h *hooks) {
		if h.concluded != nil {
			h.concluded()
		}
	})
}

// settle turns suspicions into verdicts, now that Date was compared with the other clocks.
func (l *timeline) settle() {
	t := l.seen.refusing()
	otherClock := l.clocks.other(t)
	l.noteClocks(t)
	for _, c := range l.checks {
		c.settle(otherClock)
	}
}

// adopt remembers the requests that tried the given credentials and were charged to main's window.
func (l *timeline) adopt() {
	if l.who.credential == "" {
		return
	}
	for _, a := range l.who.tried() {
		l.judge(a)
		l.judgeCounted(a)
		l.remember(a)
	}
}

// findHost finds out whether the hosts that main sends are served as the API is: one that a route
// names, and one that is made up, for a star or for a limiter that counts by host. If the route's
// is not, nothing can be tested. If a made-up one is not, main sends the URL's own.
func (l *timeline) findHost(ctx context.Context) error {
	e, made := l.part.endpoints[0], l.who.main.chosen[sourceHost] != ""
	if !made && e.host == "" {
		return nil
	}
	newcomer := l.who.unproven("") // who shares nothing with main that is made up
	newcomer.agent = freshAgent()
	for _, source := range l.run.options.madeUp(l.part.limiter) {
		newcomer = newcomer.another(source)
	}
	r := l.requestOf(newcomer)
	r.beside = true
	a, err := l.send(ctx, r)
	if err != nil || a.status != http.StatusMisdirectedRequest && (a.complete() || !made && e.under == "") {
		return err
	}
	how := "without the fields"
	if a.status == http.StatusMisdirectedRequest {
		how = "Misdirected Request"
	}
	switch {
	case e.host == "":
		l.who.keepHost(Unobservable.because("a made-up host is answered %d %s: it is not served by this API", a.status, how))
		return nil
	case e.under == "":
		return l.untestable(Unobservable.because("%s, which its route names, is answered %d %s: it is not served at this URL", e.host, a.status, how))
	}
	return l.untestable(Unobservable.because("%s, made up under the star of its route, is answered %d %s: it is not served at this URL", r.host, a.status, how))
}

// untestable ends the experiments, with the reason why no clause can be tested.
func (l *timeline) untestable(why gap) error {
	for _, c := range l.checks {
		c.untested(why)
	}
	return errDone
}

// look sends a few requests of each kind while there is budget.
func (l *timeline) look(ctx context.Context) error {
	first, err := l.begin(ctx)
	if err != nil {
		return err
	}
	if why := l.whySettled(first); !why.isZero() && !l.seemsExempt() {
		return l.beSettled(ctx, why)
	}
	if !first.admitted() {
		return nil
	}
	if err := l.findStep(ctx); err != nil {
		return err
	}
	if l.seemsExempt() {
		return l.setAside(ctx)
	}
	if err := l.checks.eachStep(func(h *hooks) error {
		if h.between == nil {
			return nil
		}
		return h.between(ctx)
	}); err != nil {
		return err
	}
	p, err := l.sendPreflight(ctx)
	if err != nil {
		return err
	}
	if err := l.checks.eachStep(func(h *hooks) error {
		if h.preflighted == nil {
			return nil
		}
		return h.preflighted(ctx, p)
	}); err != nil {
		return err
	}
	return l.settleUnits(ctx)
}

// begin sends main's first request, and another one in the next window if the first is refused.
func (l *timeline) begin(ctx context.Context) (first *answer, err error) {
	l.does("sending the first requests")
	if first, err = l.askWith(ctx, l.plain().with("Origin", verifyOrigin)); err != nil {
		return nil, err
	}
	if l.isDenied(first) {
		for _, c := range l.checks {
			c.untested(Unobservable.because("this caller is answered 403: the policy denies callers, and nothing of theirs is counted"))
		}
		return nil, errDone
	}
	l.checks.each(func(h *hooks) {
		if h.began != nil {
			h.began(first)
		}
	})
	if !first.admitted() {
		if first, err = l.afterReset(ctx, first); err != nil || !first.admitted() {
			return first, err
		}
	}
	l.first = first
	if first.status == unauthenticatedStatus(l.seen.responses) && l.who.credential != "" {
		l.who.reject()
	}
	return first, nil
}

// afterReset waits for the end of the window that refused, if that is allowed, and asks again.
func (l *timeline) afterReset(ctx context.Context, refused *answer) (*answer, error) {
	t := l.seen.now()
	if l.run.options.Quick || t == nil || t.ends.isZero() || l.tooFar(l.end(t).to) != nil {
		return refused, nil
	}
	if err := l.wait(ctx, l.end(t).to.Add(soon), "waiting for a budget that was already spent"); err != nil {
		return nil, err
	}
	return l.askWith(ctx, l.plain().with("Origin", verifyOrigin))
}

// findStep finds out whether two requests take two units. If not, what a request between them takes
// cannot be seen.
func (l *timeline) findStep(ctx context.Context) error {
	before, err := l.ask(ctx)
	if err != nil {
		return err
	}
	r := l.plain()
	r.fresh = true
	after, err := l.askWith(ctx, r)
	if err != nil {
		return err
	}
	spent, ok := l.between(before, after)
	l.steady = ok && spent == 0
	if ok {
		l.step = l.part.costOf(after.limit) + spent
	}
	return nil
}

// seemsExempt reports whether main's answers are those of a caller whom the policy exempts: the
// whole limit remains, whatever was sent.
func (l *timeline) seemsExempt() bool {
	if len(l.part.limiter.Exempt) == 0 {
		return false
	}
	for _, t := range l.seen.tallies {
		if t.refused > 0 || slices.ContainsFunc(t.admitted, func(s numbered) bool { return s.remaining != s.limit }) {
			return false
		}
	}
	return len(l.seen.tallies) > 0
}

// setAside ends the timeline of a limiter that does not limit main.
func (l *timeline) setAside(ctx context.Context) error {
	if err := l.provoke(ctx); err != nil {
		return err
	}
	return l.untestable(Unobservable.because("this caller seems to be exempt: the policy has exempt callers, and Remaining stays at the limit"))
}

// trySpent tries to get more than the budget while none of it is left.
func (l *timeline) trySpent(ctx context.Context) error {
	t := l.seen.now()
	if t == nil || t.refused == 0 || t.firstRefused.reset == absent {
		for _, c := range l.checks {
			if c.on.needsRefusals {
				c.untested(l.whyNotSpent())
			}
		}
		return errDone
	}
	l.does("trying to exceed the limit")
	if err := l.hammer(ctx, t); err != nil {
		return err
	}
	if err := l.checks.eachStep(func(h *hooks) error {
		if h.tries == nil {
			return nil
		}
		return h.tries(ctx, t)
	}); err != nil {
		return err
	}
	return l.checks.eachStep(func(h *hooks) error {
		if h.spent == nil {
			return nil
		}
		return h.spent(ctx, t)
	})
}

func (l *timeline) whyNotSpent() gap {
	if l.seen.refusal != 0 {
		return Unobservable.because("it refuses with %d and without the fields, so no answer shows which window refused", l.seen.refusal)
	}
	return Unobservable.because("the budget could not be used up")
}

// hammer repeats the plain request.
func (l *timeline) hammer(ctx context.Context, t *tally) error {
	if _, err := l.askWith(ctx, l.plain().with("Origin", verifyOrigin)); err != nil {
		return err
	}
	for range 9 {
		a, err := l.ask(ctx)
		if err != nil {
			return err
		}
		if a.admitted() && a.reset == t.reset {
			if _, err := l.tries.confirmSpent(ctx, t); err != nil {
				return err
			}
			l.tries.leakBefore(t, a, l.seen.last)
		}
	}
	return nil
}

func (l *timeline) lookLater(ctx context.Context) error {
	return l.checks.eachStep(func(h *hooks) error {
		if h.later == nil {
			return nil
		}
		return h.later(ctx)
	})
}

// provoke sends what is answered with errors, each on a path that the policy covers.
func (l *timeline) provoke(ctx context.Context) error {
	l.does("provoking errors")
	e := l.part.endpoints[0]
	dir := e.path[:strings.LastIndexByte(e.path, '/')]
	// PROPFIND changes nothing (RFC 4918), and no endpoint of such an API has it. HTTP parsers with
	// a list of methods know it: Node's refuses a made-up method before the API sees it.
	const wrongMethod = "PROPFIND"
	for _, r := range []request{
		{method: e.method, host: e.host, path: dir + "/weir-verify-nothing"},
		{method: wrongMethod, host: e.host, path: e.path},
		{method: e.method, host: e.host, path: dir + "%2fweir-verify"},
		// Without a credential.
		absentFrom(request{method: e.method, host: e.host, path: e.path}, l.who.main.place),
	} {
		covered := l.run.plan.routes.Match(r.method, l.authority(r), strings.ReplaceAll(r.path, "%2f", "/")).Limiter()
		if dir == "" || covered == nil {
			continue // no limiter, no fields
		}
		if r.path != e.path || r.method != e.method {
			full := l.plain()
			r.fields, r.body, r.query, r.host = full.fields, full.body, full.query, full.host
			if r.method == wrongMethod {
				r.body = ""
			}
		}
		a, err := l.send(ctx, r)
		if err != nil {
			return err
		}
		if strings.Contains(r.path, "%") && a.status != http.StatusBadRequest {
			continue // the path is valid there, and may be another surface's
		}
		l.judge(a)
	}
	return l.letSettle(ctx)
}

// spendLast calls the hooks that take a budget for themselves.
func (l *timeline) spendLast(ctx context.Context) error {
	return l.checks.eachStep(func(h *hooks) error {
		if h.last == nil {
			return nil
		}
		return h.last(ctx)
	})
}

// drainAgain uses up a small restored budget.
func (l *timeline) drainAgain(ctx context.Context) error {
	if l.part.again == 0 || l.spareUsed || l.run.options.Quick {
		return nil
	}
	l.spareUsed = true
	if err := l.budget.makeRoom(ctx); err != nil {
		return err
	}
	if err := l.budget.drain(ctx); err != nil {
		return err
	}
	return l.checks.eachStep(func(h *hooks) error {
		if h.again == nil {
			return nil
		}
		return h.again(ctx, l.seen.now())
	})
}
