package verify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/wait"
)

const inFlightClause = "in-flight"

// checkInFlight holds as many requests under way as in_flight allows, by sending them without the
// end of their bodies. The next one must be refused until one of them has ended. That requests are
// under way where the limiter is shows in Remaining, or in a refusal: a proxy may keep them back
// until they are whole.
func checkInFlight(clause *check) hooks {
	c := &inFlightCheck{check: clause}
	return hooks{settles: c.settles, later: c.later, why: func() gap { return c.why }}
}

type inFlightCheck struct {
	*check
	why   gap // why nothing was judged
	under []*held
	// How often one request too many was admitted, which others may have caused in part.
	overs int
	tried bool // a first attempt was disturbed
	large bool // held requests announce bodies of largeBody
	ok    bool // the slots were seen to be taken, and to come back
}

// errUnclear ends an attempt that showed nothing. The reason is in why. errSmall ends one that must
// be repeated with large bodies.
var errUnclear, errSmall = errors.New("unclear"), errors.New("the bodies are too small")

// largeBody is a body of which servers do not wait for the end before they send an answer that was
// given without it: net/http waits for 256 KiB.
const largeBody = 300 << 10

func (c *inFlightCheck) settles(ctx context.Context) error {
	if c.why = c.whyNot(); !c.why.isZero() {
		return nil
	}
	c.does("holding %d requests under way", c.part.slots())
	if err := c.attempt(ctx, (*held).finish); err != nil || c.part.hasWindows() {
		return err
	}
	return c.attemptLeft(ctx)
}

// later holds requests and leaves them, in a new window: requests without an answer are of unknown
// cost to the clauses before.
func (c *inFlightCheck) later(ctx context.Context) error {
	if !c.ok || c.run.options.Quick || !c.part.hasWindows() {
		return nil
	}
	return c.attemptLeft(ctx)
}

func (c *inFlightCheck) attemptLeft(ctx context.Context) error {
	if !c.ok || c.verdict() == Broken {
		return nil
	}
	why := c.why
	err := c.attempt(ctx, (*held).leave)
	c.why = why // what the first attempt has shown stays
	return err
}

// whyNot returns why no requests can be held.
func (c *inFlightCheck) whyNot() gap {
	l := c.part.limiter
	e, ok := c.part.withBody()
	switch n := c.part.slots(); {
	case n == 0:
		return inherently("it does not limit the requests under way")
	case l.Reserve.From.Form == weir.ReadJSON:
		return Unobservable.because("a request's body is read before it is admitted, so none can be held under way by keeping its end back")
	case !ok:
		return Unobservable.because("its requests have no body whose end could be kept back, so none can be held under way")
	case n > maxHeld:
		return NeedsMore.because("%d requests may be under way, and at most %d are held", n, maxHeld)
	case !c.covers(c.request(e, c.who.main)):
		return Unobservable.because("no request with a body was found that it covers")
	}
	return gap{}
}

func (c *inFlightCheck) request(e endpoint, by caller) request {
	r := by.request(c.run.options, e)
	r.asIs, r.fresh = true, true
	return r
}

// attempt holds requests, ends them by end, and judges what happens, once more if others may have
// disturbed it.
func (c *inFlightCheck) attempt(ctx context.Context, end func(*held) (*answer, error)) error {
	for {
		err := c.attemptOnce(ctx, end)
		if errors.Is(err, errSmall) {
			c.large, end = true, (*held).leave
			if err := wait.For(ctx, 1100*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		c.drop(errors.Is(err, errUnclear) && !c.large)
		switch {
		case errors.Is(err, errUnclear) && !c.tried && c.why.reason == Shared:
			c.tried = true
			if err := wait.For(ctx, 1100*time.Millisecond); err != nil {
				return err
			}
			continue
		case errors.Is(err, errUnclear), errors.Is(err, errBudget):
			return nil
		}
		return err
	}
}

// drop ends what is still under way after an attempt that ended early: it is finished if it may
// still be answered, and left otherwise.
func (c *inFlightCheck) drop(finish bool) {
	end := (*held).leave
	if finish {
		end = (*held).finish
	}
	for _, h := range c.under {
		a, err := end(h)
		if err != nil || a == nil {
			c.seen.lose()
			continue
		}
		c.note(c.seen.mark(a))
	}
	c.under = nil
}

func (c *inFlightCheck) attemptOnce(ctx context.Context, end func(*held) (*answer, error)) error {
	s := &slotRound{inFlightCheck: c, end: end, n: c.part.slots()}
	s.endpoint, _ = c.part.withBody()
	for _, step := range []func(context.Context) error{s.look, s.fill, s.refuses, s.sparesOthers, s.endOne, s.refuses, s.endAll, s.account} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	c.ok = true
	if c.verdict() != Broken {
		c.kept("%d requests were held under way, and one more was refused; when one had ended, one was admitted, and again no more%s", s.n, s.others)
	}
	return nil
}

// letCome is how long the slot of the last request is given to come back before its place is taken.
const letCome = 300 * time.Millisecond

// A slotRound is one attempt.
type slotRound struct {
	*inFlightCheck
	endpoint endpoint
	end      func(*held) (*answer, error)
	n        int
	first    *answer // before any is held
	last     *answer // the last that was admitted while some were held; nil: none was
	probes   int64   // how many were
	admitted int64   // requests since first, first not included, with those that are held
	refused  bool    // one was refused while all were held: they are under way
	others   string  // what was seen of another caller
}

func (s *slotRound) unclear(why gap) error {
	s.why = why
	return errUnclear
}

// ask sends main's request, and judges the answer.
func (s *slotRound) ask(ctx context.Context) (*answer, error) {
	a, err := s.send(ctx, s.request(s.endpoint, s.who.main))
	if err == nil {
		s.note(a)
	}
	return a, err
}

// note judges and remembers an answer.
func (c *inFlightCheck) note(a *answer) {
	c.judge(a)
	if a.admitted() {
		c.judgeCounted(a)
	}
	if !c.part.isOfSlots(a) {
		c.remember(a)
	}
}

// look sends a request while none is under way.
func (s *slotRound) look(ctx context.Context) (err error) {
	if s.first, err = s.await(ctx); err != nil {
		return err
	}
	a := s.first
	need := int64(2*s.n+6) * s.part.costOf(a.limit)
	switch {
	case !a.admitted() && s.part.isOfSlots(a) && s.aloneInFlight() && !s.seen.isLost():
		s.broken(a, "refused for seconds, though none of the earlier requests is under way: slots do not come back")
		return errUnclear
	case !a.admitted():
		return s.unclear(Shared.because("requests were refused before any was held under way: others may use the same budget"))
	case !a.complete():
		return s.unclear(Unobservable.because("the answers lack the fields that would show what is under way"))
	case len(s.part.limiter.Exempt) > 0 && a.remaining == a.limit:
		return s.unclear(Unobservable.because("this caller seems to be exempt: the policy has exempt callers, and Remaining stays at the limit"))
	case s.part.hasWindows() && a.remaining < need:
		return s.unclear(NeedsMore.because("its windows refuse before %d requests are under way: Remaining is %d, and %d units are needed", s.n, a.remaining, need))
	}
	return nil
}

// await sends requests until the slots have one free. The last answer is a refusal if there is none
// after some seconds.
func (s *slotRound) await(ctx context.Context) (a *answer, err error) {
	for _, pause := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 1100 * time.Millisecond, 3 * time.Second, 0} {
		if a, err = s.ask(ctx); err != nil || a.admitted() || !s.part.isOfSlots(a) || pause == 0 {
			return a, err
		}
		if err = wait.For(ctx, pause); err != nil {
			return nil, err
		}
	}
	return a, err
}

// fill holds as many requests as may be under way.
func (s *slotRound) fill(ctx context.Context) error {
	if err := wait.For(ctx, letCome); err != nil {
		return err
	}
	for len(s.under) < s.n {
		if err := s.holdOne(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *slotRound) holdOne(ctx context.Context) error {
	r := s.request(s.endpoint, s.who.main)
	if s.large {
		r.body = strings.Repeat(" ", largeBody) + r.body
	}
	h, err := s.run.wire.begin(ctx, r, s.take)
	if err != nil {
		return err
	}
	s.under = append(s.under, h)
	s.admitted++
	return nil
}

// stillHeld wants each held request to be under way.
func (s *slotRound) stillHeld() error {
	for i, h := range s.under {
		a, err := h.answered()
		if a == nil && err == nil {
			continue
		}
		s.under = slices.Delete(s.under, i, i+1)
		_, _ = h.finish()
		if a != nil {
			a = s.seen.mark(a)
		}
		switch {
		case err != nil:
			s.seen.lose()
			return s.unclear(Unobservable.because("a request without the end of its body was not kept: %v", err))
		case a.admitted():
			s.note(a)
			return s.unclear(Unobservable.because("its endpoint answers %d before the body has ended, so no request can be held under way", a.status))
		}
		return s.judgeTooFew(a)
	}
	return nil
}

// judgeTooFew judges a held request that was refused.
func (s *slotRound) judgeTooFew(a *answer) error {
	s.note(a)
	if s.tried && s.aloneInFlight() && !s.seen.isLost() && s.part.isOfSlots(a) {
		s.broken(a, "refused before %d requests were under way, and %d are allowed", s.n, s.n)
	}
	return s.unclear(Shared.because("a request was refused before %d were under way: others may use the same slots", s.n))
}

// settlePause is how long held requests are given to be admitted before one more is sent, the first
// time.
const settlePause = 50 * time.Millisecond

// refuses wants one more request to be refused, twice.
func (s *slotRound) refuses(ctx context.Context) error {
	var a, before *answer
	var err error
	for tries := range 5 {
		if err := wait.For(ctx, settlePause<<tries); err != nil {
			return err
		}
		if err := s.stillHeld(); err != nil {
			return err
		}
		if a, err = s.ask(ctx); err != nil {
			return err
		}
		if !a.admitted() {
			break
		}
		s.admitted++
		s.probes++
		before = s.last
		s.last = a
	}
	if err := s.stillHeld(); err != nil {
		return err
	}
	if a.admitted() {
		return s.judgeAdmitted(before, a)
	}
	if err := s.judgeRefusal(a); err != nil {
		return err
	}
	s.refused = true
	if err := wait.For(ctx, time.Second); err != nil {
		return err
	}
	again, err := s.ask(ctx)
	if err != nil {
		return err
	}
	if again.admitted() {
		s.admitted++
		return s.unclear(Shared.because("one request more than %d was refused, and then one was admitted", s.n))
	}
	return s.judgeRefusal(again)
}

// judgeAdmitted judges one request too many that was admitted each time.
func (s *slotRound) judgeAdmitted(before, a *answer) error {
	if !s.refused && !s.showsHeld(before, a) {
		return s.unclear(Unobservable.because("%d requests were sent without the end of their bodies, and Remaining does not show that they are under way: a proxy may keep them back, or does not count them", s.n))
	}
	// The limiter may have seen the end of requests whose answers are kept back.
	if s.part.hasWindows() && !s.refused && !s.large {
		if err := s.endHeld(); err != nil {
			return err
		}
		return errSmall
	}
	// The answer to a held request may be kept back until its end: it may have been refused.
	under := len(s.under)
	s.end = (*held).finish
	if err := s.endHeld(); err != nil {
		return err
	}
	if s.overs++; s.overs > 1 || s.aloneInFlight() && s.who.alone {
		s.broken(a, "answered %d while %d requests were under way: %d are allowed", a.status, under, s.n)
	}
	return s.unclear(Shared.because("one request too many was admitted: others may have ended one"))
}

// showsHeld reports whether Remaining shows that the held requests are counted. before is the
// answer to the request before.
func (s *slotRound) showsHeld(before, a *answer) bool {
	if !a.complete() || a.limit != s.first.limit {
		return false
	}
	fell := s.first.remaining - a.remaining
	if !s.part.hasWindows() {
		return s.n > 1 && a.remaining == 0 && fell >= int64(s.n)-1
	}
	each := before.remaining - a.remaining // what a request takes that is not held
	return a.reset == s.first.reset && before.reset == a.reset && before.limit == a.limit && fell-s.probes*each >= int64(s.n)*s.part.costOf(a.limit)
}

// judgeRefusal judges the fields of a refusal by the slots.
func (s *slotRound) judgeRefusal(a *answer) error {
	limit := s.part.limiter.InFlight.Limit
	switch {
	case len(s.part.lengthsOf(a.limit)) > 0 && !s.part.isOfSlots(a) && !s.hasRoom():
		return s.unclear(Shared.because("refused by a window of %d while requests were under way: others may use the same budget, or requests cost more than they reserve", a.limit))
	case a.status == http.StatusTooManyRequests && a.retryAfter != 1:
		s.broken(a, "Retry-After is %s on a refusal by the limit on requests under way, and must be 1", a.header.Get("Retry-After"))
	case a.limit != limit:
		s.broken(a, "X-RateLimit-Limit is %d on a refusal by the limit on requests under way, which is %d", a.limit, limit)
	case a.remaining != 0:
		s.broken(a, "Remaining is %d on a refusal by the limit on requests under way", a.remaining)
	case a.date != absent && (a.reset-a.date < 0 || a.reset-a.date > 2):
		s.suspect(a, "Reset is %d s after Date on a refusal by the limit on requests under way, and must be the next second", a.reset-a.date)
	}
	return nil
}

// hasRoom reports whether no window can have refused: main's requests have not used the budget up.
func (s *slotRound) hasRoom() bool {
	cost := s.part.costOf(s.first.limit)
	return s.who.alone && !s.part.light && !s.seen.isLost() && s.first.remaining > (s.admitted+1)*cost && len(s.part.limiter.Windows) == 1
}
