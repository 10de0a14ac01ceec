package replay

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// penalizedOf returns a limiter that refuses a caller for an hour after two refusals per minute.
func penalizedOf(t *testing.T, windows ...string) weir.Limiter {
	l := limiterOf(t, "all", windows...)
	l.Penalty = weir.Penalty{After: 2, Per: time.Minute, For: time.Hour}
	return l
}

func TestALogHasThePenaltiesOfTheServer(t *testing.T) {
	r := start(t, Options{Policy: policyOf(penalizedOf(t, "1 per minute by ip"))})
	for _, s := range []float64{0, 1, 2, 100, 3601, 3602, 3700} { // the penalty is from 2 to 3602
		send(t, r, s, "192.0.2.7")
	}
	send(t, r, 3700, "192.0.2.8")
	o := report(t, r).Policy
	if l := o.Limiters[0]; l.Requests != 8 || l.Refused != 4 || l.Penalized != 3 || o.Refused != 4 {
		t.Errorf("%d requests, %d refused, %d of them by the penalty; want 8, 4, 3", l.Requests, l.Refused, l.Penalized)
	}
}

// A penalty that counts by an agent which the log does not have is unknown, like its window.
func TestAPenaltyByAnUnknownAgentRefusesNothing(t *testing.T) {
	for _, windows := range [][]string{{"1 per minute by ip+agent"}, {"1 per minute by ip+agent", "2 per hour by ip"}} {
		r := start(t, Options{Policy: policyOf(penalizedOf(t, windows...))})
		for i := range 8 {
			from(t, r, float64(i), "192.0.2.7", "?")
		}
		if l := report(t, r).Policy.Limiters[0]; l.Penalized != 0 || l.Unknown != 8-l.Refused {
			t.Errorf("%v: %+v", windows, l)
		}
	}
	r := start(t, Options{Policy: policyOf(penalizedOf(t, "2 per hour by ip", "1 per minute by ip+agent"))})
	for i := range 8 {
		from(t, r, float64(i), "192.0.2.7", "?")
	}
	if l := report(t, r).Policy.Limiters[0]; l.Refused != 6 || l.Penalized != 5 {
		t.Errorf("by address: %+v", l)
	}
}
