package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// reservesAsTold is a limiter whose requests tell what they reserve, at most 100 units.
func reservesAsTold(specs ...string) weir.Limiter {
	l := priced("l", 100, specs...)
	l.Reserve = weir.Reserve{From: weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"}}
	return l
}

// A plan, an override and a grant may be lower than the most that a request reserves. The
// reservation is then the caller's limit, and what the request has cost beyond it is counted.
func TestAReservationIsAtMostTheCallersLimit(t *testing.T) {
	l := reservesAsTold("1000 per minute by ip", "2000 per hour by ip", "90 requests per day by ip")
	l.Overrides = []weir.Override{override("30 per minute for " + ip["ip"])}
	k := newDesk(t, policyOf(l), nil)
	v := k.visit("l") // it does not tell, so it reserves the most
	k.want(v.got, "allowed 30 0 60 0")
	if v.got.Cost != 100 {
		t.Errorf("the decision says that it cost %d, want the largest reservation", v.got.Cost)
	}
	k.counts("l", "30 100 1")
	other := k.visit("l")
	k.want(other.got, "refused 30 0 60 60")
	v.spent(42)
	k.want(v.got, "allowed 30 0 60 0")
	k.counts("l", "42 42 1")
	v.end()
	k.clock.Advance(time.Minute)
	v.again("l")
	v.spent(10)
	k.want(v.got, "allowed 30 20 60 0")
	k.counts("l", "10 52 2")
	other = k.visit("l")
	k.want(other.got, "refused 30 0 60 60")
}

func TestAReservationIsAtMostTheGrantedLimit(t *testing.T) {
	k := newDesk(t, policyOf(reservesAsTold("1000 per minute by ip")), nil)
	for _, limit := range []int64{30, 70} {
		if err := k.d.Grant(t.Context(), "l", me, []int64{limit}, k.clock.Now().Add(time.Hour).Unix()); err != nil {
			t.Fatal(err)
		}
		v := k.visit("l")
		if !v.got.Allowed || v.got.Cost != limit || v.got.Binding().Limit != limit || v.got.Binding().Remaining != 0 {
			t.Errorf("granted %d: %+v", limit, v.got)
		}
		v.end()
		k.clock.Advance(time.Minute)
	}
}

// A grant above an override raises what is reserved too.
func TestAReservationFollowsAGrantAboveAnOverride(t *testing.T) {
	l := reservesAsTold("1000 per minute by ip")
	l.Overrides = []weir.Override{override("30 per minute for " + ip["ip"])}
	k := newDesk(t, policyOf(l), nil)
	if err := k.d.Grant(t.Context(), "l", me, []int64{400}, k.clock.Now().Add(time.Hour).Unix()); err != nil {
		t.Fatal(err)
	}
	v := k.visit("l")
	k.want(v.got, "allowed 400 300 60 0")
	v.end()
}

// Never are more units reserved than the limit allows, however many requests ask.
func TestReservationsOfASmallPlanNeverPassItsLimit(t *testing.T) {
	l := reservesAsTold("1000 per minute by ip")
	l.Plans = weir.Plans{By: "token", List: []weir.Plan{{Name: "free", Rates: []weir.Rate{{Limit: 30, Per: time.Minute}}}}}
	l.Overrides = []weir.Override{override("30 per minute for " + ip["ip"])}
	k := newDesk(t, policyOf(l), nil)
	reserved := int64(0)
	for _, cost := range []int64{7, 100, 20, 31, 4, 3, 1} {
		d, err := k.d.Decide(context.Background(), weir.Request{Limiters: []string{"l"}, Keys: me, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			reserved += d.Cost
		}
		if got := d.Binding(); d.Allowed && got.Remaining != 30-reserved || got.Limit != 30 {
			t.Errorf("after a request for %d: %d of %d left, %d are reserved", cost, got.Remaining, got.Limit, reserved)
		}
	}
	if reserved != 30 {
		t.Errorf("%d units are reserved, want 30 (7, 20 and 3)", reserved)
	}
}
