package weir

import (
	"fmt"
	"net/netip"
	"time"
)

// A Policy is the declared document: all limiters. The order of its limiters has no effect on any decision.
type Policy struct {
	Limiters []Limiter
}

// A Limiter is one named row of a Policy: the routes it covers and the windows each request of theirs is charged to, all
// of them or none.
type Limiter struct {
	// Name identifies the limiter in keys, headers, logs and metrics. A window keeps its count across a change of policy
	// as long as the name, the window's length and its key stay the same. Lower-case letters, digits and dashes, starting
	// with a letter, at most 64 bytes.
	Name string

	// Routes may be empty for a limiter that requests name outright (Request.Limiters).
	Routes []Route

	// Windows holds one to MaxWindows windows.
	Windows []Window

	// Cost is what one request spends, in units; 0 means 1.
	Cost int64

	// Message names the text of the 429 in the front door's catalogue; empty means that of the widget surface.
	Message string

	// OnStoreFailure says what happens while the store does not answer. The zero value counts in this process.
	OnStoreFailure FailureMode

	// Mode says whether the limiter is enforced, as the zero value has it, or tried out.
	Mode Mode

	// Exempt are callers that are counted and never refused.
	Exempt []Who

	// Overrides are other limits for some callers. Of several that fit a caller a token's beats an address's, and a smaller
	// network a larger one.
	Overrides []Override
}

// A Mode says what a limiter does with its verdict.
type Mode uint8

const (
	// Enforce refuses what does not fit.
	Enforce Mode = iota
	// Shadow counts and reports (Options.OnShadow), and changes nothing that a caller can see. Its routes also stand under the
	// next limiter that matches, which is the one that is enforced.
	Shadow
)

// A Who names callers as an operator does: those of a network, or the one that has an API token. Exactly one of the two is set.
// Nobody is named by what callers choose themselves.
type Who struct {
	Network netip.Prefix // masked; IPv4 not mapped into IPv6
	Token   string       // the token's public id, never the token
}

// An Override is the limit of the windows of one length for some callers (see Changes).
type Override struct {
	Limit int64         // 1 to MaxLimit
	Per   time.Duration // the length of a window of the limiter
	For   Who
}

// A Window allows Limit units in each fixed span of length Per, counted by Key.
type Window struct {
	Limit int64         // 1 to MaxLimit
	Per   time.Duration // whole seconds, 1 s to MaxPer
	Key   Key
}

const (
	// MaxLimit is the largest limit of a window, and the largest cost: 31 bits, so that every store can count it.
	MaxLimit = 1<<31 - 1
	// MaxPer is the longest window.
	MaxPer = 31 * 24 * time.Hour
	// MaxWindows is the most windows of one limiter.
	MaxWindows = 4
	// MaxCharges is the most windows that one request can be charged to, over all limiters that it names.
	MaxCharges = 8
)

// A FailureMode says what a limiter does while the store does not answer.
type FailureMode uint8

const (
	// FailLocal counts in this process, under the same limits (Options.Fallback).
	FailLocal FailureMode = iota
	// FailAllow admits every request; the standings are those of the local count.
	FailAllow
	// FailDeny refuses every request, with the outcome StoreUnavailable.
	FailDeny
)

// String returns the mode as a policy file spells it: "local", "allow" or "deny".
func (m FailureMode) String() string {
	switch m {
	case FailLocal:
		return "local"
	case FailAllow:
		return "allow"
	case FailDeny:
		return "deny"
	}
	return fmt.Sprintf("FailureMode(%d)", uint8(m))
}

// A Problem is one thing wrong with a Policy, and where.
type Problem struct {
	Limiter int    // index into Policy.Limiters; -1 where the whole policy is meant
	Field   string // "name", "routes", "windows", "cost", "message", "on_store_failure", "mode", "exempt", "overrides"; empty: the limiter itself
	Index   int    // index into Routes, Windows, Exempt or Overrides; -1 where the field as a whole is meant
	Value   string // the offending value as the policy spells it; may be empty
	Message string // what is wrong, what is allowed, what to do
}

// A PolicyError holds every problem of a policy.
type PolicyError struct {
	Policy   Policy
	Problems []Problem
}
