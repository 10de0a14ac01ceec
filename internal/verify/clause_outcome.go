package verify

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/internal/wait"
)

// checkOutcome reads what requests have cost in the end: those whose status is not counted cost
// nothing, and others what their answer reports. A store may settle a moment after the answer, so
// what seems not to have come back is looked at again. The clause is kept only if requests that
// were under way together were charged before they were served, too (outcome_burst.go).
func checkOutcome(clause *check) hooks {
	c := &outcomeCheck{check: clause}
	return hooks{settles: c.settles, last: c.together, why: c.whyUntested}
}

type outcomeCheck struct {
	*check
	why gap    // why the clause could not be tested
	saw string // what requests were seen to cost as they should; empty: nothing yet
}

// see records that requests have cost what they should in the end.
func (c *outcomeCheck) see(format string, args ...any) { c.saw = fmt.Sprintf(format, args...) }

func (c *outcomeCheck) whyUntested() gap {
	if c.saw != "" && c.why.isZero() {
		return NeedsMore.because("requests were not sent together, which shows whether they are charged before they are served")
	}
	return c.why
}

func (c *outcomeCheck) settles(ctx context.Context) error {
	switch l := c.part.limiter; {
	case !c.part.hasWindows() || !l.SettlesUnits():
		c.why = inherently("it counts all requests, and their cost is known before they are answered")
		return nil
	case l.Actual != (weir.Reading{}):
		return c.followCosts(ctx)
	case c.part.isUncounted(c.first):
		return c.sendUncounted(ctx)
	}
	return c.tryUncounted(ctx)
}

// settleWaits are how long a settlement is waited for, each time.
func settleWaits() []time.Duration {
	return []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}
}

// sendUncounted sends more of main's requests than the limit allows, none of which is counted. All
// must be admitted, and take nothing of the budget in the end.
func (c *outcomeCheck) sendUncounted(ctx context.Context) error {
	c.does("sending requests that are not counted")
	before, refused := c.seen.last, (*answer)(nil)
	if !before.complete() {
		c.why = Unobservable.because("the answers lack the fields that would show it")
		return nil
	}
	sent, total := 0, min(c.part.drain+2, c.part.drain+c.part.over)
	for ; sent < total && refused == nil; sent++ {
		a, err := c.askSettled(ctx, func(a *answer) bool { return a.admitted() })
		if err != nil {
			return err
		}
		if !a.admitted() {
			refused = a
		}
	}
	after, err := c.askSettled(ctx, func(a *answer) bool { return a.remaining >= before.remaining || a.reset != before.reset })
	if err != nil {
		return err
	}
	status := c.first.status
	switch fell := before.remaining - after.remaining; {
	case c.seen.hasCounted():
		c.why = Unobservable.because("some requests are answered with a status that is counted, and some are not")
	case refused != nil && c.isSure(refused.limit):
		c.broken(refused, "refused after %d requests that were answered %d, which is not counted", sent, status)
	case refused != nil:
		c.why = Shared.because("refused after %d requests that are not counted: others may use the same budget", sent)
	case after.reset != before.reset || after.limit != before.limit:
		c.see("%d requests were answered %d, which is not counted, and none was refused", sent, status)
	case fell <= 0:
		c.see("%d requests were answered %d, which is not counted; none was refused, and Remaining is %d as before", sent, status, after.remaining)
	case c.isSure(after.limit):
		c.broken(after, "Remaining fell from %d to %d with requests that were answered %d, which is not counted", before.remaining, after.remaining, status)
	default:
		c.why = Shared.because("Remaining fell by %d with requests that are not counted: others may use the same budget", fell)
	}
	return nil
}

// askSettled sends main's request, and again some moments later while ok does not hold.
func (c *outcomeCheck) askSettled(ctx context.Context, ok func(*answer) bool) (a *answer, err error) {
	for _, pause := range settleWaits() {
		if err = wait.For(ctx, pause); err != nil {
			return nil, err
		}
		if a, err = c.ask(ctx); err != nil || ok(a) {
			return a, err
		}
	}
	return a, nil
}

// tryUncounted sends what is answered with another status between two of main's requests. If that
// status is not counted, only main's take units.
func (c *outcomeCheck) tryUncounted(ctx context.Context) error {
	if err := c.tryCounted(ctx); err != nil || c.verdict() == Broken {
		return err
	}
	r, a, err := c.findUncounted(ctx)
	if err != nil {
		return err
	}
	if err := c.letSettle(ctx); err != nil {
		return err
	}
	if a == nil {
		c.why = Unobservable.because("no request was answered with a status that is not counted")
		return nil
	}
	before, err := c.ask(ctx)
	if err != nil {
		return err
	}
	mixed := false // some of them were counted
	for range 3 {
		if a, err = c.send(ctx, r); err != nil {
			return err
		}
		c.judge(a)
		mixed = mixed || !c.part.isUncounted(a)
	}
	if err := c.letSettle(ctx); err != nil {
		return err
	}
	n := int64(0) // of main's requests
	after, err := c.askSettled(ctx, func(a *answer) bool {
		n++
		return a.reset != before.reset || before.remaining-a.remaining <= n*c.part.costOf(a.limit)
	})
	if err != nil {
		return err
	}
	fell, cost := before.remaining-after.remaining, n*c.part.costOf(after.limit)
	switch {
	case mixed:
		c.why = Unobservable.because("the same request is answered with a status that is counted, and with one that is not")
	case !before.admitted() || !after.admitted() || !before.complete() || !after.complete() || after.reset != before.reset || after.limit != before.limit ||
		c.part.isUncounted(before) || c.part.isUncounted(after):
		c.why = NeedsMore.because("the window or its budget ended meanwhile")
	case fell == cost:
		c.see("Remaining %d, three requests that were answered %d, which is not counted, then Remaining %d", before.remaining, a.status, after.remaining)
	case fell < cost:
		c.why = Unobservable.because("Remaining fell by %d with %d requests that are counted: units of earlier ones came back", fell, n)
	case c.isSure(after.limit):
		c.broken(after, "Remaining %d, three requests that were answered %d, which is not counted, then %d that were, and Remaining %d", before.remaining, a.status, n, after.remaining)
	default:
		c.why = Shared.because("Remaining fell by %d, and not by %d: others may use the same budget", fell, cost)
	}
	return nil
}

// tryCounted wants main's requests, whose status is counted, to take units that do not come back.
func (c *outcomeCheck) tryCounted(ctx context.Context) error {
	before, err := c.ask(ctx)
	if err != nil {
		return err
	}
	for range 2 {
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		after, err := c.ask(ctx)
		if err != nil {
			return err
		}
		// Units of an uncounted one may have come back between.
		if spent, ok := c.between(before, after); ok && spent < 0 && c.isSure(after.limit) && !c.seen.hasUncounted() {
			c.broken(after, "Remaining %d, then a request that was answered %d, which is counted, and Remaining %d: its units came back", before.remaining, before.status, after.remaining)
		}
		before = after
	}
	return nil
}

// findUncounted returns a request that main's windows count and whose answer's status they do not;
// the answer is nil if none was found.
func (c *outcomeCheck) findUncounted(ctx context.Context) (request, *answer, error) {
	return c.findAnswered(ctx, func(a *answer) bool { return c.part.isUncounted(a) && a.status < http.StatusInternalServerError })
}

// findAnswered returns a request that main's windows count, and whose answer has the fields and is
// as wanted; the answer is nil if none was found.
func (c *outcomeCheck) findAnswered(ctx context.Context, wanted func(*answer) bool) (request, *answer, error) {
	e := c.part.endpoints[0]
	full := c.plain()
	for _, other := range []endpoint{
		{method: e.method, path: e.path[:strings.LastIndexByte(e.path, '/')] + "/weir-verify-nothing"},
		{method: "PROPFIND", path: e.path},
		{method: e.method, path: e.path + "/weir-verify-nothing"},
	} {
		r := full
		r.method, r.path = other.method, other.path
		if r.method == "PROPFIND" {
			r.body = ""
		}
		if !c.covers(r) {
			continue
		}
		a, err := c.send(ctx, r)
		if err != nil {
			return r, nil, err
		}
		c.judge(a)
		if a.complete() && wanted(a) {
			return r, a, nil
		}
	}
	return full, nil, nil
}

// followCosts sends main's requests until one is refused, whose answers report what they cost.
func (c *outcomeCheck) followCosts(ctx context.Context) error {
	c.does("following what its requests cost")
	if err := c.letSettle(ctx); err != nil {
		return err
	}
	f := &costs{outcomeCheck: c, left: make(map[int64]rest)}
	for range c.part.drain + c.part.over {
		a, err := f.next(ctx)
		if err != nil {
			return err
		}
		if !a.admitted() {
			return f.refused(ctx, a)
		}
		if err := f.follow(ctx, a); err != nil || c.verdict() == Broken {
			return err
		}
	}
	f.conclude()
	return nil
}

// Costs are what is seen of requests whose cost follows from their answer.
type costs struct {
	*outcomeCheck
	before   *answer        // the one before; nil: none yet
	left     map[int64]rest // by limit
	beyond   int64          // what the answers reported beyond what was reserved
	base     *answer        // the first of those that sum is about
	sum      int64          // what the answers since base have reported
	followed int            // how many were seen to cost what their answer reported
	less     int            // how many cost less than was reserved
}

// A rest is how much of a window's budget is left at least when all answers so far are settled. A
// store may settle what a request has cost beyond its reservation after the next one is answered.
type rest struct{ reset, units int64 }

// next sends main's request, and counts what it costs.
func (f *costs) next(ctx context.Context) (*answer, error) {
	a, err := f.ask(ctx)
	if err != nil || !a.admitted() || !a.complete() {
		return a, err
	}
	cost, ok := f.reported(a)
	for limit, r := range f.left {
		switch {
		case f.part.isUncounted(a):
		case ok && !f.part.isOfRequests(limit):
			r.units -= cost
		default:
			r.units -= f.part.costOf(limit)
		}
		f.left[limit] = r
	}
	switch r, ok := f.left[a.limit]; {
	case !ok || r.reset != a.reset:
		f.left[a.limit] = rest{a.reset, a.remaining - f.beyond}
	case a.remaining < r.units:
		f.left[a.limit] = rest{a.reset, a.remaining}
	}
	if ok && !f.part.isUncounted(a) {
		f.beyond += max(0, cost-f.part.cost)
	}
	return a, nil
}

// reported returns what an answer reports that its request has cost, if a field reports it.
func (c *outcomeCheck) reported(a *answer) (int64, bool) {
	from := c.part.limiter.Actual
	lines := a.header.Values(from.Name)
	if from.Form != weir.ReadHeader || len(lines) != 1 || len(a.header.Values("Trailer")) > 0 || c.part.isUncounted(a) {
		return 0, false
	}
	n, err := headers.ParseInt(from.Name, strings.TrimSpace(lines[0]))
	return n, err == nil && n >= 0
}

// follow reads by how much Remaining fell with an admitted request.
func (f *costs) follow(ctx context.Context, a *answer) error {
	defer func() { f.before = f.seen.last }()
	if !f.comparable(f.before, a) {
		f.base = nil
		return nil
	}
	if f.before.remaining-a.remaining < f.part.costOf(a.limit) {
		f.less++
	}
	if f.base == nil {
		f.base, f.sum = f.before, 0
	}
	cost, ok := f.reported(a)
	f.sum += cost
	if !ok || a.remaining == 0 || !f.isSure(a.limit) {
		f.base = nil
		return nil
	}
	if f.base.remaining-a.remaining == f.sum {
		f.followed++
		return nil
	}
	return f.recheck(ctx)
}

// recheck looks again, a second apart each time, after an answer whose Remaining is not what the
// answers have reported: a store may settle a moment later.
func (f *costs) recheck(ctx context.Context) error {
	f.base = nil
	var before, wrong *answer
	var fell, says int64
	for range 4 {
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
		a, err := f.next(ctx)
		if err != nil {
			return err
		}
		cost, ok := f.reported(a)
		switch {
		case !f.isSure(a.limit): // a request without an answer may have been charged
			return nil
		case before == nil:
		case !ok || !f.comparable(before, a) || a.remaining == 0 || before.remaining-a.remaining == cost:
			return nil
		default:
			wrong, fell, says = a, before.remaining-a.remaining, cost
		}
		before = a
	}
	f.broken(wrong, "Remaining fell by %d to %d, and the answer's %s is %d; and so each time", fell, wrong.remaining, f.part.limiter.Actual.Name, says)
	return nil
}

// comparable reports whether two answers describe the same window of units.
func (f *costs) comparable(before, after *answer) bool {
	return before != nil && before.complete() && after.complete() && before.admitted() && after.admitted() && before.reset == after.reset && before.limit == after.limit &&
		!f.part.isAmbiguous(after.limit) && !f.part.isOfRequests(after.limit)
}

// isOfRequests reports whether the window of a limit counts requests.
func (p *part) isOfRequests(limit int64) bool {
	for _, w := range p.limiter.Windows {
		if w.Limit == limit && w.Requests {
			return true
		}
	}
	return false
}

// refused judges the first refusal: what was left must be less than is reserved. What a body has
// is charged after the head, so Remaining does not show it.
func (f *costs) refused(ctx context.Context, a *answer) error {
	left, known := f.left[a.limit]
	fits := known && left.reset == a.reset && left.units >= f.part.costOf(a.limit)
	l := f.part.limiter
	if fits && l.Actual.Form == weir.ReadHeader && l.Reserve.From == (weir.Reading{}) && !f.part.isAmbiguous(a.limit) && f.isSure(a.limit) {
		again, err := f.askSettled(ctx, func(b *answer) bool { return b.admitted() || b.reset != a.reset })
		if err != nil {
			return err
		}
		if !again.admitted() && again.reset == a.reset && again.limit == a.limit && f.isSure(a.limit) {
			f.broken(a, "refused, and Remaining was %d before: a request reserves %d", left.units, f.part.costOf(a.limit))
			return nil
		}
	}
	for range 3 {
		if _, err := f.ask(ctx); err != nil {
			return err
		}
	}
	f.conclude()
	return nil
}

func (f *costs) conclude() {
	switch {
	case f.followed > 0:
		f.see("Remaining fell by what the answers reported on each of %d requests", f.followed)
	case f.less > 0:
		f.see("%d requests cost less in the end than the %d that were reserved", f.less, f.part.cost)
	default:
		f.why = Unobservable.because("no answer reported a cost that Remaining could be compared with")
	}
}
