// Package pacer keeps the caller's side of the contract (section 8, pacing rules): its Transport
// sends a request only while there is budget for it, so that callers are not refused and need no
// retries of their own.
//
//	client := http.Client{Transport: pacer.New(nil)}
//
// No configuration is needed. The Transport learns budgets from the fields of responses. It keeps
// them by limiter and credential, for all clients and goroutines. A call passes these steps:
//
//	request → line       line.go      the windows that it is charged to; calls wait in order
//	                     routes.go, caller.go   limiter, credential
//	line → window        budget.go    may it start: pure arithmetic
//	                     clock.go     when is Reset on the local clock
//	window → server      transport.go send; a 429 waits Retry-After and is sent again
//	                     replay.go    with its body
//	response → window    answer.go    what the fields state
//	                     family.go    whose budget they describe
//
// Leave http.Client.Timeout 0: it includes the time that a call waits for its budget, and a
// Transport cannot extend it. If a call's deadline is sooner than its budget, the call is not sent,
// and its error, a *WaitError, returns at once and says when to try again. Options.AttemptTimeout
// bounds each attempt without the waits, and a context bounds a whole call.
//
// The fields may be the contract's, those of the IETF's drafts, or those that other servers send
// (headers.Read).
//
// Several processes of one machine can share one view through a file (Shared, file.go). If a
// machine has several addresses, requests that are counted by address leave from the one with the
// most budget (egress.go).
//
// A response without fields, or with impossible values, never makes a call wait: without knowledge
// there is no pacing, only the reaction to a 429.
package pacer

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
)

// Options are a Transport's settings. The zero value paces callers of the contract's API.
type Options struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Routes define which requests share a budget: those of one limiter, host and credential. Nil
	// means the contract's. The limits and lengths of windows may differ from the server's, because
	// responses override them. They matter for a limiter with several windows: they show which
	// window a response describes; if they differ from the server's, that is guessed. Requests that
	// no route covers share one budget for each host and credential, as soon as a response has the
	// fields. If responses show that some of their paths have another limiter, those paths get a
	// budget of their own.
	Routes *weir.Routes

	// Source returns the value that the server will find in a request for a key source of Routes,
	// such as "token"; ok is false if it will find none. Nil means the function Source. It is not
	// called for "ip", nor for a parameter of a route such as "path:tenant". It is called
	// concurrently, for each request.
	Source func(r *http.Request, source string) (value string, ok bool)

	// Credentials are the request fields that determine whose budget a request spends: requests
	// with different values of any of them share no budget. They apply to requests that no route
	// covers; for the others Routes and Source decide. Nil means Authorization and X-Api-Key. Only
	// hashes of the values leave this process.
	Credentials []string

	// Threshold returns, for a window's limit, the number of units below which callers wait (D26):
	// a call starts while the units left, minus those in flight, are at least that many. Nil means
	// Threshold; Keep(0) uses everything. It is called while a budget is locked, and must not call
	// the Transport.
	Threshold func(limit int64) int64

	// MaxWait bounds the time that a call waits before it is sent, and again before each retry. A
	// wait that is certain to be longer is a *WaitError at once; otherwise the *WaitError comes
	// when the time has passed. 0 means 10 minutes; NoWait never waits.
	MaxWait time.Duration

	// AttemptTimeout bounds each attempt, from sending a request until its response's body is read.
	// Unlike http.Client.Timeout it excludes the time that a call waits for its budget. A call that
	// took longer is not sent again; its error matches context.DeadlineExceeded. 0 means no bound.
	AttemptTimeout time.Duration

	// Retries bounds how often a call is sent again after a 429; then the 429 is returned. 0 means
	// 10, a negative value none.
	Retries int

	// MaxBody bounds the bytes of a request's body that are kept for a retry of a request without
	// GetBody. If the body is longer, a 429 is returned. 0 means 1 MiB; a negative value keeps
	// none.
	MaxBody int64

	// Jitter bounds a random delay that is added to each wait for a budget, unless the deadline is
	// sooner. 0 means 100 ms, a negative value none.
	Jitter time.Duration

	// Egress are the local addresses that requests may leave from. If a limiter counts by address,
	// they leave from the one with the most budget; all others leave from the first. If empty, the
	// system chooses.
	Egress []netip.Addr

	// EgressTransport returns the transport that sends from a local address; New calls it once for
	// each of Egress. Nil means a clone of Base that dials from the address. Then Base must be nil
	// or an *http.Transport; its DialContext is replaced, and New panics if it has a
	// DialTLSContext.
	EgressTransport func(netip.Addr) http.RoundTripper

	// Shared is the view that several processes share; nil means that this process has its own.
	Shared Shared

	// OnWait is optional. It is called before a call begins to wait, in its goroutine, and again if
	// it then waits for another reason. It may query the Transport, but must not send through it:
	// other calls wait behind this one.
	OnWait func(Wait)

	// OnRefused is optional. It is called for each 429, in its call's goroutine.
	OnRefused func(Refusal)

	// OnSharedFailure is optional. It is called when Shared fails. Until Shared works again, a
	// second later or more, this process uses only its own observations. The function must not
	// block.
	OnSharedFailure func(error)

	// Now is the local clock; nil means time.Now. The clock of a server that sends no Date is
	// assumed to agree with it.
	Now func() time.Time
}

// NoWait as MaxWait never waits: a call that cannot start is a *WaitError with the time to try
// again.
const NoWait time.Duration = -1

// Threshold is the default threshold: 5, or a tenth of the limit rounded up if that is less (D26).
func Threshold(limit int64) int64 { return min(5, (limit+9)/10) }

// Keep returns an Options.Threshold that leaves n units to others, for all limits. Keep(0) uses
// everything.
func Keep(n int64) func(limit int64) int64 {
	return func(int64) int64 { return max(n, 0) }
}

// A Reason is why a call waits.
type Reason string

const (
	BudgetSpent Reason = "budget spent" // only the threshold is left of the window, until its Reset
	Refused     Reason = "refused"      // a 429 asked to wait
	// the first call of a window is in flight; its response will show what is left
	Probing Reason = "asking for the budget"
	// as many calls are in flight as the limiter allows, and one has to end first
	SlotsTaken Reason = "too many calls in flight"
)

// A Wait describes a wait before it begins.
type Wait struct {
	Host    string
	Limiter string // empty for a request that no route covers
	Reason  Reason
	For     time.Duration // the expected duration
	Until   time.Time     // its end, on the local clock
}

// A Refusal is a 429 that was received.
type Refusal struct {
	Host       string
	Limiter    string        // empty for a request that no route covers
	Attempt    int           // how often the request has been sent: 1 at the first refusal
	RetryAfter time.Duration // how long the server asked to wait; 0 if it did not
	// whether the request will be sent again; if not, the call returns the 429 or a *WaitError
	Again bool
}

// A WaitError means that a call was not sent, or not sent again after a 429, because it would wait
// longer than its context's deadline or Options.MaxWait allows. It matches context.DeadlineExceeded
// if the deadline was the reason.
type WaitError struct {
	Host    string
	Limiter string // empty for a request that no route covers
	Reason  Reason
	Wait    time.Duration // from the creation of the error, as far as is known
	Until   time.Time     // when to try again, on the local clock
	// the request's, from its context or http.Client.Timeout; zero if it has none
	Deadline time.Time
	bound    error // context.DeadlineExceeded or errLonger
}

// A Budget is the state of a limiter's binding window, as far as this process knows.
type Budget struct {
	Host    string
	Limiter string // empty for a request that no route covers
	// what it is counted by, as "token 4f2k7q9x"; secrets are shown as a short hash
	Key string
	// the local address that it belongs to; the zero Addr for any address
	Egress netip.Addr
	// whether Limit, Remaining and Reset are known, and Reset has not passed
	Known     bool
	Per       time.Duration // length of the window, as far as was seen; 0: not known
	Limit     int64
	Remaining int64 // units left, according to the last response
	// units of requests without an answer so far, of all processes that share the view
	InFlight int64
	Waiting  int           // waiting calls of this process
	Reset    time.Time     // when the budget is restored, on the local clock
	Wait     time.Duration // how long a new call would wait; 0: it could start
}
