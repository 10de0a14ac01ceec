package verify

import (
	"errors"
	"fmt"
)

// A Reason is why a clause could not be tested. There are four.
type Reason string

// The reasons.
const (
	// NeedsInput: the test needs something that was not given, such as a credential, a second one,
	// or permission to send valid bodies.
	NeedsInput Reason = "needs-input"
	// NeedsMore: the test needs more time or more requests than allowed: it may not wait, or the
	// window ended too soon.
	NeedsMore Reason = "needs-more"
	// Unobservable: the answers do not show it, to this caller or to any.
	Unobservable Reason = "unobservable"
	// Shared: other callers may spend the same budget, and may be the cause of what was seen.
	Shared Reason = "shared"
)

// A gap is why one clause could not be tested. The zero gap means that it could.
type gap struct {
	reason Reason
	text   string

	inherent bool // no input would help: see Result.Inherent
}

// because returns a gap with that reason and a text formatted as by fmt.Sprintf.
func (r Reason) because(format string, args ...any) gap {
	return gap{reason: r, text: fmt.Sprintf(format, args...)}
}

// inherently returns a gap with the reason Unobservable that is inherent (Result.Inherent).
func inherently(text string) gap { return gap{reason: Unobservable, text: text, inherent: true} }

func (g gap) isZero() bool { return g == gap{} }

// noDate is why Reset is compared with nothing.
var noDate = Unobservable.because("the answers have no Date, so a caller whose clock differs cannot use Reset")

// endedEarly returns the gap of a verification that ended early.
func endedEarly(err error) gap {
	if errors.Is(err, errGivenUp) {
		return gap{reason: Unobservable, text: err.Error()}
	}
	return gap{reason: NeedsMore, text: err.Error()}
}
