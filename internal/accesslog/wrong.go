package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// errorString is an error that needs no allocation.
type errorString string

func (e errorString) Error() string { return string(e) }

// A wrongValue is an error that quotes the line. The quoted value may be of any length, and may be
// a secret if the line is cut off or mixed with another. reasonFor decides how much of it is shown.
type wrongValue struct {
	what  string
	value []byte // as in the line
	why   string // may be empty
}

func wrong(what string, value []byte, why string) error { return &wrongValue{what, value, why} }

func (e *wrongValue) Error() string { return e.format(fmt.Sprintf("%q", e.value)) }

func (e *wrongValue) format(value string) string {
	return strings.TrimSuffix(strings.Join([]string{e.what, value, e.why}, " "), " ")
}

const (
	maxQuote  = 60  // bytes of a value
	maxReason = 200 // bytes
)

// reasonFor returns the reason why a line cannot be read. It quotes nothing of the line except
// bytes of text, which may be shown.
func reasonFor(text []byte, err error) string {
	reason := ""
	var e *wrongValue
	switch {
	case !errors.As(err, &e):
		reason = err.Error()
	case !bytes.Contains(text, e.value):
		reason = e.format(fmt.Sprintf("(%d bytes, further on)", len(e.value)))
	case len(e.value) > maxQuote:
		reason = e.format(fmt.Sprintf("%q...", e.value[:maxQuote]))
	default:
		reason = e.Error()
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason-3], "") + "..."
	}
	return reason
}
