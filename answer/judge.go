package answer

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Question is one request, as its door describes it. Caller or Keys is required.
type Question struct {
	// Caller is the sender of an HTTP request, after identity.Resolver.Start. It must not be used
	// by two questions at a time.
	Caller *identity.Caller
	// Keys are the key sources of the sender, for a door that has no HTTP request; used if Caller
	// is nil. Such a request is never answered 401.
	Keys weir.Keys

	Method string // case-sensitive, as received
	Host   string // the value of its Host field, as received; empty: none
	Path   string // decoded, without the query

	// Match is the limiter for the request, if the door has chosen it. The zero value means that
	// Method, Host and Path choose, or if Chosen is set, that no limiter covers the request.
	Match  weir.Match
	Chosen bool
	// Limiters name the limiters outright, in place of Match, Method and Path. The request is
	// charged to all of them or to none. They need Keys.
	Limiters []string

	// Cost is weir.Request.Cost. 0 means the limiter's own, or what the request reports of it
	// (weir.Limiter.Reserve). With a Caller, the body of the request may be read for that, unless
	// the request is refused whatever it costs. weir.Peek spends nothing.
	Cost int64
	// Reporter has what the request reports of its cost; used if Caller is nil. Each limiter, also
	// one that is only tried out, reserves by its own Reserve. If nil, the request reports nothing.
	Reporter weir.Reporter

	// the door itself answers the request: it needs no credential, so it is never answered 401, and
	// its cost is what was reserved
	Public bool
	// Misdirected means that the door answers 421, for the outcome of this name. Public is set too.
	Misdirected bool

	// Languages are the lines of an Accept-Language field; used if Caller is nil.
	Languages []string
	// Accept are the lines of an Accept field, likewise. They choose the form of an error.
	Accept []string

	// Arrival is when the request arrived, for Observation.Latency; zero means now.
	Arrival time.Time
}

// An Answer is the result for one Question. What a door does with it depends on Status:
//
//   - If Status is not 0, the request ends here: the door sends Status, Fields, and Body (except to
//     a HEAD).
//   - If Status is 0 the request goes on to its handler. The door drops every field of the handler's
//     response that Owns reports, and adds Fields. If the handler's own status is 429, the door calls
//     BackendRefused first.
//   - If Outcome is Unlimited, no limiter covers the request, and the answer has no fields.
//   - If Outcome is Denied, the answer has no fields of Names: no window was read.
//
// A door that does not speak HTTP reads Outcome and Decision instead. The zero Answer is ready for
// use, and it can be used again for the next question. It is several KiB large and must not be
// copied.
type Answer struct {
	Decision weir.Decision
	Outcome  Outcome
	// Status is 401, 403, 429 or 503, or what the policy declares instead (weir.Answers), or 200 or
	// 405 of a limiter that answers usage. 0: the request goes on to its handler.
	Status int

	unset      *Judge             // sets the fields when they are asked for; nil: they are set
	values     [fieldCount]string // of Names; empty: no limiter covers the request
	retryAfter string             // empty: not sent
	denial     string             // empty: not sent
	denies     bool               // Options.Denial is set
	soon       bool               // a 429 to a credential that will be verified in a second
	ietf       [2]string          // RateLimit and RateLimit-Policy; empty: Options.IETF is not set
	refusal    *refusal           // nil: the request goes on to its handler
	challenge  string             // WWW-Authenticate of a 401; empty: not sent

	// the text of the response, until refusal has it
	prepared *prepared
	form     *form
	variant  *variant
	reason   string // of weir.PlaceReason
	scratch  weir.Scratch

	observed weir.Standing // the binding one, as it was observed; set while spending is
	spending bool          // Options.Spent is to be called

	reporter reporter // what the request reports
	response response // what the response has reported
}

// Denial returns the id that the answer carries as X-Weir-Denial; empty: none.
func (a *Answer) Denial() string { return a.denial }

// Who returns the bytes by which the binding window counts the sender (weir.Scratch.Who); nil if no
// window was read. They are valid until the next use of the Answer, and must not be shown.
func (a *Answer) Who() []byte {
	all := a.Decision.Standings()
	if len(all) == 0 || a.Outcome == Unlimited {
		return nil
	}
	return a.scratch.Who(&all[0])
}

// Body returns the body of an answer whose Status is not 0, as JSON. It is shared between answers
// and read only. It is nil if Status is 0.
func (a *Answer) Body() []byte {
	if a.refusal == nil {
		return nil
	}
	return a.refusal.body
}

func (a *Answer) reset() {
	a.Outcome, a.Status, a.unset = Unlimited, 0, nil
	a.values[fieldLimit], a.soon, a.spending = "", false, false
	a.response.reset()
	a.retryAfter, a.denial, a.ietf[0], a.refusal, a.challenge = "", "", "", nil, ""
}

// The statuses of answers, as net/http names them.
const (
	statusOK                 = 200
	statusPartialContent     = 206
	statusUnauthorized       = 401
	statusMethodNotAllowed   = 405
	statusForbidden          = 403
	statusTooManyRequests    = 429
	statusServiceUnavailable = 503
)

// Answer decides one request and writes a, which it overwrites. It returns an error only if the
// question is wrong: a cost outside the limiter's range, Limiters that the policy does not have, or
// a missing field. Then a holds no answer. ctx carries values to the store; its cancellation is
// ignored.
func (j *Judge) Answer(ctx context.Context, q *Question, a *Answer) error {
	if a.Settles() { // the door has not reported the end of its last request
		j.End(ctx, a)
	}
	a.reset()
	a.denies = j.options.Denial != nil
	r := weir.Request{Cost: q.Cost, Match: q.Match, Limiters: q.Limiters, Scratch: &a.scratch}
	if len(q.Limiters) == 0 {
		if !q.Chosen && r.Match.Limiter() == nil && !r.Match.HasTrials() {
			r.Match = j.decider.Match(q.Method, q.Host, q.Path)
		}
		if r.Match.Limiter() == nil && !r.Match.HasTrials() {
			a.Decision = weir.Decision{Allowed: true, Outcome: weir.Unlimited}
			j.observeUnlimited(ctx, q)
			return nil
		}
	}
	if q.Caller == nil {
		r.Reporter = q.Reporter
	} else if reservesFrom(r.Match).Form != 0 || r.Match.HasTrials() {
		a.reporter = reporter{judge: j, caller: q.Caller}
		r.Reporter = &a.reporter
		defer a.reporter.forget()
	}
	start := q.Arrival
	if j.options.Observe != nil && start.IsZero() {
		start = j.options.Now()
	}
	access, err := j.charge(ctx, q, &r, a)
	if err != nil {
		return err
	}
	if a.Decision.Outcome == weir.Unlimited { // a limiter in Shadow mode, or a candidate policy
		j.observeUnlimited(ctx, q)
		return nil
	}
	if a.Decision.Outcome == weir.Denied {
		w := j.preparedFor(a.Decision.Responses())
		a.refuse(Denied, w, &w.denied, &w.forbidden)
		if a.denies {
			a.denial = j.options.Denial(&a.Decision, r.Keys, &a.scratch)
		}
		j.say(q, a)
		j.observe(ctx, a, start, r.Keys)
		return nil
	}
	j.conclude(q, access, a)
	if a.Outcome == Admitted && a.Decision.Standings()[0].Limiter.Answers == weir.AnswerUsage && q.Caller != nil && !q.Public {
		j.answerUsage(ctx, q, a)
	}
	counted := a.scratch.Caller(r.Keys)
	if a.denies && a.Outcome == Refused {
		a.denial = j.options.Denial(&a.Decision, counted, &a.scratch)
	}
	if a.Status != 0 || q.Public { // no handler reports the cost
		j.decider.KeepReserved(&a.scratch)
	}
	if a.Status != 0 && a.Settles() {
		j.settleOwn(ctx, a)
	}
	if a.Status == 0 && a.scratch.Awaits()&headSettles != 0 {
		a.unset = j // Head sets them, once they are settled
	} else {
		j.setFields(a)
	}
	if a.Status != 0 && a.refusal == nil {
		j.say(q, a)
	}
	j.observe(ctx, a, start, counted)
	return nil
}

// charge makes the decision, and returns the access that the sender has.
func (j *Judge) charge(ctx context.Context, q *Question, r *weir.Request, a *Answer) (access, error) {
	c := q.Caller
	if c == nil {
		if q.Keys == nil {
			return public, errors.New("answer: the question has neither a Caller nor Keys")
		}
		r.Keys = q.Keys
		return public, j.decider.DecideInto(ctx, r, &a.Decision)
	}
	r.Keys = c
	if q.Public {
		r.Keys = publicKeys{c}
	}
	l := r.Match.Limiter()
	switch {
	case j.options.Identity == nil:
		return public, errors.New("answer: the question has a Caller, which needs Options.Identity")
	case len(q.Limiters) > 0:
		return public, errors.New("answer: the question names Limiters, which need Keys in place of a Caller")
	case l == nil:
		return public, j.decider.DecideInto(ctx, r, &a.Decision)
	}
	access := protected
	if q.Public {
		access = public
	}
	c.Limiter(l.Name)
	err := j.decider.DecideInto(ctx, r, &a.Decision)
	if r.Scratch.CountedApart() {
		access = anonymous
	}
	if a.Decision.Allowed {
		c.Resolve() // for the limiter's Requires and for the handler
	}
	return access, err
}

// conclude sets the outcome and the status.
func (j *Judge) conclude(q *Question, access access, a *Answer) {
	d := &a.Decision
	l := d.Standings()[0].Limiter
	switch {
	case d.Outcome == weir.StoreUnavailable:
		w := j.preparedFor(d.Responses())
		a.refuse(Unavailable, w, &w.unavailable, w.notCounted(q))
		j.recordSpent(l, q.Caller, d)
	case !d.Allowed:
		w := j.preparedFor(d.Responses())
		a.refuse(Refused, w, &w.refused, w.refusal(&d.Standings()[0], q))
		j.recordSpent(l, q.Caller, d)
		if q.Caller != nil {
			a.soon = q.Caller.Unchecked() && dependsOnCredential(d, access, q.Caller)
		}
	default:
		a.Outcome = Admitted
		if access != public {
			j.requireCredential(l, q, a)
		}
	}
}

func (a *Answer) refuse(o Outcome, w *prepared, f *form, v *variant) {
	a.Outcome, a.Status, a.prepared, a.form, a.variant = o, f.status, w, f, v
}
