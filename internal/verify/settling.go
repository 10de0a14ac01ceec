package verify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

// What a request has cost may follow from its answer, a limiter may count only some statuses, and
// it may limit the requests under way (weir.Limiter.Settles). Clauses that need a known cost of
// each request are not tested then.

const (
	maxHeld     = 32 // requests that are held under way at the same time
	forAttempts = 30 // clause_inflight.go: requests of one attempt that are not held
	forSlots    = 24 // slotsAreBusy
)

// costIn returns the units that one request costs in a window.
func (p *part) costIn(w *weir.Window) int64 {
	if w.Requests {
		return 1
	}
	return max(p.limiter.Cost, 1)
}

// chooseWindow sets the window that allows the fewest requests. A limiter without windows has that
// of its slots, which is not used up.
func (p *part) chooseWindow() {
	for i := range p.limiter.Windows {
		w := &p.limiter.Windows[i]
		if i == 0 || w.Limit/p.costIn(w) < p.window.Limit/p.cost {
			p.window, p.cost = *w, p.costIn(w)
		}
	}
	if len(p.limiter.Windows) == 0 {
		p.window, p.cost = p.limiter.Rows()[0], 1
	}
}

// costOf returns the units that one request costs in the window that an answer describes: the most
// of them if the answer may describe several.
func (p *part) costOf(limit int64) int64 {
	_, most := p.costsOf(limit)
	return most
}

// costsOf returns the least and the most units that one request costs in a window with a limit.
func (p *part) costsOf(limit int64) (least, most int64) {
	for i := range p.limiter.Windows {
		w := &p.limiter.Windows[i]
		if !p.canHave(w, limit) {
			continue
		}
		cost := p.costIn(w)
		if most == 0 || cost < least {
			least = cost
		}
		most = max(most, cost)
	}
	if most == 0 {
		return p.cost, p.cost
	}
	return least, most
}

// hidesUnits reports whether a window of requests and one of units have the same limit. Then an
// answer does not show what its request costs in the window that it describes.
func (p *part) hidesUnits() bool {
	for i := range p.limiter.Windows {
		if least, most := p.costsOf(p.limiter.Windows[i].Limit); least != most {
			return true
		}
	}
	return false
}

// mixesUnits reports whether windows of requests are beside windows of units, so that answers of
// one caller may describe now the one and now the other.
func (p *part) mixesUnits() bool {
	return slices.ContainsFunc(p.limiter.Windows, func(w weir.Window) bool { return w.Requests })
}

// hasWindows reports whether the limiter limits more than the requests under way.
func (p *part) hasWindows() bool { return len(p.limiter.Windows) > 0 }

// slots returns how many requests may be under way; 0: any number.
func (p *part) slots() int { return int(min(p.limiter.InFlight.Limit, 1<<30)) }

// isOfSlots reports whether an answer describes the slots of in_flight: it is refused by them, or
// there are no windows.
func (p *part) isOfSlots(a *answer) bool {
	if p.slots() == 0 || a.limit != p.limiter.InFlight.Limit {
		return false
	}
	return !p.hasWindows() || !a.admitted() && a.retryAfter == 1 && (a.date == absent || a.reset-a.date <= 2)
}

// forHeld returns how many requests the clauses about requests under way send at most, with one
// repetition.
func (p *part) forHeld() int {
	if p.slots() == 0 || p.slots() > maxHeld {
		return 0
	}
	return forSlots + 5*(p.slots()+1+forAttempts)
}

// whyUnknownCost returns why the cost of the verifier's requests is not known before they are
// answered. The zero gap means that it is.
func (p *part) whyUnknownCost(o *Options) gap {
	l := p.limiter
	switch r := l.Reserve.From; {
	case !p.hasWindows():
		return inherently("it has no window: it limits only how many requests are under way")
	case l.Actual != (weir.Reading{}):
		return inherently("what a request costs follows from its answer, so Remaining does not fall by the same from request to request")
	case p.hidesUnits():
		return Unobservable.because("a window that counts requests has the same limit as one that counts units, so the answers do not show which of them they describe")
	case r.Form == weir.ReadHeader && o.Header.Get(r.Name) != "":
		return Unobservable.because("requests have their own cost in the given field %s", r.Name)
	}
	return gap{}
}

// isUncounted reports whether the limiter does not count a request because of its answer's status.
func (p *part) isUncounted(a *answer) bool { return a.admitted() && !p.limiter.Count.Counts(a.status) }

// countsSome reports whether the limiter counts only some statuses.
func (p *part) countsSome() bool { return len(p.limiter.Count.Statuses) > 0 }

// whyGivenBack returns why units may have come back before Reset: requests were under way that were
// not counted in the end. The zero gap means that none may.
func (p *probe) whyGivenBack() gap {
	switch {
	case !p.part.countsSome():
		return gap{}
	case p.seen.hasUncounted():
		return Unobservable.because("some answers had a status that is not counted: their units were taken for a moment, and came back")
	case !p.who.alone || p.seen.isLost():
		return Shared.because("others may use the same budget, and units of requests that are not counted come back")
	}
	return gap{}
}

// neverBack is how often in a row a request is refused by slots that must be free by then.
const neverBack = 7

// letSettle waits until earlier requests are settled: a store may do that a moment after the
// answer.
func (p *probe) letSettle(ctx context.Context) error {
	if !p.part.countsSome() && p.part.limiter.Actual == (weir.Reading{}) {
		return nil
	}
	return wait.For(ctx, time.Second)
}

// noteUncounted notes an answer of the endpoint whose status is not counted, although that of other
// requests is. That of a credential that does not verify is not the endpoint's.
func (p *probe) noteUncounted(r request, a *answer) {
	e := p.part.endpoints[0]
	if p.part.isUncounted(a) && r.path == e.path && r.method == e.method && a.status != unauthenticatedStatus(p.seen.responses) {
		p.seen.noteUncounted()
	}
}

// errSlots ends the experiments on a limiter whose slots others hold.
var errSlots = errors.New("refused again and again since too many requests were under way, though none of the verifier's was: others may use the same slots")

// slotsAreBusy reports whether a request must be sent again, since it was refused by the slots: the
// slot of an earlier request may come back a moment after its answer. It waits before that. inARow
// is how often the request was refused so.
func (p *probe) slotsAreBusy(ctx context.Context, r request, a *answer, inARow *int) (bool, error) {
	if r.asIs || a.admitted() || !p.part.isOfSlots(a) {
		return false, nil
	}
	p.judge(a)
	if *inARow++; *inARow >= neverBack && p.aloneInFlight() && !p.seen.isLost() {
		p.run.book.broken(inFlightClause, p.name, a, "refused for seconds, though no more than %d requests are under way: slots do not come back", p.workers())
		return false, errSlots
	}
	if p.busy.Add(1) > forSlots {
		return false, errSlots
	}
	length := time.Second
	if *inARow == 1 {
		length = 100 * time.Millisecond
	}
	return true, wait.For(ctx, length)
}

// workers returns how many of main's requests may be under way at the same time.
func (p *probe) workers() int {
	n := p.run.options.Workers
	if slots := p.part.slots(); slots > 0 {
		n = min(n, max(1, slots/2))
	}
	return n
}

// beSettled runs the experiments on a limiter whose windows cannot be used up by a known number of
// requests. why is the reason.
func (l *timeline) beSettled(ctx context.Context, why gap) error {
	for _, c := range l.checks {
		if needsCost(&c.on) {
			c.on.unseen = why
			if before := c.on.why; before != nil {
				c.on.why = func() gap { return inherentOr(before(), why) }
			}
		}
	}
	if l.first != nil { // otherwise the budget was spent at the start
		if err := l.settleUnits(ctx); err != nil {
			return err
		}
	}
	if err := l.provoke(ctx); err != nil {
		return err
	}
	if err := l.spendLast(ctx); err != nil {
		return err
	}
	return errDone
}

// needsCost reports whether a clause needs a known cost of each request.
func needsCost(h *hooks) bool {
	return h.needsRefusals || h.paused != nil || h.drained != nil || h.between != nil || h.preflighted != nil || h.rolled != nil || h.tries != nil
}

// inherentOr returns the first reason if it is that the clause does not apply.
func inherentOr(first, second gap) gap {
	if first.inherent {
		return first
	}
	return second
}

// settleUnits calls the hooks of clauses about requests whose units or slots come back.
func (l *timeline) settleUnits(ctx context.Context) error {
	if err := l.letSettle(ctx); err != nil {
		return err
	}
	return l.checks.eachStep(func(h *hooks) error {
		if h.settles == nil {
			return nil
		}
		return h.settles(ctx)
	})
}

// withBody returns the first endpoint whose requests have a body; ok is false if there is none.
func (p *part) withBody() (e endpoint, ok bool) {
	i := slices.IndexFunc(p.endpoints, func(e endpoint) bool {
		return e.method == http.MethodPost || e.method == http.MethodPut || e.method == http.MethodPatch
	})
	if i < 0 {
		return endpoint{}, false
	}
	return p.endpoints[i], true
}

// whySettled returns why main's requests do not use the budget up by a known cost each. The zero
// gap means that they do.
func (l *timeline) whySettled(first *answer) gap {
	if why := l.part.whyUnknownCost(l.run.options); !why.isZero() {
		return why
	}
	if l.part.isUncounted(first) {
		return Unobservable.because("its requests are answered %d, which is not counted, so they do not use the budget up", first.status)
	}
	return gap{}
}
