package verify

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/headers"
)

// absent is the value of a field that is missing or cannot be read.
const absent = -1

// Fields are the values of an answer's fields, each read by itself.
type fields struct {
	limit, remaining, reset, retryAfter, date int64
}

func readFields(h http.Header) fields {
	number := func(name string) int64 {
		values := h.Values(name)
		if len(values) != 1 {
			return absent
		}
		n, err := headers.ParseInt(name, values[0])
		if err != nil {
			return absent
		}
		return n
	}
	f := fields{
		limit: number(headers.Limit), remaining: number(headers.Remaining), reset: number(headers.Reset),
		retryAfter: number(headers.RetryAfter), date: absent,
	}
	if values := h.Values(headers.Date); len(values) == 1 {
		if date, ok := headers.ParseDate(values[0]); ok {
			f.date = date
		}
	}
	return f
}

// complete reports whether the three fields are present.
func (f fields) complete() bool {
	return f.limit != absent && f.remaining != absent && f.reset != absent
}

// problem returns what is wrong with the named fields; "" means nothing.
func problem(h http.Header, names ...string) string {
	var wrong []string
	for _, name := range names {
		values := h.Values(name)
		switch len(values) {
		case 0:
			wrong = append(wrong, name+" is missing")
		case 1:
			if _, err := headers.ParseInt(name, values[0]); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s is %.40q, which is not an integer", name, values[0]))
			}
		default:
			wrong = append(wrong, fmt.Sprintf("%s is present %d times", name, len(values)))
		}
	}
	return strings.Join(wrong, ", ")
}

// standing returns the names of the three fields.
func standing() []string { return []string{headers.Limit, headers.Remaining, headers.Reset} }

// admitted reports whether no limiter refused the request. A failing backend counts as admitted.
func (a *answer) admitted() bool { return a.status != http.StatusTooManyRequests && !a.refused }
