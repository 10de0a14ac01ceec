package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Question is one request, as the limiter sees it.
type Question struct {
	Request identity.Request // required
	Method  string           // case-sensitive, as received
	Path    string           // decoded, without query; not used where Match is given

	Match  weir.Match // the chosen limiter; the zero value is found by Method and Path, but where Chosen says that it is the choice
	Chosen bool       // Match is what covers the request, also where that is nothing
	Cost   int64      // weir.Request.Cost: 0 is the limiter's own, weir.Peek spends nothing
	Public bool       // what is asked for needs no credential: never 401

	Arrival time.Time // from which Observation.Latency is counted; zero: from now on
}

// An Answer is what the limiter says to one Question, as values: no HTTP engine is part of it. An engine
//
//   - sends Status, Fields and Body (but to HEAD) where Status is not 0;
//   - else lets its handler answer, drops every field of it that Owns names, and sends Fields with it; where the handler's
//     own status is 429, BackendRefused goes before;
//   - does nothing at all where Decision.Outcome is weir.Unlimited.
//
// The zero value is ready for Judge, which can use it again.
type Answer struct {
	Decision weir.Decision
	Outcome  Outcome
	Status   int // 401, 429 or 503; 0: the request goes on to its handler

	values     *fieldValues
	retryAfter string                                // empty: not sent
	denial     string                                // empty: not sent
	denies     bool                                  // X-Weir-Denial is ours
	ietf       *[fieldDenial - fieldRateLimit]string // nil: switched off
	refusal    *refusal                              // of an answer of our own
	arrival    time.Time                             // Question.Arrival
	scratch    *weir.Scratch                         // Judge's; nil where nobody asks who was counted
}

// fieldValues are the values of our fields up to Date, in the order of fieldNames. The slices of a header are made of them,
// so they outlive the handler.
type fieldValues [fieldDate + 1]string

// Body returns the body of an answer of our own: JSON, shared between answers, read only. It is nil where Status is 0.
func (a *Answer) Body() []byte {
	if a.refusal == nil {
		return nil
	}
	return a.refusal.body
}

// Judge decides one request and writes a; c becomes its caller. Both belong to the engine, and must not be used by two
// requests at a time. ctx carries values to the store. It errs only where Question.Cost is out of the limiter's range; a
// does not hold an answer then.
func (m *Middleware) Judge(ctx context.Context, q Question, c *identity.Caller, a *Answer) error {
	values := a.values
	if values == nil {
		values = new(fieldValues)
	}
	*values, a.values, a.arrival = fieldValues{}, values, q.Arrival
	match := q.Match
	if !q.Chosen && match.Limiter() == nil && !match.Beside() {
		match = m.decider.Match(q.Method, q.Path)
	}
	access := protected
	if q.Public {
		access = public
	}
	m.options.Identity.Start(c, q.Request)
	if a.scratch == nil && (m.options.Denial != nil || m.options.Observe != nil) {
		a.scratch = new(weir.Scratch)
	}
	return m.judge(ctx, &match, q.Cost, access, c, a, a.scratch)
}

// judge is Judge for a caller that has started, and an Answer whose values are empty. What it is given comes in registers: a
// struct that was written a moment ago and is copied whole costs a stall each time (40 ns here).
func (m *Middleware) judge(ctx context.Context, match *weir.Match, cost int64, access access, c *identity.Caller, a *Answer, scratch *weir.Scratch) error {
	r := weir.Request{Keys: c, Cost: cost, Match: *match, Scratch: scratch}
	start := a.arrival
	if m.options.Observe != nil && start.IsZero() {
		start = m.options.Now()
	}
	a.Outcome, a.Status, a.retryAfter, a.refusal, a.ietf = Unlimited, 0, "", nil, nil
	a.denial, a.denies = "", m.options.Denial != nil
	l := match.Limiter()
	if l == nil {
		a.Decision = weir.Decision{Allowed: true, Outcome: weir.Unlimited}
		if match.Beside() {
			if err := m.decider.DecideInto(ctx, &r, &a.Decision); err != nil {
				return err
			}
		}
		m.observe(ctx, a, start, nil, nil)
		return nil
	}
	c.Limiter(l.Name)
	access, err := m.decide(ctx, l, access, c, &r, &a.Decision)
	if err != nil {
		return err
	}
	if a.Decision.Allowed && c.Unchecked() {
		// Its address was taken for spent, and has budget: a window has ended, or an operator gave some back. This once both the
		// address and the caller are charged, which errs on the side of refusing.
		m.options.Identity.Unspent(c, l.Name)
		if access, err = m.decide(ctx, l, access, c, &r, &a.Decision); err != nil {
			return err
		}
	}
	m.conclude(l, access, c, a)
	if a.denies && a.Outcome == Refused {
		a.denial = m.options.Denial(&a.Decision, r.Keys, scratch)
	}
	m.say(a)
	m.observe(ctx, a, start, r.Keys, scratch)
	return nil
}

// decide charges a caller. The access it returns is stranger where the caller must have a credential, has none, and would otherwise
// spend what all share.
func (m *Middleware) decide(ctx context.Context, l *weir.Limiter, a access, c *identity.Caller, r *weir.Request, d *weir.Decision) (access, error) {
	r.Keys = c
	if a == stranger {
		a = protected
	}
	if a == protected && !m.options.PassAnonymous && shared(l) {
		if source, _ := m.unverified(l, c); source != "" {
			a, r.Keys = stranger, strangerKeys{c}
		}
	}
	return a, m.decider.DecideInto(ctx, r, d)
}

// access says whether what is asked for needs the credential that its limiter counts by.
type access uint8

const (
	protected access = iota // without it, 401
	public
	stranger // protected, and the caller is known to lack it
)

// strangerKeys are those of a caller that will be answered 401. It has no part in a budget that all share, and so is counted
// by its address there too: whoever is turned away must not spend what is meant for those who are served (D16).
type strangerKeys struct{ *identity.Caller }

func (k strangerKeys) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	if source == identity.Everyone {
		return dst, false
	}
	return k.Caller.AppendKey(dst, source)
}

// shared reports whether any window of l is one that all callers share.
func shared(l *weir.Limiter) bool {
	for i := range l.Windows {
		if l.Windows[i].Key.Uses(identity.Everyone) {
			return true
		}
	}
	return false
}

// conclude makes a status of the decision.
func (m *Middleware) conclude(l *weir.Limiter, access access, c *identity.Caller, a *Answer) {
	d := &a.Decision
	switch {
	case d.Outcome == weir.StoreUnavailable:
		a.Outcome, a.Status = Unavailable, http.StatusServiceUnavailable
		a.refusal = &unavailable
		return
	case !d.Allowed:
		a.Outcome, a.Status = Refused, http.StatusTooManyRequests
		a.refusal = m.refusal(MessageOf(l), c.Request())
		m.noteSpent(l, access, c, d)
		return
	}
	a.Outcome = Admitted
	if access == public || m.options.PassAnonymous {
		return
	}
	source, err := m.unverified(l, c)
	if errors.Is(err, identity.ErrUnreadable) { // it may well be good
		a.Outcome, a.Status, a.refusal = Unavailable, http.StatusServiceUnavailable, &unreadable
		return
	}
	if source != "" {
		a.Outcome, a.Status = Unauthenticated, http.StatusUnauthorized
		a.refusal = m.unauthenticated(source, err)
	}
}

// unverified returns the first credential that l counts by and that c should have but has not, and why; empty where there
// is none, or none that can be verified here (D16, D17).
func (m *Middleware) unverified(l *weir.Limiter, c *identity.Caller) (source string, err error) {
	for i := range l.Windows {
		for _, part := range l.Windows[i].Key {
			if source, err = m.unverifiedPart(part, c); source != "" {
				return source, err
			}
		}
	}
	return "", nil
}

// unverifiedPart judges one part of a key: one of its credentials is enough, and one that nobody here can tell good from
// bad gets the benefit of the doubt.
func (m *Middleware) unverifiedPart(part weir.Part, c *identity.Caller) (missing string, why error) {
	for _, source := range part {
		var err error
		switch source {
		case identity.Session:
			if !m.options.Identity.Verifies(source) {
				return "", nil
			}
			_, err = c.Session()
		case identity.Token:
			if !m.options.Identity.Verifies(source) {
				return "", nil
			}
			_, err = c.Token()
		default:
			continue
		}
		if err == nil {
			return "", nil
		}
		if missing == "" {
			missing, why = source, err
		}
	}
	return missing, why
}

// noteSpent tells identity of an address that has spent the budget of those without a valid credential, so that it stops
// checking signatures for it (D16). Only a window that then counts by the address alone says so: another caller behind
// the same address must not be refused for this one's agent.
func (m *Middleware) noteSpent(l *weir.Limiter, access access, c *identity.Caller, d *weir.Decision) {
	for _, s := range d.Standings() {
		if !s.Refused || !byAddressAlone(s.Window.Key, access) {
			continue
		}
		for _, part := range s.Window.Key {
			if source, err := m.unverifiedPart(part, c); source != "" && !errors.Is(err, identity.ErrUnreadable) {
				m.options.Identity.Spent(c, l.Name, time.Duration(s.Reset-d.Now)*time.Second)
				return
			}
		}
	}
}

// byAddressAlone reports whether a caller without credentials is counted by nothing but its address.
func byAddressAlone(k weir.Key, access access) bool {
	for _, part := range k {
		for _, source := range part {
			switch source {
			case identity.IP, identity.Session, identity.Token:
			case identity.Everyone:
				if access != stranger {
					return false
				}
			default:
				return false
			}
		}
	}
	return true
}

// observe tells Options.Observe. Where a limiter covers the request caller and scratch are those of the decision.
func (m *Middleware) observe(ctx context.Context, a *Answer, start time.Time, caller weir.Keys, scratch *weir.Scratch) {
	if m.options.Observe == nil {
		return
	}
	o := Observation{Outcome: a.Outcome, Status: a.Status, Latency: m.options.Now().Sub(start)}
	if a.Outcome != Unlimited {
		b := a.Decision.Binding()
		o.Limiter, o.Window, o.Decision, o.Context = b.Limiter.Name, b.Window, &a.Decision, ctx
		o.Denial, o.Who, o.Caller = a.denial, scratch.Who(&b), caller
	}
	m.options.Observe(o)
}
