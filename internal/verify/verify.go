// Package verify drives a deployment to its limits from outside, as its callers would, and reports clause by clause whether it keeps
// what its policy and the contract say. It knows nothing of how limits are counted; what goes over the wire is all it judges by.
//
//	verify.go     what is asked for, and what is found
//	clauses.go    what callers rely on
//	plan.go       what will be sent, known before anything is
//	run.go        all limiters: side by side, but for those that others disturb
//	driver.go     one limiter, from the first look to the last
//	caller.go     who sends, and what
//	look.go       a request of each kind, while there is budget
//	drain.go      the budget is used up, and what was admitted is judged
//	spent.go      attempts to get more      pretend.go  with what a client may write at will
//	restored.go   the end of the window
//	parts.go      the budget is spent in two parts, to tell a window that stands still from one that moves
//	chance.go     what got through is sent again before anything is blamed
//	refusal.go    refusals by another status than 429
//	credentials.go    whether those that were given verify
//	provoke.go    errors
//	judge.go      what one answer alone shows      count.go  what the answers of one window show
//	reasons.go    why a clause could not be tested
//	witness.go    Date, Retry-After and the verifier's own clock
//	clocks.go     when windows end by the verifier's clock, and whether Date can be believed
//	wire.go       requests, counted and never sent twice      fields.go  what answers say
//	book.go       verdicts      exchange.go  what shows them, without credentials
//
// A verdict must be beyond doubt: whatever could also be a request of somebody else's, a window that ended in the middle, a Date that a
// proxy wrote a moment later, or an answer that was lost, is looked at again or called untested, with the reason.
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
