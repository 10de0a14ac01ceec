package replay

import (
	"testing"

	"github.com/weirlimit/weir"
)

// A window that ends by the clock ends so in a log, and what its callers asked for is counted in
// the same spans.
func TestALogHasTheSpansOfTheClock(t *testing.T) {
	for _, test := range []struct {
		spec string
		at   []float64 // from 12:00 UTC
	}{
		{"2 per minute by ip", []float64{50, 59.9, 60, 119}},
		{"2 per calendar day in America/New_York by ip", []float64{0, 17*3600 - 0.1, 17 * 3600, 17*3600 + 1}},
	} {
		l := limiterOf(t, "all", test.spec)
		l.Align = weir.AlignClock
		r := start(t, Options{Policy: policyOf(l)})
		for _, s := range test.at {
			send(t, r, s, "192.0.2.7")
		}
		o := report(t, r).Policy
		if w := o.Limiters[0].Windows[0]; o.Requests != 4 || w.Refused != 0 || w.Peak != 2 {
			t.Errorf("%s: %d requests, %d refused, a peak of %d; want 4, 0, 2", test.spec, o.Requests, w.Refused, w.Peak)
		}
	}
}
