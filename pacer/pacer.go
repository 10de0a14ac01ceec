// Package pacer keeps the caller's side of the contract (section 8, pacing rules): its Transport
// sends a request only while there is budget for it, so that callers are not refused, and need no
// retries of their own.
//
//	client := http.Client{Transport: pacer.New(nil)}
//
// That is all it takes. Budgets are learned from the fields of responses, and kept per limiter and
// credential, whichever client or goroutine a request comes from. A call goes down these steps:
//
//	request → line       line.go      which windows it is charged to (routes.go, caller.go): who waits with whom, in order
//	line → window        budget.go    may it start: one pure file, no clock, no I/O; clock.go: when is Reset on this clock
//	window → server      transport.go send; a 429 waits Retry-After and is sent again, its body too (replay.go)
//	response → window    budget.go    what the fields say about it (answer.go reads them, family.go finds whose budget it is)
//
// Leave http.Client.Timeout 0: it covers the time that a call waits for its budget, and nothing
// here can extend it. A call whose deadline is sooner than its budget is not sent, and its error, a
// *WaitError, says at once when to come back. Options.AttemptTimeout bounds each attempt without
// the waits, and a context bounds a whole call.
//
// The fields may be the contract's, those of the IETF's drafts, or those that other servers send
// (headers.Read).
//
// Several processes of one machine share one view through a file (Shared, file.go). Where a machine
// has several addresses, requests that are counted by address leave from the one with the most
// budget (egress.go).
//
// A response without the fields, or with fields that cannot be true, is never waited for: without
// knowledge there is no pacing, only the answer to a 429.
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

	// Routes say which requests share a budget: those of one limiter, host and credential. nil
	// means the contract's. Limits and lengths of windows need not be the server's: what responses
	// say counts. But of a limiter with several windows it is by these that a response is known to
	// describe one or the other; where they differ, it is guessed. Requests that no route covers
	// share one budget for each host and credential, from the first response on that has the
	// fields, until responses show that some of their paths have another limiter; those paths have
	// a budget of their own then.
	Routes *weir.Routes

	// Source tells what the server will find in a request for a key source of Routes, such as "token"; ok is false where
	// it will find nothing. nil means the function Source. "ip" is not asked for. It is called concurrently, for each request.
	Source func(r *http.Request, source string) (value string, ok bool)

	// Credentials are the fields of a request that say whose budget it spends: requests with
	// different values of one of them share none. They count for requests that no route covers; for
	// all others Routes and Source say what is counted by. nil means Authorization and X-Api-Key.
	// Only hashes of the values are kept beyond this process.
	Credentials []string

	// Threshold returns, for a window's limit, how many units are left at which callers begin to wait (D26): a call starts
	// while the units left, less those in flight, are at least that many. nil means Threshold; Keep(0) uses everything. It is
	// called while a budget is locked, and must not ask the Transport anything.
	Threshold func(limit int64) int64

	// MaxWait bounds the time that a call waits before it is sent, and again before each time that it is sent again. Where a
	// longer wait is certain it is a *WaitError at once, else when so much time has passed. 0 means 10 minutes, NoWait never waits.
	MaxWait time.Duration

	// AttemptTimeout bounds each attempt: from the moment at which a request is sent until its
	// response's body is read. The time that a call waits for its budget does not count, unlike
	// with http.Client.Timeout, which covers the waits too. A call that was sent and took longer is
	// not sent again; its error matches context.DeadlineExceeded. 0 means no bound.
	AttemptTimeout time.Duration

	// Retries bounds how often a call is sent again after a 429; then the 429 is returned as it came. 0 means 10, below 0 is
	// never.
	Retries int

	// MaxBody bounds the bytes of a request's body that are kept to be sent again, where the request has no GetBody. The
	// 429 of a request with a longer body is returned as it came. 0 means 1 MiB, below 0 keeps none.
	MaxBody int64

	// Jitter bounds a random delay that is added to each wait for a budget, never subtracted, unless the deadline is sooner. 0
	// means 100 ms, below 0 is none.
	Jitter time.Duration

	// Egress are the local addresses that requests may leave from. Where a limiter counts by address they leave from the
	// one with the most budget; all others leave from the first. None means that the system chooses.
	Egress []netip.Addr

	// EgressTransport returns what sends from a local address; it is called once for each of Egress, by New. nil means a
	// clone of Base that dials from there: Base must be nil or an *http.Transport; a dialer of its own is not used, and one for
	// TLS is a mistake that New panics of.
	EgressTransport func(netip.Addr) http.RoundTripper

	// Shared is the view that several processes share; nil keeps it in this process.
	Shared Shared

	// OnWait, if set, is told before a call begins to wait, in its goroutine, and again where it then waits for another reason.
	// It may ask the Transport, and must not send through it: others wait behind this call.
	OnWait func(Wait)

	// OnRefused, if set, is told of each 429, in its call's goroutine.
	OnRefused func(Refusal)

	// OnSharedFailure, if set, is told when Shared fails; until it works again, a second later at the earliest, this process
	// goes by what it sees itself. It must not block.
	OnSharedFailure func(error)

	// Now is the local clock; nil means time.Now. Only a server that sends no Date is believed to agree with it.
	Now func() time.Time
}

// NoWait as MaxWait never waits: a call that cannot start is a *WaitError that says when to come back.
const NoWait time.Duration = -1

// Threshold is the default: 5, or a tenth of the limit rounded up where that is less (D26).
func Threshold(limit int64) int64 { return min(5, (limit+9)/10) }

// Keep returns an Options.Threshold that is the same for all limits: n units are left to others. Keep(0) uses everything.
func Keep(n int64) func(limit int64) int64 {
	return func(int64) int64 { return max(n, 0) }
}

// A Reason says why a call waits.
type Reason string

const (
	BudgetSpent Reason = "budget spent"          // the window has no more than the threshold left, until its Reset
	Refused     Reason = "refused"               // a 429 asked for it
	Probing     Reason = "asking for the budget" // another call is the first of a window; its response will tell
)

// A Wait is told before a call waits.
type Wait struct {
	Host    string
	Limiter string // empty where no route covers the request
	Reason  Reason
	For     time.Duration // expected, as of now
	Until   time.Time     // the same, on the local clock
}

// A Refusal is a 429 that was received.
type Refusal struct {
	Host       string
	Limiter    string        // empty where no route covers the request
	Attempt    int           // how often the request has been sent so far: 1 at the first refusal
	RetryAfter time.Duration // how long the server asked to wait; 0 where it did not say
	Again      bool          // whether the request will be sent again; else the 429 is returned, or a *WaitError
}

// A WaitError says that a call was not sent, or after a 429 not sent again, because the wait for it is longer than its
// context's deadline or Options.MaxWait allows. It matches context.DeadlineExceeded where the deadline was the reason.
type WaitError struct {
	Host     string
	Limiter  string // empty where no route covers the request
	Reason   Reason
	Wait     time.Duration // how long from when the error was made, as far as is known
	Until    time.Time     // when to come back, on the local clock
	Deadline time.Time     // the request's, from its context or http.Client.Timeout; zero if it has none
	bound    error         // context.DeadlineExceeded or errLonger
}

// A Budget is where a limiter's binding window stands, as far as this process knows.
type Budget struct {
	Host      string
	Limiter   string        // empty where no route covers the request
	Key       string        // what it is counted by, as "token 4f2k7q9x"; secrets are shown as a short hash
	Egress    netip.Addr    // the local address it belongs to; the zero Addr where that makes no difference
	Known     bool          // whether Limit, Remaining and Reset are known, and Reset has not passed
	Per       time.Duration // length of the window, as far as was seen; 0: not known
	Limit     int64
	Remaining int64         // units left, as the server last said
	InFlight  int64         // units of requests that are not answered yet, of all processes that share the view
	Waiting   int           // calls of this process that wait
	Reset     time.Time     // when the budget is restored, on the local clock
	Wait      time.Duration // how long a call that begins now would wait; 0: it could start
}
