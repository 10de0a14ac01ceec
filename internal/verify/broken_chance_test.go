package verify_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/internal/verify"
)

// If a request is admitted by chance, the verifier does not blame its spelling, its
// fields or its connection.
func TestChanceIsNotBlamedOnTheRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	about := []string{"shared", "forwarded", "spelling", "language", "unverified", "separate"}
	for _, test := range []struct {
		name   string
		breaks func(a *api, n int64)
		find   string // the broken clause, or empty
	}{
		{"one in some requests is admitted beyond the limit", func(a *api, n int64) {
			var refusals atomic.Int64
			a.breaks.leaks = func() bool { return refusals.Add(1)%n == 0 }
		}, "admitted"},
		{"one in some answers is a 500", func(a *api, n int64) {
			var answers atomic.Int64
			a.breaks.edit = func(x *exchange) {
				if answers.Add(1)%n == 0 {
					x.status, x.body = http.StatusInternalServerError, "oops"
					drop(every)(x)
				}
			}
		}, "fields-5xx"},
	} {
		for _, n := range []int64{5, 7, 11, 13, 17, 23} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				a := newAPI(small())
				test.breaks(a, n)
				report := verified(t, a, these([]string{"widget-leads", "wp-plugin"}))
				broken := found(report, verify.Broken)
				for clause, results := range broken {
					if slices.Contains(about, clause) {
						t.Errorf("every %d: %s is blamed%s", n, clause, describe(results))
					}
				}
				if len(broken[test.find]) == 0 {
					t.Errorf("every %d: %s is not found%s", n, test.find, describe(report.Results))
				}
			})
		}
	}
}
