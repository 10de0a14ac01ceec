// Package httplimit puts a weir.Decider in front of net/http handlers: it charges each request, says in the fields of
// every response where the caller stands, and answers what does not fit.
//
//	httplimit.go  Options, New, Wrap: what people call
//	judge.go      one request in, one Answer out, as values: nothing of net/http
//	fields.go     the fields of an Answer
//	refusal.go    401, 429, 503: their bodies
//	language.go   the 429 in the caller's language
//	response.go   the ResponseWriter that handlers get: the page of glue
//	writers.go    the same with just the optional interfaces of the server's own
//	error.go      the shape of every other error (D21)
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// Options are the settings of a Middleware. Identity is required.
type Options struct {
	// Identity finds out who is calling.
	Identity *identity.Resolver

	// IETF also writes RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), one member per window
	// (D23).
	IETF bool

	// PassAnonymous passes requests on whose credential is missing or does not verify, counted by address. By default
	// they are answered 401 where the matched limiter counts by a credential that Identity verifies (D16).
	PassAnonymous bool

	// Credentials says how to get a credential, as the end of a 401's message, by key source. A source that is missing
	// here gets a text of our own: where the contract's sessions and tokens come from.
	Credentials map[string]string

	// Denial, if set, returns an id for a refusal, which is sent with the 429 as X-Weir-Denial; empty sends none. scratch is the
	// decision's (see weir.Scratch.Who). It must keep nothing of its arguments.
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string

	// Observe, if set, is told of every decision before the request goes on. It must not block, and must not keep
	// what Observation points to.
	Observe func(Observation)

	// Judged, if set, is called once the limiters have judged a request of Wrap, Serve or Charge,
	// before anything is answered. w is the ResponseWriter that these were given. It must not
	// block, and must not keep c.
	Judged func(w http.ResponseWriter, c *identity.Caller)

	// Now is the clock of Observation.Latency; nil means time.Now. Windows are counted by the store's clock.
	Now func() time.Time
}

// An Outcome says what became of one request.
type Outcome uint8

const (
	// Unlimited: no limiter covers it.
	Unlimited Outcome = iota
	// Admitted to its handler.
	Admitted
	// Refused: 429.
	Refused
	// Unauthenticated: 401.
	Unauthenticated
	// Unavailable: 503, because the store did not answer.
	Unavailable
)

// String returns the outcome as logs and metrics spell it.
func (o Outcome) String() string {
	switch o {
	case Unlimited:
		return "unlimited"
	case Admitted:
		return "admitted"
	case Refused:
		return "refused"
	case Unauthenticated:
		return "unauthenticated"
	case Unavailable:
		return "store_unavailable"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// An Observation is what telemetry learns of one request. Who is calling is in Who and Caller, which are for those who show
// callers to an operator, as keyed hashes: never a metric's label, never a log line.
type Observation struct {
	Limiter  string         // empty: Unlimited
	Window   *weir.Window   // the binding one, read only; nil: Unlimited
	Outcome  Outcome        //
	Status   int            // what it was answered with; 0: it goes on to its handler
	Latency  time.Duration  // from the request's arrival here to the decision
	Decision *weir.Decision // nil: Unlimited
	Denial   string         // the id that the 429 carries; empty: none
	Who      []byte         // who the binding window counts (weir.Scratch.Who); nil: Unlimited
	Caller   weir.Keys      // nil: Unlimited

	// Context is the request's own, by which a tracer finds its span; nil: Unlimited.
	Context context.Context
}

// A Middleware limits handlers. It is safe for concurrent use.
type Middleware struct {
	decider  *weir.Decider
	options  Options
	refusals map[string]*refusals
	speaks   Speaker
	dates    headers.DateCache
	rulings  sync.Pool
	writers  seenWriter
	limits   numberTexts
	resets   numberTexts
}

// New returns a Middleware that decides by d. It errs where d's policy counts by a key source that o.Identity does not
// have, or names a message that is not in the catalogue (Messages). A policy that d is given later is not looked at: its
// unknown messages are answered with the general one's.
func New(d *weir.Decider, o Options) (*Middleware, error) {
	if d == nil {
		return nil, errors.New("new middleware: no decider: pass weir.New's")
	}
	if o.Identity == nil {
		return nil, errors.New("new middleware: Options.Identity is required: pass identity.New's")
	}
	if err := check(d.Policy(), o.Identity.Sources()); err != nil {
		return nil, fmt.Errorf("new middleware: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Middleware{decider: d, options: o, refusals: newRefusals(), speaks: NewSpeaker()}
	m.rulings.New = func() any { return new(ruling) }
	return m, nil
}

func check(p weir.Policy, sources []weir.Source) error {
	var errs []error
	for i := range p.Limiters {
		l := &p.Limiters[i]
		if _, ok := catalogue[l.Message]; !ok && l.Message != "" {
			errs = append(errs, fmt.Errorf("limiter %q has the message %q: %s are allowed", l.Name, l.Message, strings.Join(Messages(), ", ")))
		}
		for _, w := range l.Windows {
			for _, part := range w.Key {
				for _, source := range part {
					if _, ok := weir.FindSource(sources, source); !ok {
						errs = append(errs, fmt.Errorf("limiter %q counts by %q: the key sources here are %s", l.Name, source, weir.SourceNames(sources)))
					}
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Wrap returns a handler that limits next by the policy's routes. It fits everywhere a func(http.Handler) http.Handler
// does. What no route covers passes to next untouched, without fields of ours. A path with dot segments that any route
// covers, resolved or not, is answered 400.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		match := m.decider.Match(r.Method, r.URL.Path)
		if hasDots(r.URL.Path) {
			if covered := m.coverOfDots(r.URL.Path, match); covered.Limiter() != nil {
				m.Charge(w, r, covered, http.HandlerFunc(refuseDots))
				return
			}
		}
		m.Serve(w, r, match, next)
	})
}

// hasDots reports whether a path has a dot segment, with parameters or without.
func hasDots(path string) bool {
	if strings.IndexByte(path, '.') < 0 {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// coverOfDots returns what a path with dot segments is charged to: what covers it resolved, or else as it stands. Handlers
// differ in whether they resolve it (http.ServeMux redirects, http.StripPrefix does not), so that no other answer than 400
// counts it rightly (D10).
func (m *Middleware) coverOfDots(path string, resolved weir.Match) weir.Match {
	if resolved.Limiter() != nil {
		return resolved
	}
	before, _, _ := strings.Cut(path, "/.")
	return m.decider.Fallback(before)
}

func refuseDots(w http.ResponseWriter, _ *http.Request) {
	WriteError(w, http.StatusBadRequest, "invalid_request", "The request's path has dot segments, which can be read in more than one way. Send it without them.")
}

// Serve is Wrap's handler for a request whose limiter the caller has chosen. A Match without a limiter passes to next.
func (m *Middleware) Serve(w http.ResponseWriter, r *http.Request, match weir.Match, next http.Handler) {
	m.serve(w, r, next, match, protected)
}

// Charge is Serve for answers that need no credential, such as a preflight's or a 400: the request is counted (by
// address where it has no valid credential) and next answers it, or it is refused; it is never answered 401.
func (m *Middleware) Charge(w http.ResponseWriter, r *http.Request, match weir.Match, next http.Handler) {
	m.serve(w, r, next, match, public)
}
