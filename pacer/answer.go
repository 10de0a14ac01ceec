package pacer

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir/headers"
)

// A report is what a response states about a budget. If Reset is 0, after is set instead.
type report struct {
	headers.Fields
	name  string // of the budget, if the server sends one
	after int64  // nanoseconds until the budget is restored; 0: see Reset
}

// canonical maps the contract's field names to the keys of http.Header, and spelled maps them back.
var (
	canonical = map[string]string{
		headers.Limit:     http.CanonicalHeaderKey(headers.Limit),
		headers.Remaining: http.CanonicalHeaderKey(headers.Remaining),
		headers.Reset:     http.CanonicalHeaderKey(headers.Reset),
	}
	spelled = map[string]string{
		http.CanonicalHeaderKey(headers.Limit):     headers.Limit,
		http.CanonicalHeaderKey(headers.Remaining): headers.Remaining,
		http.CanonicalHeaderKey(headers.Reset):     headers.Reset,
	}
)

// field returns a function that looks up a response's fields, under the keys of a response that was
// read from a connection or of one that a handler in this process has made.
func field(h http.Header) func(string) []string {
	return func(name string) []string {
		if stored, ok := canonical[name]; ok {
			if values := h[stored]; len(values) > 0 {
				return values
			}
		}
		return h[name]
	}
}

// read reads the fields of a response: the contract's, else those of another dialect.
func (t *Transport) read(response *http.Response) answer {
	refused := response.StatusCode == http.StatusTooManyRequests
	// The fields of a cached response are out of date.
	if age := response.Header["Age"]; len(age) > 0 && age[0] != "0" {
		return answer{kind: noFields, refused: refused}
	}
	get, seen := field(response.Header), t.dated.Load()
	dates := response.Header[headers.Date]
	// Parsing a Date is a third of the work, so it is done once a second.
	again := seen != nil && !refused && len(dates) == 1 && dates[0] == seen.text
	f, err := headers.Parse(func(name string) []string {
		if again && name == headers.Date || !refused && name == headers.RetryAfter {
			return nil
		}
		return get(name)
	})
	if err != nil && refused { // perhaps only the Retry-After is invalid
		f, err = headers.Parse(func(name string) []string {
			if name == headers.RetryAfter {
				return nil
			}
			return get(name)
		})
	}
	if err != nil || f.Limit == 0 || f.Reset < tooNear || f.Reset >= tooFar {
		return t.readDialect(response.Header, refused)
	}
	switch {
	case again:
		f.Date = seen.unix
	case f.Date > 0:
		t.dated.Store(&dated{dates[0], f.Date})
	}
	return answer{kind: binding, fields: report{Fields: f, name: headers.BudgetName(get)}, refused: refused}
}

// A Reset in Unix seconds is between these: the years 1973 and 5138. A smaller number is time left.
const (
	tooNear = 100_000_000
	tooFar  = 100_000_000_000
)

// A dated is a Date and its parsed value.
type dated struct {
	text string
	unix int64
}

// readDialect reads fields that are not the contract's, or not in its form.
func (t *Transport) readDialect(h http.Header, refused bool) answer {
	result := answer{kind: noFields, refused: refused}
	var f headers.Fields
	if dates := h[headers.Date]; len(dates) > 0 {
		var ok bool
		if f.Date, ok = headers.ParseDate(dates[0]); !ok || len(dates) > 1 {
			return result
		}
	}
	hint := headers.Hint{Date: f.Date}
	if refused {
		hint.RetryAfter, _ = retryAfter(h)
	}
	s, err := headers.Read(func(name string) []string {
		if values := h[name]; len(values) > 0 {
			return values
		}
		return h[spelled[name]]
	}, hint)
	if err != nil {
		return result
	}
	f.Limit, f.Remaining, f.Reset = s.Limit, s.Remaining, s.Reset
	result.kind, result.fields = binding, report{f, s.Name, int64(s.After)}
	return result
}

// retryAfter returns how long a 429 asks to wait. A wait that is longer than any window is not
// believed; 0 means a second.
func retryAfter(h http.Header) (time.Duration, bool) {
	wait, err := headers.ReadRetryAfter(func(name string) []string { return h[name] })
	if err != nil || len(h[headers.RetryAfter]) == 0 || wait > time.Duration(longestWindow)*time.Second {
		return 0, false
	}
	if wait == 0 {
		wait = time.Second
	}
	return wait, true
}
