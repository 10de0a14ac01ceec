// Package verify drives a deployment to its limits from outside, as its callers would, and reports
// clause by clause whether it keeps its policy and the contract. It judges only by what goes over
// the wire.
//
// A clause is a row of Clauses and one function, which returns hooks: what the clause observes and
// how it judges. Requests and time are limited, so clauses share traffic. A timeline runs the
// experiments on one limiter in order, and the hooks read what it sees: every answer, a preflight, a
// budget that is used up, the end of a window. A probe sends the requests.
//
//	verify.go      options and report
//	clauses.go     the table             check.go      hooks and verdicts
//	clause_*.go    the clauses' functions
//	plan.go        what will be sent, known before anything is sent
//	run.go         all limiters, side by side unless others disturb them
//	timeline.go    one limiter's experiments
//	pause.go       a budget in two parts  spending.go   a budget that is used up
//	attempt.go     attempts to get more   rollover.go   the end of a window
//	probe.go       requests and waits     callers.go    who sends them
//	history.go     what was answered      refusal.go    refusals with another status than 429
//	clocks.go      Date, Retry-After and the verifier's clock    bracket.go    times in doubt
//	caller.go      key sources, endpoints and credentials        credentials.go    whether given ones verify
//	wire.go        connections            fields.go     what an answer's fields say
//	book.go        verdicts               reasons.go    why there is none
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
)

// Options are what to verify, and with what.
type Options struct {
	URL    *url.URL    // where the API is; a path is put before each route's
	Policy weir.Policy // what the deployment is said to enforce

	Limiters []string // only these; none: all

	Agent     string   // id of the assistant, for sessions (init) and limiters by agent
	Sessions  []string // session tokens of the caller's; with none, two are asked for at init where some limiter needs them
	SessionAt string   // where init's answer holds the token, as a dotted JSON path; empty means "token"
	Tokens    []string // API tokens: one is used up, a second one shows that budgets are separate

	Real    bool          // send valid bodies, which the API stores, instead of bodies that validation refuses
	Quick   bool          // wait for no window
	Budget  int           // the most requests to send; 0 means 12,000
	MaxWait time.Duration // the longest wait for one window; 0 means 2 minutes
	Workers int           // connections at a time; 0 means 8

	Header http.Header                                                          // sent with every request, beside what a check says
	TLS    *tls.Config                                                          // nil: the system's roots
	Dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: a net.Dialer's

	Progress func(Progress) // told how it goes, one call at a time; nil: nobody
}

// A Progress is how far a verification is.
type Progress struct {
	Sent    int           // requests so far
	Planned int           // at most
	Doing   []string      // what is under way, a line for each limiter at work
	Waiting time.Duration // until the next window that is waited for; 0: none is
}

// A Verdict is what was found about one clause.
type Verdict string

// The verdicts.
const (
	Kept     Verdict = "kept"
	Broken   Verdict = "broken"
	Untested Verdict = "untested" // Result.Detail says why
)

// A Result is the verdict on one clause for one limiter.
type Result struct {
	Clause   string    `json:"clause"`  // an id of Clauses
	Limiter  string    `json:"limiter"` // empty: the clause is about no single one
	Verdict  Verdict   `json:"verdict"`
	Reason   Reason    `json:"reason,omitempty"`   // where it is Untested: which of the four reasons
	Inherent bool      `json:"inherent,omitempty"` // if Untested: it does not apply to this limiter, or takes a fault of the server, so nothing is missing
	Detail   string    `json:"detail"`             // what was seen, in words and numbers; why it could not be tested
	Exchange *Exchange `json:"exchange,omitempty"` // that shows it broken
}

// An Exchange is a request and its answer as they went over the wire, credentials left out.
type Exchange struct {
	Request  string `json:"request"`
	Response string `json:"response"`
	At       string `json:"at"` // when the answer came, by the verifier's clock, RFC 3339 with milliseconds
}

// A Report is what was found.
type Report struct {
	URL     string    `json:"url"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Planned int       `json:"planned"` // requests at most
	Sent    int       `json:"sent"`
	Notes   []string  `json:"notes,omitempty"` // what is no clause's: a clock that is off, a credential that could not be tried
	Results []Result  `json:"results"`         // in the order of Clauses, then of the policy's limiters
}

// Broken reports whether any clause is.
func (r *Report) Broken() bool {
	for _, x := range r.Results {
		if x.Verdict == Broken {
			return true
		}
	}
	return false
}
