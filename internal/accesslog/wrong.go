package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// errorString is a reason that needs no memory.
type errorString string

func (e errorString) Error() string { return string(e) }

// A wrongValue is a reason that quotes the line. What it quotes may be of any length, and a secret where a line is cut off or
// another's: reasonFor says what is told of it.
type wrongValue struct {
	what  string
	value []byte // as it stands in the line
	why   string // may be empty
}

func wrong(what string, value []byte, why string) error { return &wrongValue{what, value, why} }

func (e *wrongValue) Error() string { return e.said(fmt.Sprintf("%q", e.value)) }

func (e *wrongValue) said(value string) string {
	return strings.TrimSuffix(strings.Join([]string{e.what, value, e.why}, " "), " ")
}

const (
	longestQuote  = 60  // bytes of a value
	longestReason = 200 // bytes
)

// reasonFor returns why a line cannot be read, of which text is what may be shown: nothing else of the line is in it.
func reasonFor(text []byte, err error) string {
	reason := ""
	var e *wrongValue
	switch {
	case !errors.As(err, &e):
		reason = err.Error()
	case !bytes.Contains(text, e.value):
		reason = e.said(fmt.Sprintf("(%d bytes, further on)", len(e.value)))
	case len(e.value) > longestQuote:
		reason = e.said(fmt.Sprintf("%q...", e.value[:longestQuote]))
	default:
		reason = e.Error()
	}
	if len(reason) > longestReason {
		reason = strings.ToValidUTF8(reason[:longestReason-3], "") + "..."
	}
	return reason
}
