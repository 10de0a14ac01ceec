package gateway

import (
	"slices"
	"strings"
	"testing"
)

// The line of a request has its cost, because it is written at the end; a request that is refused,
// or that no cost is told for, does not get that of another.
func TestALineHasWhatItsRequestHasCost(t *testing.T) {
	for _, test := range []struct{ answer, want string }{
		{"X-Cost: 7\r\n", " reserved=100 cost=7 outcome=admitted "},
		{"X-Cost: 150\r\n", " reserved=100 cost=150 overrun=50 outcome=admitted "},
		{"X-Cost: 100\r\n", " reserved=100 cost=100 outcome=admitted "},
		{"", " reserved=100 outcome=admitted "}, // not told,
	} {
		policy := costFrom(t, "header:X-Cost")
		o := answering(t, "HTTP/1.1 200 OK\r\n"+test.answer+"Content-Length: 0\r\n\r\n")
		e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
		for _, path := range []string{"/", "/healthz"} {
			e.ask("GET " + path)
		}
		e.stop()
		lines := strings.Split(e.access.String(), "\n")
		// The client may have its answer, and ask again, before the line is written.
		slices.SortFunc(lines[:2], func(a, b string) int { return strings.Count(a, "healthz") - strings.Count(b, "healthz") })
		if !strings.Contains(lines[0], test.want) || strings.Contains(lines[1], "cost=") {
			t.Errorf("the access log is\n%s\nwant %q in the line of / alone", e.access.String(), test.want)
		}
	}
}
