// Package headers reads and writes the rate-limit fields, for servers and for clients.
//
//	headers.go   the contract's fields (section 5): X-RateLimit-… and Retry-After
//	date.go      HTTP dates, and the Date of the current second
//	ietf.go      RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10)
//	scan.go      the syntax of structured fields, which ietf.go needs
//	standing.go  the fields of any server, in the dialects of well-known APIs
//	list.go      the dialects of the IETF drafts
//
// Writing appends to the caller's buffer and does not allocate. Reading is strict: if a value is
// not exactly what the field allows, the result is an error with the field and the value. Only Read
// chooses between several meanings of a value, by the rules in its comment.
package headers

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// The names of the fields, in the spelling that HTTP/1.1 responses have (D19). It differs from the
// result of http.CanonicalHeaderKey, which is X-Ratelimit-….
const (
	Limit      = "X-RateLimit-Limit"
	Remaining  = "X-RateLimit-Remaining"
	Reset      = "X-RateLimit-Reset"
	RetryAfter = "Retry-After"
	Date       = "Date"
	RateLimit  = "RateLimit"        // IETF draft 10
	Policy     = "RateLimit-Policy" // IETF draft 10
	Denial     = "X-Weir-Denial"    // the opaque id of a refusal, in a 429 of Weir's own
)

// Fields are the contract's fields of one response, and the Date that Reset is relative to.
type Fields struct {
	Limit      int64 // units allowed in the window
	Remaining  int64 // units still available in it
	Reset      int64 // Unix seconds at which the window ends and the budget is restored
	RetryAfter int64 // seconds to wait before the next request; 0: absent
	Date       int64 // Unix seconds at which the response was made; 0: absent
}

// Append appends the fields as HTTP/1.1 field lines, each ending in CRLF. It leaves out RetryAfter
// and Date if they are 0, and writes negative values as 0.
func (f Fields) Append(dst []byte) []byte {
	dst = appendLine(dst, Limit, f.Limit)
	dst = appendLine(dst, Remaining, f.Remaining)
	dst = appendLine(dst, Reset, f.Reset)
	if f.RetryAfter > 0 {
		dst = appendLine(dst, RetryAfter, f.RetryAfter)
	}
	if f.Date > 0 {
		dst = append(dst, Date+": "...)
		dst = append(AppendDate(dst, f.Date), "\r\n"...)
	}
	return dst
}

func appendLine(dst []byte, name string, value int64) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(AppendInt(dst, value), "\r\n"...)
}

// AppendInt appends the digits of v, or 0 if v is negative: the fields have no sign.
func AppendInt(dst []byte, v int64) []byte {
	return strconv.AppendInt(dst, max(v, 0), 10)
}

// ErrAbsent is the error for a response without any of the contract's three fields. Such a response
// is not from a limited surface.
var ErrAbsent = errors.New("no " + Limit + ", " + Remaining + " or " + Reset + " field")

// A FieldError describes what is wrong with one field of a response.
type FieldError struct {
	Field   string // as the constants of this package spell it
	Value   string // as received; empty if the field is missing
	Problem string // what is wrong, and what is allowed
}

// Error returns the field, its value, and what is allowed.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("field %s %s", e.Field, e.Problem)
	}
	return fmt.Sprintf("field %s: %s %s", e.Field, shown(e.Value), e.Problem)
}

// shown quotes the beginning of a received value, short enough for a log line.
func shown(value string) string {
	const limit = 64
	if len(value) > limit {
		return strconv.Quote(value[:limit]) + "…"
	}
	return strconv.Quote(value)
}

// Parse reads the fields of a response. get returns all values of a field in any spelling of its
// name, as http.Header.Values does. If the response has none of the three X-RateLimit fields, the
// error is ErrAbsent, and the result still has RetryAfter and Date. Any other error is a
// *FieldError.
//
// Numbers consist of digits and fit 63 bits. A field with two values is an error. Retry-After is a
// number, or an HTTP date. A date is relative to the response's own Date, which is then required;
// RetryAfter is 0 if that date has passed.
func Parse(get func(name string) []string) (Fields, error) {
	var f Fields
	var err error
	if f.Date, err = parseDateField(get); err != nil {
		return Fields{}, err
	}
	if f.RetryAfter, err = parseRetryAfter(get, f.Date); err != nil {
		return Fields{}, err
	}
	present := 0
	for _, field := range [...]struct {
		name string
		to   *int64
	}{{Limit, &f.Limit}, {Remaining, &f.Remaining}, {Reset, &f.Reset}} {
		value, ok, err := single(get, field.name)
		if err != nil {
			return Fields{}, err
		}
		if !ok {
			continue
		}
		present++
		if *field.to, err = ParseInt(field.name, value); err != nil {
			return Fields{}, err
		}
	}
	switch present {
	case 0:
		return f, ErrAbsent
	case 3:
		return f, nil
	}
	return Fields{}, missing(get)
}

// missing returns the error for the first of the three fields that the response lacks.
func missing(get func(string) []string) error {
	for _, name := range [...]string{Limit, Remaining, Reset} {
		if len(get(name)) == 0 {
			return &FieldError{Field: name, Problem: "is missing: all three fields are sent together"}
		}
	}
	return nil
}

// single returns the value of a field; ok is false if the field is absent.
func single(get func(string) []string, name string) (value string, ok bool, err error) {
	values := get(name)
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	}
	return "", false, &FieldError{Field: name, Value: values[1], Problem: fmt.Sprintf("is one of %d values: one is allowed", len(values))}
}

// ParseInt reads a number of the field name: digits without a sign, within 63 bits. Its errors are
// *FieldError.
func ParseInt(name, value string) (int64, error) {
	if value == "" {
		return 0, &FieldError{Field: name, Problem: "is empty: a number in digits is required"}
	}
	var n int64
	for i := range len(value) {
		digit := int64(value[i]) - '0'
		if digit < 0 || digit > 9 {
			return 0, &FieldError{Field: name, Value: value, Problem: "is not a number: only digits are allowed"}
		}
		if n > (math.MaxInt64-digit)/10 {
			return 0, &FieldError{Field: name, Value: value, Problem: "is too large: at most 9223372036854775807 is allowed"}
		}
		n = n*10 + digit
	}
	return n, nil
}

func parseDateField(get func(string) []string) (int64, error) {
	value, ok, err := single(get, Date)
	if err != nil || !ok {
		return 0, err
	}
	date, ok := ParseDate(value)
	if !ok {
		return 0, &FieldError{Field: Date, Value: value, Problem: "is not an HTTP date: the form is Sun, 06 Nov 1994 08:49:37 GMT"}
	}
	return date, nil
}

func parseRetryAfter(get func(string) []string, now int64) (int64, error) {
	value, ok, err := single(get, RetryAfter)
	if err != nil || !ok {
		return 0, err
	}
	if value != "" && '0' <= value[0] && value[0] <= '9' {
		return ParseInt(RetryAfter, value)
	}
	date, ok := ParseDate(value)
	switch {
	case !ok:
		return 0, &FieldError{Field: RetryAfter, Value: value, Problem: "is neither a number of seconds, in digits, nor an HTTP date"}
	case now == 0:
		return 0, &FieldError{Field: RetryAfter, Value: value, Problem: "is a date, and the response has no Date to count from"}
	}
	return max(date-now, 0), nil
}
