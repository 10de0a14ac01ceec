package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/storetest"
)

// A body reports the cost of its request once it was read.
type body struct {
	units int64
	reads int
}

func (b *body) Reported(weir.Reading) (int64, bool) { b.reads++; return b.units, true }
func (b *body) Waits(weir.Reading) bool             { return b.reads == 0 }

// post asks with a body that reports units.
func (v *visit) post(units int64, names ...string) (read bool) {
	v.Helper()
	b := &body{units: units}
	if err := v.d.DecideInto(v.Context(), &weir.Request{Limiters: names, Keys: me, Scratch: &v.scratch, Reporter: b}, &v.got); err != nil {
		v.Fatal(err)
	}
	return b.reads > 0
}

// plus is a limiter whose requests reserve what they report and 5 units, at most 60.
func plus(specs ...string) weir.Limiter {
	l := reservesAsTold(specs...)
	l.Cost, l.Reserve.Plus = 60, 5
	return l
}

// A request that would be refused whatever its body reports is refused without it, and charged
// nothing. The decision is that on a request of the least cost.
func TestARequestIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	spend := func(v *visit, units ...int64) {
		for _, n := range units {
			v.post(n-5, "l")
			v.end()
		}
	}
	both := limiter("other", "1 per minute by ip")
	for _, test := range []struct {
		name   string
		l      weir.Limiter
		before func(*visit)
		want   string // as want has it
		counts string
	}{
		{"no unit is left", plus("100 per minute by ip"), func(v *visit) { spend(v, 60, 40) }, "refused 100 0 60 60", "100"},
		{"fewer are left than the least", plus("64 per minute by ip"), func(v *visit) { spend(v, 60) }, "refused 64 0 60 60", "60"},
		{"of the second window", plus("1000 per minute by ip", "64 per hour by ip"), func(v *visit) { spend(v, 60) }, "refused 64 0 3600 3600", "60 60"},
		{"no request is left", plus("1000 per minute by ip", "1 request per hour by ip"), func(v *visit) { spend(v, 60) }, "refused 1 0 3600 3600", "60 1"},
		{"no slot is free", inFlight(plus("1000 per minute by ip"), 1), func(v *visit) { v.desk.visit().post(7, "l") }, "refused 1 0 1 1", "12 1"},
		{"another limiter has no unit left", plus("1000 per minute by ip"), func(v *visit) { v.again("other"); v.end() }, "refused 1 0 60 60", "0"},
		{"a penalty", func() weir.Limiter {
			l := plus("64 per minute by ip")
			l.Penalty = weir.Penalty{After: 1, Per: time.Minute, For: 15 * time.Minute}
			return l
		}(), func(v *visit) { spend(v, 60, 60); v.clock.Advance(time.Minute) }, "refused 64 0 840 840", "0"},
		{"a limit of the caller below the least", func() weir.Limiter {
			l := plus("1000 per minute by ip")
			l.Overrides = []weir.Override{override("3 per minute for " + ip["ip"])}
			return l
		}(), func(v *visit) { spend(v, 60) }, "refused 3 0 60 60", "3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newDesk(t, policyOf(test.l, both), nil)
			v := &visit{desk: k}
			test.before(v)
			if v.post(1, "l", "other") {
				t.Error("the body is read")
			}
			k.want(v.got, test.want)
			if v.scratch.Awaits() != 0 {
				t.Errorf("a refused request awaits %b", v.scratch.Awaits())
			}
			k.counts("l", test.counts)
		})
	}
}

// If the least fits, the body is read, and the decision is that on what it reports.
func TestABodyIsReadIfTheLeastFits(t *testing.T) {
	k := newDesk(t, policyOf(plus("100 per minute by ip")), nil)
	v := &visit{desk: k}
	for _, units := range []int64{55, 30} {
		v.post(units, "l")
		v.end()
	}
	k.want(v.got, "allowed 100 5 60 0")
	for _, step := range []struct {
		units int64
		want  string
	}{{1, "refused 100 0 60 60"}, {0, "allowed 100 0 60 0"}} {
		if !v.post(step.units, "l") {
			t.Errorf("a body that reports %d is not read", step.units)
		}
		k.want(v.got, step.want)
		v.end()
	}
	k.counts("l", "100")
}

// What never refuses a caller reads its body: an exemption, and a limiter that is uncounted while
// its store does not answer.
func TestABodyIsReadOfARequestThatIsNeverRefused(t *testing.T) {
	l := plus("100 per minute by ip")
	l.Exempt = []weir.Who{whom(ip["ip"])}
	v := &visit{desk: newDesk(t, policyOf(l), nil)}
	for range 3 {
		if !v.post(80, "l") || !v.got.Allowed || v.got.Cost != 60 {
			t.Errorf("of an exempt caller: %+v", v.got)
		}
	}

	for mode, read := range map[weir.FailureMode]bool{weir.FailAllow: true, weir.FailLocal: true, weir.FailDeny: false} {
		l := plus("100 per minute by ip")
		l.OnStoreFailure = mode
		clock := storetest.StartManualClock()
		store, err := failover.New(unanswering{}, newStore(t, clock), failover.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		d, err := weir.New(policyOf(l), store, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := &body{units: 80}
		got, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: me, Reporter: b, Scratch: new(weir.Scratch)})
		if err != nil || got.Allowed != read || b.reads > 0 != read || !read && got.Outcome != weir.StoreUnavailable {
			t.Errorf("%v: the body is read %d times, %+v, %v", mode, b.reads, got, err)
		}
	}
}

// An unanswering store never answers.
type unanswering struct{ weir.Settler }

func (unanswering) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	return errors.New("connection refused")
}

// A denied caller's body is not read, even if a limiter before the one that denies it would be.
func TestADeniedRequestIsNotRead(t *testing.T) {
	denying := plus("100 per minute by ip")
	denying.Name, denying.Deny = "denying", []weir.Who{whom(ip["ip"])}
	v := &visit{desk: newDesk(t, policyOf(plus("100 per minute by ip"), denying), nil)}
	for _, names := range [][]string{{"denying"}, {"l", "denying"}} {
		if v.post(1, names...) || v.got.Outcome != weir.Denied {
			t.Errorf("%q: %+v", names, v.got)
		}
	}
	v.counts("l", "0")
}

// A refused request's body is not read for what it is tried out under either: that charges the
// most.
func TestATrialOfAnUnreadRequestChargesTheMost(t *testing.T) {
	shadow := shadowOf(reservesAsTold("1000 per minute by ip"))
	shadow.Name = "shadow"
	k := newDesk(t, policyOf(plus("64 per minute by ip"), shadow), nil)
	v := &visit{desk: k}
	v.post(55, "l", "shadow")
	v.end()
	k.counts("shadow", "55")
	if v.post(1, "l", "shadow") {
		t.Error("the body is read")
	}
	k.counts("shadow", "155")
}

// Whether a request's cost is known at once, or its body is read for it, it is admitted or refused
// alike, and charged alike.
func TestReadingTheBodyLaterChangesNoDecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		first := plus("60 per minute by ip", "3 requests per minute by ip", "90 per calendar day in Europe/Berlin by ip")
		sets := [][]string{{"l"}, {"second"}, {"l", "second"}, {"second", "l"}}
		if rapid.Bool().Draw(rt, "in flight") {
			first = inFlight(first, 2)
		}
		if rapid.Bool().Draw(rt, "penalty") {
			first.Penalty = weir.Penalty{After: 2, Per: time.Minute, For: 2 * time.Minute}
			// Of several limiters, the least cost may be refused by fewer than the real one. So a
			// penalty may count fewer refusals if bodies are read for their cost.
			sets = sets[:2]
		}
		second := reservesAsTold("30 per minute by ip")
		second.Name, second.Cost = "second", 20
		known, later := newDesk(t, policyOf(first, second), nil), newDesk(t, policyOf(first, second), nil)
		var open []*visit
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				by := time.Duration(rapid.IntRange(1, 70).Draw(rt, "seconds")) * time.Second
				known.clock.Advance(by)
				later.clock.Advance(by)
			case 1:
				for _, v := range open {
					v.spent(3)
					v.end()
				}
				open = nil
			default:
				names := rapid.SampledFrom(sets).Draw(rt, "limiters")
				b := &body{units: rapid.Int64Range(0, 30).Draw(rt, "units")}
				a, z := &visit{desk: known}, &visit{desk: later}
				z.post(b.units, names...)
				b.reads = 1 // it does not wait
				if err := a.d.DecideInto(a.Context(), &weir.Request{Limiters: names, Keys: me, Scratch: &a.scratch, Reporter: b}, &a.got); err != nil {
					rt.Fatal(err)
				}
				if open = append(open, a, z); a.got.Allowed != z.got.Allowed {
					rt.Fatalf("%q for %d: allowed %v if the cost is known, %v if the body is read for it", names, b.units, a.got.Allowed, z.got.Allowed)
				}
			}
			for _, name := range []string{"l", "second"} {
				if x, y := countsOf(rt, known, name), countsOf(rt, later, name); x != y {
					rt.Fatalf("%s counts %s if costs are known, and %s if bodies are read for them", name, x, y)
				}
			}
		}
	})
}

func countsOf(rt *rapid.T, k *desk, limiter string) (counts string) {
	states, err := k.d.Inspect(context.Background(), limiter, me)
	if err != nil {
		rt.Fatal(err)
	}
	for _, s := range states {
		counts += fmt.Sprint(s.Count, " until ", s.Reset, "; ")
	}
	return counts
}
