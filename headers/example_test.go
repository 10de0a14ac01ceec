package headers_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir/headers"
)

// A client reads the contract's fields strictly.
func ExampleParse() {
	h := http.Header{}
	h.Set("X-RateLimit-Limit", "60")
	h.Set("X-RateLimit-Remaining", "0")
	h.Set("X-RateLimit-Reset", "1800000060")
	h.Set("Retry-After", "60")
	h.Set("Date", "Fri, 15 Jan 2027 08:00:00 GMT")
	f, err := headers.Parse(h.Values)
	fmt.Println(f.Remaining, "of", f.Limit, "left, restored after", f.Reset-f.Date, "seconds;", err)

	h.Set("X-RateLimit-Remaining", "-1")
	_, err = headers.Parse(h.Values)
	fmt.Println(err)
	// Output:
	// 0 of 60 left, restored after 60 seconds; <nil>
	// field X-RateLimit-Remaining: "-1" is not a number: only digits are allowed
}

// A client reads the budget of any API, in the field names of that API.
func ExampleRead() {
	h := http.Header{}
	h.Set("X-Ratelimit-Limit-Requests", "500")
	h.Set("X-Ratelimit-Remaining-Requests", "499")
	h.Set("X-Ratelimit-Reset-Requests", "1m30s")
	s, err := headers.Read(h.Values, headers.Hint{Date: time.Now().Unix()})
	fmt.Println(s.Remaining, "of", s.Limit, "left, restored after", s.After, err)
	// Output:
	// 499 of 500 left, restored after 1m30s <nil>
}

// A server writes the fields without allocating.
func ExampleFields_Append() {
	f := headers.Fields{Limit: 60, Remaining: 0, Reset: 1800000060, RetryAfter: 60, Date: 1800000000}
	fmt.Print(strings.ReplaceAll(string(f.Append(nil)), "\r\n", "\n"))
	// Output:
	// X-RateLimit-Limit: 60
	// X-RateLimit-Remaining: 0
	// X-RateLimit-Reset: 1800000060
	// Retry-After: 60
	// Date: Fri, 15 Jan 2027 08:00:00 GMT
}
