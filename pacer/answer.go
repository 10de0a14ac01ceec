package pacer

import (
	"net/http"
	"time"

	"github.com/weirlimit/weir/headers"
)

// stated is what a response says of a budget. Reset is 0 if it says how long that takes instead.
type stated struct {
	headers.Fields
	name  string // of the budget, if the server sends one
	after int64  // nanoseconds until the budget is restored; 0: Reset says when
}

// canonical is how http.Header stores the fields that it spells otherwise, and spelled the reverse.
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

// field returns the values of a response's field, as a response that was read from a connection has
// them, or as a handler that answers in this process may have left them.
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

// read takes the fields from a response: the contract's, or else those of another dialect.
func (t *Transport) read(response *http.Response) answer {
	refused := response.StatusCode == http.StatusTooManyRequests
	// A cache repeats what was true once.
	if age := response.Header["Age"]; len(age) > 0 && age[0] != "0" {
		return answer{kind: unsaid, refused: refused}
	}
	get, seen := field(response.Header), t.dated.Load()
	dates := response.Header[headers.Date]
	// Reading a Date is a third of the work, so it is done once a second.
	again := seen != nil && !refused && len(dates) == 1 && dates[0] == seen.text
	f, err := headers.Parse(func(name string) []string {
		if again && name == headers.Date || !refused && name == headers.RetryAfter {
			return nil
		}
		return get(name)
	})
	if err != nil && refused { // what is wrong may be the Retry-After alone
		f, err = headers.Parse(func(name string) []string {
			if name == headers.RetryAfter {
				return nil
			}
			return get(name)
		})
	}
	if err != nil || f.Limit == 0 || f.Reset <= longest || f.Reset >= tooFar {
		return t.readDialect(response.Header, refused)
	}
	switch {
	case again:
		f.Date = seen.unix
	case f.Date > 0:
		t.dated.Store(&dated{dates[0], f.Date})
	}
	return answer{kind: binding, fields: stated{Fields: f, name: headers.BudgetName(get)}, refused: refused}
}

// tooFar is a Reset that is no time of a response in Unix seconds: the year 5138.
const tooFar = 100_000_000_000

// A dated is a Date that was read.
type dated struct {
	text string
	unix int64
}

// readDialect takes from a response the fields that are not the contract's, or are not as the
// contract has them.
func (t *Transport) readDialect(h http.Header, refused bool) answer {
	says := answer{kind: unsaid, refused: refused}
	var f headers.Fields
	if dates := h[headers.Date]; len(dates) > 0 {
		var ok bool
		if f.Date, ok = headers.ParseDate(dates[0]); !ok || len(dates) > 1 {
			return says
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
		return says
	}
	f.Limit, f.Remaining, f.Reset = s.Limit, s.Remaining, s.Reset
	says.kind, says.fields = binding, stated{f, s.Name, int64(s.After)}
	return says
}

// retryAfter reads how long a 429 asks to wait. A wait is believed up to the length of the longest
// window; none is a second.
func retryAfter(h http.Header) (time.Duration, bool) {
	wait, err := headers.ReadRetryAfter(func(name string) []string { return h[name] })
	if err != nil || len(h[headers.RetryAfter]) == 0 || wait > time.Duration(longest)*time.Second {
		return 0, false
	}
	if wait == 0 {
		wait = time.Second
	}
	return wait, true
}
