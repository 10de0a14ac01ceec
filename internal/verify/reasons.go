package verify

import (
	"errors"
	"fmt"
)

// A Reason is why a clause could not be tested. There are four.
type Reason string

// The reasons.
const (
	// NeedsInput: the test takes something that was not given, such as a credential, a second one,
	// or leave to send valid bodies.
	NeedsInput Reason = "needs-input"
	// NeedsMore: the test takes more time or more requests than it was given: it may not wait, or
	// the window ended too soon.
	NeedsMore Reason = "needs-more"
	// Unobservable: the answers do not show it, to this caller or to any.
	Unobservable Reason = "unobservable"
	// Shared: other callers may spend the same budget, so that what was seen may be their doing.
	Shared Reason = "shared"
)

// A gap is why one clause could not be tested. The zero gap is none.
type gap struct {
	reason Reason
	text   string

	inherent bool // nothing that this caller could be given would show the clause: see Result.Inherent
}

// because returns the gap of that reason, told as fmt.Sprintf formats it.
func (r Reason) because(format string, args ...any) gap {
	return gap{reason: r, text: fmt.Sprintf(format, args...)}
}

// inherently returns a gap with the reason Unobservable that is inherent (Result.Inherent).
func inherently(text string) gap { return gap{reason: Unobservable, text: text, inherent: true} }

func (g gap) isZero() bool { return g == gap{} }

// noDate is why Reset is held against nothing.
var noDate = Unobservable.because("the answers have no Date, so that Reset says nothing to a caller whose clock differs")

// endedEarly returns the gap that the early end of a verification leaves.
func endedEarly(err error) gap {
	if errors.Is(err, errGivenUp) {
		return gap{reason: Unobservable, text: err.Error()}
	}
	return gap{reason: NeedsMore, text: err.Error()}
}
