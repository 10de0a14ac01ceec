// Package verify drives a deployment to its limits from outside, as its callers would, and reports
// clause by clause whether it keeps its policy and the contract. It judges only by what goes over
// the wire.
//
// A clause is a row of Clauses and one function, which returns hooks: what the clause observes and
// how it judges. Requests and time are limited, so clauses share traffic. A timeline runs the
// experiments on one limiter in order, and the hooks read what it sees: every answer, a preflight,
// a budget that is used up, the end of a window. A probe sends the requests.
//
//	clauses.go     the table              check.go       hooks and verdicts
//	clause_*.go    the clauses' functions
//	verify.go      options and report     plan.go        what will be sent
//	run.go         all limiters           timeline.go    one limiter's experiments
//	spending.go    a budget is used up    pause.go       in two parts
//	attempt.go     attempts to get more   rollover.go    the end of a window
//	probe.go       requests and waits     wire.go        connections
//	callers.go     who sends              caller.go      endpoints and credentials
//	sources.go     key sources            credentials.go whether given ones verify
//	values.go      values of key sources  places.go      where a request has its credential
//	claims.go      claims of sessions     penalized.go   the experiments on a penalty
//	history.go     what was answered      fields.go      what one answer's fields are
//	clocks.go      which clock is right   bracket.go     times in doubt
//	refusal.go     refusals other than 429
//	book.go        verdicts               reasons.go     why there is none
//	settling.go    costs known afterwards held.go        requests held under way
//	exchange.go    evidence without credentials
//
// A verdict must be beyond doubt. Another caller's request, a window that ended meanwhile, a Date
// that a proxy wrote a moment later or a lost answer may explain what was seen; then it is checked
// again, or reported as untested with the reason.
package verify

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// Options are what to verify and how.
type Options struct {
	URL    *url.URL    // of the API; its path is a prefix of each route's
	Policy weir.Policy // what the deployment should enforce

	Limiters []string // only these; nil: all

	Agent     string   // id of the assistant, for sessions (init) and limiters by agent
	Sessions  []string // session tokens; nil: two are created at init if a limiter needs them
	SessionAt string   // dotted JSON path of the token in init's answer; "": "token"
	Tokens    []string // API tokens; a second one shows that budgets are separate
	// Where requests have their API token: the first is used, and the others must be as good. nil:
	// Authorization: Bearer.
	TokenPlaces []identity.Place

	Real    bool          // send valid bodies, which the API stores, instead of invalid ones
	Quick   bool          // wait for the end of no window
	Budget  int           // the maximum number of requests; 0: 12,000
	MaxWait time.Duration // the longest wait for one window; 0: 2 minutes
	Workers int           // concurrent connections; 0: 8

	Header http.Header // sent with every request, unless a check sets the same field
	TLS    *tls.Config // nil: the system's roots
	// Dial opens connections; nil: a net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Progress func(Progress) // called every now and then, one call at a time; nil: not called
}

// A Progress is how far a verification has come.
type Progress struct {
	Sent    int           // requests so far
	Planned int           // at most
	Doing   []string      // what is under way, one line for each limiter
	Waiting time.Duration // until the next window that is waited for; 0: none
}

// A Verdict is the outcome for one clause.
type Verdict string

// The verdicts.
const (
	Kept     Verdict = "kept"
	Broken   Verdict = "broken"
	Untested Verdict = "untested" // Result.Detail is the reason
)

// A Result is the verdict on one clause for one limiter.
type Result struct {
	Clause  string  `json:"clause"`  // an id of Clauses
	Limiter string  `json:"limiter"` // "": no single limiter
	Verdict Verdict `json:"verdict"`
	Reason  Reason  `json:"reason,omitempty"` // for Untested: which of the four reasons
	// If Untested: it does not apply to this limiter, or needs a server error.
	Inherent bool      `json:"inherent,omitempty"`
	Detail   string    `json:"detail"`             // what was seen, or why it could not be tested
	Exchange *Exchange `json:"exchange,omitempty"` // shows that it is broken
}

// An Exchange is a request and its answer as sent, without credentials.
type Exchange struct {
	Request  string `json:"request"`
	Response string `json:"response"`
	// When the answer came, by the verifier's clock, RFC 3339 with milliseconds.
	At string `json:"at"`
}

// A Report is the result of a verification.
type Report struct {
	URL     string    `json:"url"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Planned int       `json:"planned"` // requests at most
	Sent    int       `json:"sent"`
	// What belongs to no clause: a wrong clock, a credential that could not be tried.
	Notes []string `json:"notes,omitempty"`
	// In the order of Clauses, then of the policy's limiters.
	Results []Result `json:"results"`
}

// Broken reports whether a clause is broken.
func (r *Report) Broken() bool {
	for _, x := range r.Results {
		if x.Verdict == Broken {
			return true
		}
	}
	return false
}
