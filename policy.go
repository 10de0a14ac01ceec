package weir

import (
	"fmt"
	"net/netip"
	"time"
)

// A Policy declares all limiters. Their order has no effect on decisions.
type Policy struct {
	Limiters  []Limiter
	Responses // to requests that end at a limiter
}

// A Limiter is one named row of a Policy. Each request that its routes cover is charged to all of
// its windows, or to none.
type Limiter struct {
	// Name identifies the limiter in keys, headers, logs and metrics. A window keeps its count
	// across a change of policy if the name, the window's length and its key stay the same. A name
	// has lower-case letters, digits and dashes, starts with a letter, and has at most 64 bytes.
	Name string

	// Routes may be empty if requests name the limiter (Request.Limiters).
	Routes []Route

	// Windows holds at most MaxWindows windows, and at least one unless InFlight is set.
	Windows []Window

	// Cost is what one request spends, in units; 0 means 1. If Actual is set, it is what is
	// reserved for a request before it is served.
	Cost int64

	// Reserve is what a request tells of its own cost. Cost is then the most that is reserved.
	Reserve Reserve

	// Actual is where the answer tells what the request has cost, 0 or more. Until then the request
	// has cost what was reserved, and so it stays if the answer does not tell.
	Actual Reading

	// Count is which requests are counted, by the status of their answer.
	Count Count

	// InFlight limits the requests of a caller that are under way, beside the windows.
	InFlight InFlight

	// Requires is the key source of a credential that a caller must have: "session", "token" or
	// "cert". A request without a verified one is counted by its address and answered 401 (D16). If
	// it is empty, no request is answered 401, also if windows count by a credential (D27). Nor is
	// one if nothing verifies that credential: httplimit.Limit rejects such a limiter, and weir
	// serve warns of it.
	Requires string

	// Chosen declares that windows may count by a value that the caller chooses alone, so that it
	// has a new budget for each value that it makes up, and can spend another's (D32). Without it
	// such a window is a problem.
	Chosen bool

	// Message names the text of the 429: one of Policy.Messages, or of the front door's catalogue.
	// If empty, it is that of Policy.Answers.Refused.
	Message string

	// Answers is what answers the requests that the limiter admits. The zero value is the handler
	// behind the limiter. A limiter in Shadow mode answers nothing, so it must have the zero value.
	Answers Answerer

	// Notify holds percentages of the limit of a window, 1 to 100, in rising order, at most
	// MaxNotify. A request that brings a window's count to one of them is reported
	// (Options.OnCrossed), by what it has cost if it is settled (see Crossed). If empty, none is.
	Notify []int64

	// OnStoreFailure is what happens while the store does not answer. The zero value counts in this
	// process.
	OnStoreFailure FailureMode

	// Mode is whether the limiter is enforced or tried out. The zero value enforces it.
	Mode Mode

	// Align is when windows of a fixed length begin. Calendar windows ignore it. The zero value
	// begins them with their first request.
	Align Align

	// Penalty is what becomes of callers that are refused often. The zero value is none.
	Penalty Penalty

	// Exempt are callers that are counted and never refused. They have no penalty either.
	Exempt []Who

	// Deny are callers that are refused (Outcome Denied) without being counted, also if they are
	// exempt.
	Deny []Who

	// Overrides are other limits for some callers. If several apply to a caller, a token has
	// priority over a network, and a smaller network over a larger one, be it a Network or one of
	// Networks (see Finder). Of equally long ones, a Network has priority, and then the first of
	// the Networks in Exempt, Deny and Overrides.
	Overrides []Override

	// Plans are other limits by what a caller has paid for. An override has priority over a plan.
	Plans Plans
}

// A Mode is what a limiter does with its decisions.
type Mode uint8

const (
	// Enforce refuses requests that do not fit.
	Enforce Mode = iota
	// Shadow counts and reports (Options.OnShadow), and callers see nothing of it. The requests of
	// its routes also go to the next limiter that matches, which is enforced.
	Shadow
)

// A Who names callers for an operator: those of a network or of a set of networks, or the one with
// an API token. Exactly one of the three is set. No caller can choose any of them.
type Who struct {
	Network  netip.Prefix // masked; IPv4 not mapped into IPv6
	Token    string       // the token's public id, never the token
	Networks Networks
}

// An Override is another limit of the windows of one length, for some callers (see Changes).
type Override struct {
	Limit    int64         // 1 to MaxLimit
	Per      time.Duration // the length of a window of the limiter
	Calendar CalendarUnit  // the unit of a calendar window, in any zone; 0: no calendar window
	Requests bool          // of a window that counts requests; otherwise of one that counts units
	For      Who
}

// A Window allows Limit units in each fixed span of length Per, or in each span of a calendar,
// counted by Key.
type Window struct {
	Limit    int64         // 1 to MaxLimit
	Per      time.Duration // whole seconds, 1 s to MaxPer; for a calendar, the length of its Unit
	Calendar Calendar      // the zero value: spans of length Per
	Key      Key
	// Requests means that the window counts requests: each spends one unit of it, whatever the
	// limiter's cost is.
	Requests bool
	// InFlight means that this is the limit of Limiter.InFlight, in Standings. It has no length. No
	// window of Limiter.Windows has it.
	InFlight bool
}

const (
	// MaxLimit is the max limit of a window and the max cost: 31 bits, so that every store can
	// count it.
	MaxLimit = 1<<31 - 1
	// MaxNotify is the max number of percentages in Limiter.Notify.
	MaxNotify = 8
	// MaxPer is the max length of a window.
	MaxPer = 31 * 24 * time.Hour
	// MaxSpan is the max time from a request to the Reset of its window. A month of 31 days is
	// longer than MaxPer if clocks are set back in it.
	MaxSpan = MaxPer + dayChange
	// MaxWindows is the max number of windows of one limiter.
	MaxWindows = 4
	maxRows    = MaxWindows + 1 // with the limit in flight
	// MaxCharges is the max number of windows of one request, over all limiters that it names.
	MaxCharges = 8
)

// A FailureMode is what a limiter does while the store does not answer. Package failover does it.
// It is one of FailLocal, FailAllow and FailDeny, and can have FailPocket in addition, as in
// FailPocket|FailDeny.
type FailureMode uint8

const (
	// FailLocal counts in this process, under the same limits.
	FailLocal FailureMode = iota
	// FailAllow admits every request. The standings are those of the count in this process.
	FailAllow
	// FailDeny refuses every request, with the outcome StoreUnavailable.
	FailDeny

	// FailPocket first gives out the units that the store had charged for this process before
	// (Leaser). Then it does what it is combined with; by itself it counts in this process.
	FailPocket FailureMode = 1 << 2
)

// FailureModes returns all of them.
func FailureModes() []FailureMode {
	return []FailureMode{FailLocal, FailAllow, FailDeny, FailPocket, FailPocket | FailAllow, FailPocket | FailDeny}
}

// SpendsPocket reports whether m has FailPocket.
func (m FailureMode) SpendsPocket() bool { return m&FailPocket != 0 }

// Then returns m without FailPocket: what is done if no units are left.
func (m FailureMode) Then() FailureMode { return m &^ FailPocket }

// String returns the mode as a policy file spells it: "local", "allow" or "deny", with FailPocket
// "pocket or local" and so on.
func (m FailureMode) String() string {
	var text string
	switch m.Then() {
	case FailLocal:
		text = "local"
	case FailAllow:
		text = "allow"
	case FailDeny:
		text = "deny"
	default:
		return fmt.Sprintf("FailureMode(%d)", uint8(m))
	}
	if m.SpendsPocket() {
		return "pocket or " + text
	}
	return text
}

// A Problem is one mistake in a Policy, and its place.
type Problem struct {
	Limiter int // index into Policy.Limiters; -1 for the whole policy
	// Field is "name", "routes", "windows", "cost", "count", "in_flight", "requires", "chosen",
	// "message", "on_store_failure", "mode", "align", "penalty", "exempt", "deny", "overrides",
	// "plans", "answers" or "notify"; empty for the limiter itself. Of the whole policy it is
	// "limiters", or the path of a value of its words, such as "messages.sync.de".
	Field string
	// Index is the index into Routes, Windows, Count.Statuses, Exempt, Deny, Overrides, Plans.List
	// or Notify; -1 for the whole field.
	Index   int
	Value   string // the offending value as the policy spells it; may be empty
	Message string // what is wrong, what is allowed, what to do
}

// A PolicyError has all problems of a policy.
type PolicyError struct {
	Policy   Policy
	Problems []Problem
}
