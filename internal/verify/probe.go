package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

// A probe sends one limiter's requests to the deployment under test, keeps within the planned
// number of requests and the longest wait, remembers the answers, and passes them to the checks.
// Only ask, askWith and send may be called by several goroutines at once.
type probe struct {
	run    *runner
	part   *part
	name   string // the limiter's
	checks checks

	who    callers
	seen   history
	clocks clocks

	first     *answer   // main's first that was admitted; nil: none yet
	steady    bool      // Remaining falls by one cost from request to request
	step      int64     // by how much it falls; 0: unknown
	latest    time.Time // how long the present window may be waited for
	spareUsed bool      // the requests planned for a second budget are spent

	left    atomic.Int64 // requests that may still be sent
	refused atomic.Int64 // main's requests that were refused
	busy    atomic.Int64 // requests that were refused by the slots, and sent again
}

func newProbe(r *runner, w *part) (*probe, *attempts) {
	p := &probe{run: r, part: w, name: w.limiter.Name, who: newCallers(r, w)}
	p.seen.init(w, &r.options.Policy.Responses)
	p.left.Store(int64(w.maxRequests(r.options.Quick)))
	tries := &attempts{probe: p}
	p.checks = newChecks(tries)
	return p, tries
}

var errGivenUp = errors.New("too many requests in a row had no answer")

// betweenTries is the time until a request is sent again after a gateway's error, and as much more
// each time. By then the answers to requests before it have come: they may show that the error
// refuses.
const betweenTries = 50 * time.Millisecond

// maxTries is how often a request is sent whose answer is lost.
const maxTries = 4

// send sends one request, and again after a lost answer. The answer is not judged.
func (p *probe) send(ctx context.Context, r request) (*answer, error) {
	for tries, inARow := 1, 0; ; tries++ {
		a, err := p.run.wire.send(ctx, r, p.take)
		var lost *lostError
		switch {
		case err == nil && (r.beside || !p.seen.isInconclusive(a) || p.seen.is503(a)):
			p.noteUncounted(r, a)
			again, err := p.slotsAreBusy(ctx, r, p.seen.mark(a), &inARow)
			if again {
				tries--
				continue
			}
			p.seen.noteAdmitted(a)
			return a, err
		case err == nil:
			p.checks.each(func(h *hooks) {
				if h.failed != nil {
					h.failed(a)
				}
			})
			p.seen.lose()
			if a.isGatewayError() {
				err = fmt.Errorf("%s %s was answered %d, without the fields", r.method, r.path, a.status)
				if tries < maxTries {
					if err := wait.For(ctx, time.Duration(tries)*betweenTries); err != nil {
						return nil, err
					}
				}
			}
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.As(err, &lost):
			return nil, err
		case !lost.unsent:
			p.seen.lose()
		}
		if tries == maxTries && err == nil {
			return a, nil
		}
		if tries == maxTries {
			return nil, fmt.Errorf("%w: %w", errGivenUp, err)
		}
	}
}

// take takes one request from the limiter's share.
func (p *probe) take() bool {
	if p.left.Add(-1) < 0 {
		p.left.Add(1)
		return false
	}
	return true
}

// isDenied reports whether an answer is that to a caller whom the policy denies: 403, without the
// fields of a limiter.
func (p *probe) isDenied(a *answer) bool {
	denies := func(l weir.Limiter) bool { return len(l.Deny) > 0 }
	return a.status == http.StatusForbidden && a.reset == absent && slices.ContainsFunc(p.run.options.Policy.Limiters, denies)
}

// judge passes an answer to the checks, whichever limiter counted it. None counted a denied one.
func (p *probe) judge(a *answer) {
	if p.isDenied(a) {
		return
	}
	p.checks.each(func(h *hooks) {
		if h.answered != nil {
			h.answered(a)
		}
	})
}

// judgeCounted passes an answer that this limiter counted to the checks, after judge.
// It passes no refusals of a limiter with a penalty: their Reset need not be a window's.
func (p *probe) judgeCounted(a *answer) {
	p.clocks.hear(a)
	if !a.complete() || !a.admitted() && p.part.limiter.Penalty.After > 0 {
		return
	}
	p.checks.each(func(h *hooks) {
		if h.counted != nil {
			h.counted(a)
		}
	})
}

// remember adds an answer to main's window.
func (p *probe) remember(a *answer) {
	p.seen.add(a, func(t *tally) {
		p.checks.each(func(h *hooks) {
			if h.refused != nil {
				h.refused(t, a)
			}
		})
	})
}

// ask sends one of main's requests to the endpoint whose budget is used up, and judges and
// remembers the answer.
func (p *probe) ask(ctx context.Context) (*answer, error) { return p.askWith(ctx, p.plain()) }

func (p *probe) askWith(ctx context.Context, r request) (*answer, error) {
	a, err := p.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if p.seen.isHeld(a) {
		return a, nil
	}
	if !a.admitted() {
		p.refused.Add(1)
	}
	p.judge(a)
	p.judgeCounted(a)
	if !p.mayBePenalty(a) && !p.part.isOfSlots(a) {
		p.remember(a)
	}
	return a, nil
}

// mayBePenalty reports whether an answer may be a refusal by the limiter's penalty: its Reset is
// not that of a window that has admitted a request.
func (p *probe) mayBePenalty(a *answer) bool {
	return !a.admitted() && p.part.limiter.Penalty.After > 0 && !p.seen.hasAdmitted(a)
}

// plain returns main's request to the endpoint whose budget is used up.
func (p *probe) plain() request { return p.requestOf(p.who.main) }

// requestOf returns a caller's request to the endpoint whose budget is used up.
func (p *probe) requestOf(c caller) request { return c.request(p.run.options, p.part.endpoints[0]) }

// covers reports whether this limiter counts a request by the policy.
func (p *probe) covers(r request) bool {
	covered := p.run.plan.routes.Match(r.method, p.authority(r), r.path).Limiter()
	return covered != nil && covered.Name == p.name
}

// authority returns the Host field of a request.
func (p *probe) authority(r request) string { return cmp.Or(r.host, p.run.options.URL.Host) }

// isSure reports whether main's answered requests are all that such a window can have counted.
func (p *probe) isSure(limit int64) bool { return p.who.isAlone(limit) && !p.seen.isLost() }

// between returns how many units others spent of main's window between two of main's requests. It
// is not ok if the answers do not show that.
func (p *probe) between(before, after *answer) (spent int64, ok bool) {
	if before == nil || !before.complete() || !after.complete() || !before.admitted() || !after.admitted() ||
		p.part.isUncounted(before) || p.part.isUncounted(after) || before.limit != after.limit || before.reset != after.reset || p.seen.isLost() {
		return 0, false
	}
	return before.remaining - after.remaining - p.part.costOf(after.limit), true
}

// confirm makes sure that what ask sends takes one unit of main's window each time, and that
// nothing else takes any. If only this verifier can spend the window, that is already certain.
func (p *probe) confirm(ctx context.Context, after *answer, ask func(context.Context) (*answer, error)) (*answer, bool, error) {
	if p.isSure(after.limit) {
		return after, true, nil
	}
	for _, times := range []int{0, 3, 0, 2} {
		before := after
		for range times {
			if _, err := ask(ctx); err != nil {
				return nil, false, err
			}
		}
		var err error
		if after, err = p.ask(ctx); err != nil {
			return nil, false, err
		}
		if spent, ok := p.between(before, after); !ok || spent != int64(times)*p.part.costOf(after.limit) {
			return nil, false, nil
		}
	}
	return after, true, nil
}

// A farError reports that a window ends later than the longest wait.
type farError struct{ left, max time.Duration }

func (e *farError) Error() string {
	return fmt.Sprintf("the window ends in %s, and the longest wait is %v", seconds(e.left), e.max)
}

// tooFar begins the wait for the end of a window, which takes no longer than Options.MaxWait in
// all. It errs if the end is further away than that.
func (p *probe) tooFar(end time.Time) error {
	limit := p.run.options.MaxWait
	p.latest = time.Now().Add(limit)
	if end = end.Add(soon); end.After(p.latest) {
		return &farError{time.Until(end), limit}
	}
	return nil
}

// wait waits until a time by the local clock. It errs if that is later than the present window may
// be waited for: the end that Date implies may have moved.
func (p *probe) wait(ctx context.Context, until time.Time, what string) error {
	length := time.Until(until)
	if length <= 0 {
		return nil
	}
	if until.After(p.latest) {
		return &farError{length, p.run.options.MaxWait}
	}
	p.run.does(p.name, what, until)
	if err := wait.For(ctx, length); err != nil {
		return err
	}
	p.run.does(p.name, what, time.Time{})
	return nil
}

// does reports what is under way.
func (p *probe) does(format string, args ...any) {
	p.run.does(p.name, fmt.Sprintf(format, args...), time.Time{})
}

// end returns when a window ends by the local clock, according to the clock that decides.
func (p *probe) end(t *tally) bracket {
	if p.clocks.other(t) != "" {
		return t.byOwn
	}
	return t.ends
}

// isGatewayError reports whether an answer seems to be a proxy's about a deployment that did not
// answer.
func (a *answer) isGatewayError() bool {
	return a.status >= http.StatusBadGateway && a.status <= http.StatusGatewayTimeout && !a.complete()
}
