// Package httplimit limits net/http handlers. It is the glue between net/http and package answer: a
// [Middleware] charges each request to a policy, adds the rate-limit fields to every response, and
// answers the requests that do not fit.
//
//	limit.go      Limit: one line for the common case
//	httplimit.go  Options, New, Wrap
//	spelling.go   which limiter covers a path, however it is spelled
//	response.go   the ResponseWriter that handlers get
//	settle.go     what the response tells of the request's cost, and its end
//	nested.go     which fields a response has if one limiter is inside another
//	writers.go    its variants, each with the optional interfaces of the server's writer
//	error.go      the format of all errors (D21)
package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// Options are the settings of a Middleware. Identity is required. Judged and Ended belong to
// net/http; the other fields are those of answer.Options.
type Options struct {
	// Identity resolves who sends a request.
	Identity *identity.Resolver

	// IETF also writes RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10),
	// with one member for each window. A Middleware inside or around this one does so, too, for the
	// requests of this one: the fields describe the one of the two that Wrap names.
	IETF bool

	// Credentials are the last sentences of a 401's message, by key source. They explain how to get
	// such a credential. A source that is missing here gets the text for the contract's sessions
	// and tokens.
	Credentials map[string]string

	// Denial, if set, returns an id for a refusal or a denial, which the 429 or 403 carries as
	// X-Weir-Denial. An empty id is not sent. scratch is the one of the decision (see
	// weir.Scratch.Who). Denial must not block, and must not keep its arguments.
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string

	// Observe, if set, is called for every decision, before the request goes on. It must not block,
	// and must not keep what the Observation points to.
	Observe func(answer.Observation)

	// Spent, if set, is called when it is known what an admitted request has cost
	// (answer.Options.Spent). It must not block, and must not keep what the Spending points to.
	Spent func(answer.Spending)

	// Judged, if set, is called after the decision on a request that Wrap, Serve or Charge limits,
	// and before anything is written. w is the ResponseWriter that they were given. Judged must not
	// block, and must not keep c and a.
	Judged func(w http.ResponseWriter, c *identity.Caller, a *answer.Answer)

	// Ended, if set, is called when the handler of an admitted request has returned, if its
	// response could change what the request has cost: with the units that were charged before,
	// and those that it has cost, -1 if the response has not told that, so that what was charged
	// stays. w is as for Judged. Ended must not block.
	Ended func(w http.ResponseWriter, reserved, used int64)

	// Now is the clock for Observation.Latency; nil means time.Now. Windows are counted by the
	// store's clock.
	Now func() time.Time
}

// Door is the Observation.Door of requests that a Middleware limits.
const Door = "http"

// A Middleware limits handlers. It is safe for concurrent use.
type Middleware struct {
	judge     *answer.Judge
	decider   *weir.Decider
	identity  *identity.Resolver
	judged    func(http.ResponseWriter, *identity.Caller, *answer.Answer)
	ended     func(w http.ResponseWriter, reserved, used int64)
	ietf      bool
	exchanges sync.Pool
	writers   seenWriter
}

// New returns a Middleware that decides with d. It returns an error if the policy of d counts by a
// key source that o.Identity does not have, or names a message that does not exist (see
// answer.Messages). It does not check policies that d is given later; an unknown message in one
// gets the general text.
func New(d *weir.Decider, o Options) (*Middleware, error) {
	if d != nil && o.Identity == nil {
		return nil, errors.New("new middleware: Options.Identity is required: pass identity.New's")
	}
	j, err := answer.New(d, answer.Options{
		Door: Door, Identity: o.Identity, IETF: o.IETF, Credentials: o.Credentials,
		Denial: o.Denial, Observe: o.Observe, Spent: o.Spent, Now: o.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("new middleware: %w", err)
	}
	m := &Middleware{judge: j, decider: d, identity: o.Identity, judged: o.Judged, ended: o.Ended, ietf: o.IETF}
	m.exchanges.New = func() any { return &exchange{judge: j} }
	return m, nil
}

// Judge returns what decides for m, for another HTTP engine that limits by the same settings.
func (m *Middleware) Judge() *answer.Judge { return m.judge }

// Wrap returns a handler that limits next by the policy's routes. It has the signature that routers
// expect of middleware. A request that no route covers passes to next unchanged, without fields of
// ours. A path that can be read as one of another limiter is answered 400, and counted: with dot
// segments, a segment of ";parameters" alone or a backslash, or where an escaped slash or another
// decoding leads elsewhere.
//
// If next is limited by another Middleware, a response has the fields of one of the two: of that
// which refused, and else of that with less left, as for several windows of one policy. They find
// each other if each ResponseWriter between them has Unwrap; otherwise the fields are those of the
// outer one.
//
// A request holds its slot (weir.Limiter.InFlight) until next returns. If next hijacks the
// connection, it must close the net.Conn that Hijack returned, in any event: that gives the slot
// back. The slot of a connection that is not closed comes back when a read or a write of it fails,
// or when the garbage collector finds that next has dropped it, unless next has called its NetConn.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		match, ambiguous := m.coverOf(r)
		if ambiguous {
			m.Charge(w, r, match, http.HandlerFunc(m.refuseAmbiguous))
			return
		}
		m.Serve(w, r, match, next)
	})
}

// Serve limits one request like the handler of Wrap, by a limiter that the caller has chosen. If
// match has no limiter, the request passes to next.
func (m *Middleware) Serve(w http.ResponseWriter, r *http.Request, match weir.Match, next http.Handler) {
	m.serve(w, r, next, m.begin(r, match))
}

// Charge is Serve for a response that needs no credential, such as a preflight's or a 400. The
// request is counted, by address if it has no valid credential, and next answers it unless it is
// refused. It is never answered 401, and costs what was reserved for it.
func (m *Middleware) Charge(w http.ResponseWriter, r *http.Request, match weir.Match, next http.Handler) {
	e := m.begin(r, match)
	e.question.Public = true
	m.serve(w, r, next, e)
}

// Misdirect is Charge for a response with the status 421 (RFC 9110, section 15.5.20): if no limiter
// covers the request, it is observed as answer.Misdirected.
func (m *Middleware) Misdirect(w http.ResponseWriter, r *http.Request, match weir.Match, next http.Handler) {
	e := m.begin(r, match)
	e.question.Public, e.question.Misdirected = true, true
	m.serve(w, r, next, e)
}
