// Package headers is the one codec of the rate-limit fields: servers write them with it, callers
// read them with it.
//
//	headers.go  X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After (contract, section 5)
//	date.go     HTTP dates, and the Date of the current second
//	ietf.go     RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10)
//	standing.go the same of any server, in the dialects that are met (list.go: the IETF's lists)
//
// Writing appends to the caller's buffer and does not allocate. Reading is strict: a value that is
// not exactly what the field allows is an error that names the field and the value, never a guess.
// Read alone chooses between the meanings that a Reset of a foreign server can have, by rules that
// it states.
package headers

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// The names of the fields, spelled as they stand on the wire in HTTP/1.1 (D19). X-RateLimit-… is not the spelling that
// http.CanonicalHeaderKey gives.
const (
	Limit      = "X-RateLimit-Limit"
	Remaining  = "X-RateLimit-Remaining"
	Reset      = "X-RateLimit-Reset"
	RetryAfter = "Retry-After"
	Date       = "Date"
	RateLimit  = "RateLimit"        // IETF draft 10
	Policy     = "RateLimit-Policy" // IETF draft 10
	Denial     = "X-Weir-Denial"    // an opaque id of the refusal, with a 429 of Weir's own
)

// Fields are the contract's fields of one response, with the Date that Reset is measured against.
type Fields struct {
	Limit      int64 // units allowed in the window
	Remaining  int64 // units still available in it
	Reset      int64 // Unix seconds at which the window ends and the budget is restored
	RetryAfter int64 // seconds to wait before the next try; 0: absent
	Date       int64 // Unix seconds at which the response was made; 0: absent
}

// Append appends the fields as HTTP/1.1 field lines, each ending in CRLF; RetryAfter and Date only where they are not 0.
// Negative values are written as 0.
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

// AppendInt appends the digits of v, or of 0 where v is negative: none of the fields has a sign.
func AppendInt(dst []byte, v int64) []byte {
	return strconv.AppendInt(dst, max(v, 0), 10)
}

// ErrAbsent says that a response has none of the contract's three fields: it does not come from a limited surface.
var ErrAbsent = errors.New("no " + Limit + ", " + Remaining + " or " + Reset + " field")

// A FieldError says what is wrong with one field of a response.
type FieldError struct {
	Field   string // as the constants of this package spell it
	Value   string // as received; empty where the field is missing
	Problem string // what is wrong, and what is allowed
}

// Error names the field, its value and what is allowed.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("field %s %s", e.Field, e.Problem)
	}
	return fmt.Sprintf("field %s: %s %s", e.Field, shown(e.Value), e.Problem)
}

// shown quotes a value that a stranger sent: no more of it than a log line should carry.
func shown(value string) string {
	const most = 64
	if len(value) > most {
		return strconv.Quote(value[:most]) + "…"
	}
	return strconv.Quote(value)
}

// Parse reads the fields of a response. get returns all values of a field, whatever the spelling of its name:
// http.Header.Values does. Where the response has none of the three X-RateLimit fields the error is ErrAbsent, and
// RetryAfter and Date are read all the same; any other error is a *FieldError.
//
// Numbers are digits alone and fit 63 bits. A field that is there twice is refused. Retry-After is a number, or an HTTP
// date, which counts from the response's own Date and needs one; it is 0 where that date has passed.
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

// missing names the field that stands for no value where others of the three do.
func missing(get func(string) []string) error {
	for _, name := range [...]string{Limit, Remaining, Reset} {
		if len(get(name)) == 0 {
			return &FieldError{Field: name, Problem: "is missing beside the others: all three are sent together"}
		}
	}
	return nil
}

// single returns the one value of a field; ok is false where it is absent.
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

// ParseInt reads a number as the fields spell it: digits alone, within 63 bits. An error is a *FieldError of the field name.
func ParseInt(name, value string) (int64, error) {
	if value == "" {
		return 0, &FieldError{Field: name, Problem: "is empty: a number in digits is required"}
	}
	var n int64
	for i := range len(value) {
		digit := int64(value[i]) - '0'
		if digit < 0 || digit > 9 {
			return 0, &FieldError{Field: name, Value: value, Problem: "is no number: digits alone are allowed"}
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
		return 0, &FieldError{Field: Date, Value: value, Problem: "is no HTTP date: the form is Sun, 06 Nov 1994 08:49:37 GMT"}
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
