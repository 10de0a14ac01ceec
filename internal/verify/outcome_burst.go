package verify

import (
	"context"
	"errors"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

// A server may charge a request only when its status or its cost is known. One request after the
// other, it cannot be distinguished from one that charges before. But of many requests that are
// under way together it admits more than are left: each of them finds a budget that none of the
// others has taken yet.

const (
	forTogether = 5 // findCharged, and the first request of the window
	spareOnes   = 8 // requests that are under way together beyond those that are left
)

// forBurst returns how many requests outcomeCheck.together sends at most.
func (p *part) forBurst(o *Options) int {
	if p.whyNotTogether(o) != (gap{}) {
		return 0
	}
	return forTogether + p.toSpend() + maxHeld
}

// toSpend returns how many requests outcomeCheck.together sends at most before those that are under
// way together. A request may cost less than it reserves.
func (p *part) toSpend() int {
	if p.limiter.Actual == (weir.Reading{}) {
		return p.drain + p.over
	}
	return int(min(p.window.Limit, drainTwice)) + p.over
}

// whyNotTogether returns why no requests are sent together. The zero gap means that they are.
func (p *part) whyNotTogether(o *Options) gap {
	l := p.limiter
	switch {
	case !p.hasWindows() || !l.SettlesUnits():
		return inherently("it counts all requests, and their cost is known before they are answered")
	case l.Reserve.From != (weir.Reading{}) || l.Actual.Form == weir.ReadJSON:
		return Unobservable.because("no field of the answer shows what a request has cost")
	case len(l.Exempt) > 0 || p.hidesUnits():
		return Unobservable.because("the answers do not show what a request has cost")
	case p.slots() == 1:
		return Unobservable.because("no two requests may be under way together")
	case o.Quick:
		return NeedsMore.because("it takes another window, and none is waited for (quick)")
	case p.window.Per > o.MaxWait:
		return NeedsMore.because("the longest wait is %v", o.MaxWait)
	case p.drain > drainTwice:
		return NeedsMore.because("a budget of %d requests is not used up once more", p.drain)
	}
	return gap{}
}

// A burst is requests that are under way together when little is left of a window.
type burst struct {
	*outcomeCheck
	request  request
	first    *answer // of the window
	last     *answer // the last that was admitted
	admitted int     // requests that were counted in the window of first
	units    int64   // that these have cost at least
	refused  int     // requests that were under way together and refused
	together int     // requests that were under way together, and answered
	unclear  gap     // why the experiment ended with errUnclear
}

// endUnclear returns errUnclear, for a reason.
func (b *burst) endUnclear(why gap) error {
	b.unclear = why
	return errUnclear
}

// together sends requests that are under way together, more than are left of a new window. In one
// window, no more may be admitted than its limit allows, whatever others do: what is counted does
// not come back. Without this the clause is not tested, whatever was seen before.
func (c *outcomeCheck) together(ctx context.Context) error {
	why := c.part.whyNotTogether(c.run.options)
	switch {
	case c.verdict() == Broken || c.first == nil || why.inherent:
		return nil
	case !why.isZero():
		c.notTogether(why)
		return nil
	}
	c.does("sending requests that are under way together")
	b := &burst{outcomeCheck: c}
	var far *farError
	switch err := b.experiment(ctx); {
	case errors.As(err, &far):
		c.notTogether(NeedsMore.because("%s", far))
	case errors.Is(err, errBudget):
		c.notTogether(NeedsMore.because("%s", errBudget))
	case errors.Is(err, errSlots):
		c.notTogether(Shared.because("%s", errSlots))
	case errors.Is(err, errUnclear):
		c.notTogether(b.unclear)
	default:
		return err
	}
	return nil
}

// notTogether records why it was not seen that requests are charged before they are served. An
// earlier reason stays: then it was not seen either what they cost.
func (c *outcomeCheck) notTogether(why gap) {
	if c.saw != "" {
		why.text = "whether requests are charged before they are served was not seen: " + why.text
		c.why = why
	}
}

func (b *burst) experiment(ctx context.Context) error {
	if err := b.findCharged(ctx); err != nil {
		return err
	}
	if err := b.awaitWindow(ctx); err != nil {
		return err
	}
	most := maxHeld
	if slots := b.part.slots(); slots > 0 {
		most = min(most, slots)
	}
	left, err := b.spendAllBut(ctx, max(most-spareOnes, most*3/4))
	if err != nil {
		return err
	}
	if err := b.sendTogether(ctx, min(left+spareOnes, most)); err != nil {
		return err
	}
	b.conclude(left)
	return nil
}

// findCharged finds a request whose status is counted: main's, or one that is answered otherwise.
func (b *burst) findCharged(ctx context.Context) error {
	b.request = b.plain()
	if !b.part.isUncounted(b.outcomeCheck.first) {
		return nil
	}
	r, a, err := b.findAnswered(ctx, func(a *answer) bool { return a.admitted() && b.part.limiter.Count.Counts(a.status) })
	if err != nil {
		return err
	}
	if a == nil {
		return b.endUnclear(Unobservable.because("no request was answered with a status that is counted"))
	}
	b.request = r
	return nil
}

// awaitWindow waits for a new window and sends its first request.
func (b *burst) awaitWindow(ctx context.Context) error {
	if err := b.letSettle(ctx); err != nil {
		return err
	}
	if t := b.seen.now(); t != nil && !t.ends.isZero() {
		end := b.end(t).to
		if err := b.tooFar(end); err != nil {
			return err
		}
		if err := b.wait(ctx, end.Add(soon), "waiting for a whole window"); err != nil {
			return err
		}
	}
	a, err := b.sendOne(ctx)
	if err != nil {
		return err
	}
	switch {
	case !a.admitted():
		return b.endUnclear(Shared.because("the first request after the end of a window was refused: others may use the same budget"))
	case !a.complete() || b.part.isAmbiguous(a.limit):
		return b.endUnclear(Unobservable.because("the answers do not show which window they describe"))
	}
	b.first = a
	b.count(a)
	return nil
}

func (b *burst) sendOne(ctx context.Context) (*answer, error) {
	a, err := b.send(ctx, b.request)
	if err == nil {
		b.judge(a)
		b.judgeCounted(a)
	}
	return a, err
}

// count adds what an answer's request has cost, if it is in the window.
func (b *burst) count(a *answer) {
	if !a.complete() || a.limit != b.first.limit || a.reset != b.first.reset {
		return
	}
	if units := b.leastCost(a); units > 0 {
		b.admitted++
		b.units += units
		b.last = a
	}
}

// leastCost returns what a request has cost at least in the window that its answer describes: no
// more than was reserved, since more may be charged beyond the limit.
func (c *outcomeCheck) leastCost(a *answer) int64 {
	l := c.part.limiter
	switch {
	case !a.admitted() || c.part.isUncounted(a):
		return 0
	case l.Actual == (weir.Reading{}) || c.part.isOfRequests(a.limit):
		least, _ := c.part.costsOf(a.limit)
		return least
	}
	units, _ := c.reported(a)
	return min(units, c.part.costOf(a.limit))
}

// spendAllBut sends requests until no more than n are left, and returns how many are.
func (b *burst) spendAllBut(ctx context.Context, n int) (left int, err error) {
	a := b.first
	for range b.part.toSpend() {
		each := b.leastCost(a)
		switch {
		case a.reset != b.first.reset || a.limit != b.first.limit:
			return 0, b.endUnclear(NeedsMore.because("the window ended before little of its budget was left"))
		case each == 0:
			return 0, b.endUnclear(Unobservable.because("an answer does not show what its request has cost"))
		}
		if left = int(a.remaining / each); left <= n {
			return left, nil
		}
		if a, err = b.sendOne(ctx); err != nil {
			return 0, err
		}
		if !a.admitted() || !a.complete() {
			return 0, b.endUnclear(Shared.because("a request was refused before the budget was used up: others may use it too"))
		}
		b.count(a)
	}
	return 0, b.endUnclear(NeedsMore.because("%d requests left too much of the budget", b.part.toSpend()))
}

// sendTogether sends n requests, over a connection each. If they have bodies, none is whole before
// all of them have begun.
func (b *burst) sendTogether(ctx context.Context, n int) error {
	var under []*held
	var err error
	for range n {
		var h *held
		if h, err = b.run.wire.begin(ctx, b.request, b.take); err != nil {
			break
		}
		under = append(under, h)
	}
	if err == nil {
		err = wait.For(ctx, settlePause)
	}
	answers := make([]*answer, len(under))
	var ending sync.WaitGroup
	for i, h := range under {
		ending.Go(func() { answers[i], _ = h.finish() })
	}
	ending.Wait()
	for _, a := range answers {
		if a == nil {
			b.seen.lose()
			continue
		}
		b.seen.mark(a)
		b.judge(a)
		b.judgeCounted(a)
		b.count(a)
		b.together++
		if !a.admitted() {
			b.refused++
		}
	}
	return err
}

func (b *burst) conclude(left int) {
	switch limit := b.first.limit; {
	case b.units > limit:
		b.broken(b.last, "%d requests were admitted in one window that cost %d units, and its limit is %d: those that are under way together are not charged before they are served",
			b.admitted, b.units, limit)
	case b.refused == 0:
		b.notTogether(Unobservable.because("of %d requests under way together, when %d were left, none was refused, and they have cost %d units of %d", b.together, left, b.units, limit))
	case b.saw != "":
		b.kept("%s; of %d requests under way together, when %d were left, %d were refused", b.saw, b.together, left, b.refused)
	}
}
