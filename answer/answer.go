// Package answer decides requests for any kind of front door. A door describes a request in a
// [Question]. A [Judge] charges it to the policy of a [weir.Decider] and fills an [Answer]: the
// outcome, an HTTP status, header fields, and a body in the caller's language. These are plain
// values, so the door can be net/http middleware (package httplimit), another HTTP engine, a
// forward-auth endpoint or a gRPC service. This package does not import net/http.
//
//	answer.go       Options and New
//	judge.go        Question, Answer, and the steps from one to the other
//	credentials.go  which callers need a credential (401)
//	fields.go       the header fields of an Answer
//	refusal.go      the responses to requests that end here, and their fields
//	prepared.go     the responses of a policy, prepared
//	problem.go      problem documents, and the form of other errors
//	usage.go        the answer of a limiter that answers usage
//	messages.go     the texts of the 429, in 13 languages
//	language.go     Accept-Language
//	reserve.go      what the request tells of its own cost
//	settle.go       what the response tells of the request's cost, and its end
//	observe.go      Outcome, and the Observation of each request
package answer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/text/language"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/identity"
)

// Options are the settings of a Judge. The zero value serves a door whose questions have Keys.
type Options struct {
	// Door names the door in observations, such as "http".
	Door string

	// Identity is the resolver that the door starts callers with. It is required if questions have
	// a Caller.
	Identity *identity.Resolver

	// IETF adds RateLimit and RateLimit-Policy to the fields
	// (draft-ietf-httpapi-ratelimit-headers-10), with one member for each window (D23).
	IETF bool

	// Credentials are the last sentences of a 401's message, by key source. They explain how to get
	// such a credential. A source that is missing here gets the contract's text on the contract's
	// routes, and elsewhere how to send it. A policy's own messages replace the whole text.
	Credentials map[string]string

	// Denial, if set, returns an id for a refusal or a denial, which the 429 or 403 carries as
	// X-Weir-Denial. An empty id is not sent. scratch is the one of the decision (see
	// weir.Scratch.Who). Denial must not block, and must not keep its arguments.
	Denial func(d *weir.Decision, caller weir.Keys, scratch *weir.Scratch) string

	// Observe, if set, is called for every decision, before the request goes on. It must not block,
	// and must not keep what the Observation points to.
	Observe func(Observation)

	// Now is the clock for Observation.Latency; nil means time.Now. Windows are counted by the
	// store's clock.
	Now func() time.Time
}

// A Judge answers questions. It is safe for concurrent use.
type Judge struct {
	decider   *weir.Decider
	options   Options
	elapsed   func(start time.Time) time.Duration // by Options.Now
	prepared  atomic.Pointer[prepared]            // of the policy that was last needed
	preparing sync.Mutex                          // held while prepared is replaced
	dates     headers.DateCache
	reading   reading
	limits    numberTexts
	resets    numberTexts
}

// New returns a Judge that decides with d. It returns an error if the policy of d names a message
// that does not exist (see Messages), or counts by a key source that o.Identity does not have. It
// does not check policies that d is given later; an unknown message in one gets the general text.
func New(d *weir.Decider, o Options) (*Judge, error) {
	if d == nil {
		return nil, errors.New("no decider: pass weir.New's")
	}
	var sources []weir.Source
	if o.Identity != nil {
		sources = o.Identity.Sources()
	}
	if err := check(d.Policy(), sources); err != nil {
		return nil, err
	}
	j := &Judge{decider: d, options: o}
	if o.Now == nil {
		j.options.Now, j.elapsed = time.Now, time.Since // which reads one clock, and time.Now two
	} else {
		j.elapsed = func(start time.Time) time.Duration { return o.Now().Sub(start) }
	}
	j.preparedFor(d.Responses())
	return j, nil
}

// check returns every problem that p has here. sources are the key sources of callers; nil allows
// any.
func check(p weir.Policy, sources []weir.Source) error {
	var errs []error
	errs = append(errs, checkResponses(&p.Responses)...)
	for i := range p.Limiters {
		l := &p.Limiters[i]
		errs = append(errs, checkMessage(&p.Responses, fmt.Sprintf("limiter %q has", l.Name), l.Message)...)
		if sources != nil {
			errs = append(errs, checkSources(l, sources)...)
		}
	}
	return errors.Join(errs...)
}

// checkResponses returns the messages that answers name and that do not exist, and the languages
// that are not registered.
func checkResponses(w *weir.Responses) (errs []error) {
	a := &w.Answers
	for _, name := range []string{a.Refused.Message, a.Unauthenticated.Message, a.Unavailable.Message} {
		errs = append(errs, checkMessage(w, "an answer has", name)...)
	}
	for _, source := range slices.Sorted(maps.Keys(a.Unauthenticated.Credentials)) {
		errs = append(errs, checkMessage(w, "the answer for the lack of a "+source+" has", a.Unauthenticated.Credentials[source])...)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Messages)) {
		for _, tag := range slices.Sorted(maps.Keys(w.Messages[name])) {
			if _, err := language.Parse(tag); err != nil {
				errs = append(errs, fmt.Errorf("message %q has the language %q: %w", name, tag, err))
			}
		}
	}
	return errs
}

func checkMessage(w *weir.Responses, who, name string) []error {
	if _, ok := Text(w, name); ok || name == "" {
		return nil
	}
	allowed := slices.AppendSeq(Messages(), maps.Keys(w.Messages))
	slices.Sort(allowed)
	return []error{fmt.Errorf("%s the message %q: %s are allowed", who, name, strings.Join(slices.Compact(allowed), ", "))}
}

func checkSources(l *weir.Limiter, sources []weir.Source) (errs []error) {
	for _, w := range l.Rows() {
		for _, part := range w.Key {
			for _, source := range part {
				if _, ok := weir.FindSource(sources, source); !ok {
					errs = append(errs, fmt.Errorf("limiter %q counts by %q: the key sources here are %s", l.Name, source, weir.SourceNames(sources)))
				}
			}
		}
	}
	return errs
}
