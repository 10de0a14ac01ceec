package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A leasing store holds units that were charged before.
type leasing struct {
	*link
	units int
}

func (l *leasing) TakeLeased(charges []weir.Charge, r *weir.Receipt) bool {
	for _, c := range charges {
		if !c.OnFailure.SpendsPocket() {
			return false
		}
	}
	if l.units == 0 {
		return false
	}
	l.units--
	*r = weir.Receipt{Allowed: true, Leased: true, Now: l.Now().Unix()}
	return true
}

// Units that were charged before are given out first, also while the circuit breaker is open. Then
// a take follows the strictest of what its limiters declare.
func TestUnitsThatWereChargedAreGivenOutFirst(t *testing.T) {
	type outcome struct {
		allowed bool
		how     weir.Outcome
	}
	leased := outcome{true, weir.Counted}
	for _, c := range []struct {
		modes []weir.FailureMode
		first outcome
		then  outcome
	}{
		{[]weir.FailureMode{weir.FailPocket | weir.FailDeny}, leased, outcome{false, weir.StoreUnavailable}},
		{[]weir.FailureMode{weir.FailPocket}, leased, outcome{true, weir.CountedLocally}},
		{[]weir.FailureMode{weir.FailPocket | weir.FailAllow}, leased, outcome{true, weir.AllowedUncounted}},
		{[]weir.FailureMode{weir.FailPocket | weir.FailAllow, weir.FailPocket | weir.FailDeny}, leased, outcome{false, weir.StoreUnavailable}},
		{[]weir.FailureMode{weir.FailPocket | weir.FailDeny, weir.FailLocal}, outcome{false, weir.StoreUnavailable}, outcome{false, weir.StoreUnavailable}},
		{[]weir.FailureMode{weir.FailLocal}, outcome{true, weir.CountedLocally}, outcome{true, weir.CountedLocally}},
	} {
		for _, open := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				inner := &leasing{link: &link{common: newCommon(t)}}
				inner.mode.Store(fails)
				over := around(t, inner, newMem(t, time.Now), time.Now)
				take := func(key byte, modes ...weir.FailureMode) outcome {
					var charges []weir.Charge
					for i, m := range modes {
						charges = append(charges, weir.Charge{Key: []byte{key, byte(i)}, Limit: 100, Per: 60, Cost: 1, OnFailure: m})
					}
					var r weir.Receipt
					if err := over.Take(t.Context(), charges, &r); err != nil {
						t.Fatal(err)
					}
					return outcome{r.Allowed, r.Outcome}
				}
				if open {
					for range 25 {
						take('b', weir.FailDeny)
					}
					if !over.Health().BreakerOpen {
						t.Fatal("the circuit breaker is closed")
					}
				}
				inner.units = 1
				if got := take('a', c.modes...); got != c.first {
					t.Errorf("%v, breaker open %t: the first take is %+v, want %+v", c.modes, open, got, c.first)
				}
				if got := take('a', c.modes...); got != c.then {
					t.Errorf("%v, breaker open %t: the second take is %+v, want %+v", c.modes, open, got, c.then)
				}
				if err := over.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
