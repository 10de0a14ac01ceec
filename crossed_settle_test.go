package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A reader reads the costs of requests from their answers, and notes what is reported.
type reader struct {
	*desk
	n *noted
}

// newReader returns a decider that counts in a memstore, behind wrap if that is not nil.
func newReader(t *testing.T, p weir.Policy, wrap func(weir.Settler) weir.Store) *reader {
	t.Helper()
	n := new(noted)
	k := &desk{bench: &bench{TB: t, clock: storetest.StartManualClock()}}
	k.store = newStore(t, k.clock)
	var store weir.Store = k.store
	if wrap != nil {
		store = wrap(k.store)
	}
	var err error
	if k.d, err = weir.New(p, store, weir.Options{OnCrossed: n.note}); err != nil {
		t.Fatal(err)
	}
	return &reader{k, n}
}

func shares(l weir.Limiter, percents ...int64) weir.Limiter {
	l.Notify = percents
	return l
}

func TestACostThatTheAnswerReportsReachesPercentages(t *testing.T) {
	k := newReader(t, policyOf(shares(priced("l", 1, "1000 per day by ip"), 75, 90, 100)), nil)
	want := map[int][]string{4: {"l 75%: 800 of 1000"}, 5: {"l 90%: 1000 of 1000", "l 100%: 1000 of 1000"}}
	for i := 1; i <= 8; i++ {
		v := k.visit("l")
		k.n.want(t)
		v.spent(200)
		k.n.want(t, want[i]...)
		v.end()
		k.n.want(t)
	}
}

func TestAReservationThatIsGivenBackReachesNothing(t *testing.T) {
	k := newReader(t, policyOf(shares(priced("l", 300, "1000 per day by ip"), 70, 90, 100)), nil)
	for i := 1; i <= 36; i++ {
		v := k.visit("l")
		v.spent(20)
		v.end()
		if i != 35 {
			k.n.want(t)
			continue
		}
		k.n.want(t, "l 70%: 700 of 1000")
		v.again("l") // reserves all that is left
		v.spent(0)
		k.n.want(t)
	}
}

func TestWhatIsUsedByTheSettlementIsReported(t *testing.T) {
	k := newReader(t, policyOf(shares(priced("l", 100, "1000 per day by ip", "9 requests per day by ip"), 50, 70)), nil)
	a, b, c, last := k.visit("l"), k.visit("l"), k.visit("l"), k.visit("l")
	for _, v := range []*visit{a, b, c} {
		v.spent(150)
		v.end()
	}
	k.n.want(t, "l 50%: 500 of 1000") // with what the last has reserved
	e := k.visit("l")
	k.n.want(t, "l 50%: 5 of 9") // requests are counted at once
	e.spent(100)                 // as much as it has reserved
	k.n.want(t)
	last.spent(90)
	k.n.want(t)
	k.counts("l", "640 5")
	f := k.visit("l")
	k.n.want(t)
	f.end() // the answer has not reported a cost
	k.n.want(t, "l 70%: 740 of 1000")
}

func TestAStatusThatIsNotCountedReachesNothing(t *testing.T) {
	k := newReader(t, policyOf(shares(onlyFailures(limiter("login", "2 per minute by ip")), 50, 100)), nil)
	for _, step := range []struct {
		status int
		want   []string
	}{{200, nil}, {401, []string{"login 50%: 1 of 2"}}, {200, nil}, {401, []string{"login 100%: 2 of 2"}}} {
		v := k.visit("login")
		k.n.want(t)
		v.answered(step.status)
		k.n.want(t, step.want...)
		v.end()
		k.n.want(t)
	}
	k.clock.Advance(time.Minute)
	v := k.visit("login")
	v.end() // its caller has left
	k.n.want(t, "login 50%: 1 of 2")
}

func TestARequestWhoseCostNobodyReportsIsReportedAtOnce(t *testing.T) {
	k := newReader(t, policyOf(shares(priced("l", 60, "100 per minute by ip"), 50), shares(limiter("plain", "100 per minute by ip"), 50)), nil)
	k.ask("l", 0, caller{"ip": "192.0.2.9"}) // without a Scratch
	k.n.want(t, "l 50%: 60 of 100")
	v := k.visit("l")
	v.d.KeepReserved(&v.scratch)
	k.n.want(t, "l 50%: 60 of 100")
	v.again("plain")
	v.spent(70) // a handler knows better
	k.n.want(t, "plain 50%: 70 of 100")
}

func TestAWindowThatHasEndedIsReportedByWhatWasUsedOfIt(t *testing.T) {
	k := newReader(t, policyOf(shares(priced("l", 60, "100 per minute by ip"), 50, 70)), nil)
	for _, used := range []int64{40, 65} {
		v := k.visit("l")
		k.clock.Advance(time.Minute)
		v.spent(used)
	}
	k.n.want(t, "l 50%: 65 of 100")
}

func TestTrialsReportWhatTheyAreSettledAt(t *testing.T) {
	tried := shadowOf(shares(priced("tried", 40, "100 per minute by ip"), 60))
	k := newReader(t, policyOf(limiter("l", "900 per minute by ip"), tried), nil)
	for _, want := range [][]string{nil, {"tried 60%: 60 of 100, shadow"}} {
		v := k.visit("l", "tried")
		k.n.want(t)
		v.spent(30)
		v.end()
		k.n.want(t, want...)
	}
}

// apart is a store that is not in this process.
type apart struct{ weir.Settler }

// lossy is one that loses each settlement.
type lossy struct{ weir.Settler }

func (lossy) Settle(_ context.Context, _ *weir.Ticket, changes []weir.Change) error {
	for i := range changes {
		changes[i].Lost = true
	}
	return nil
}

func TestAStoreElsewhereReportsWhenItHasSettled(t *testing.T) {
	for name, test := range map[string]struct {
		wrap func(weir.Settler) weir.Store
		want []string
	}{
		"it settles":  {func(s weir.Settler) weir.Store { return apart{s} }, []string{"l 20%: 22 of 100", "l 30%: 40 of 100"}},
		"it loses it": {func(s weir.Settler) weir.Store { return lossy{s} }, []string{"l 20%: 30 of 100", "l 30%: 30 of 100", "l 60%: 60 of 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newReader(t, policyOf(shares(priced("l", 30, "100 per day by ip"), 20, 30, 60), limiter("other", "900 per minute by ip")), test.wrap)
				for _, used := range []int64{22, 18} {
					v := k.visit("l")
					v.spent(used)
					// The Scratch is used again, maybe before the store has settled.
					v.again("other")
					v.end()
					synctest.Wait()
				}
				slices.Sort(k.n.lines) // two requests may report in the other order
				k.n.want(t, test.want...)
			})
		})
	}
}

// However requests overlap, each percentage that was used in the end was reported, and none that
// was never even reserved.
func TestNoOrderOfSettlementsMissesAPercentage(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		k := newReader(t, policyOf(shares(onlyFailures(priced("l", 7, "100 per day by ip")), 10, 30, 50, 70, 90, 100)), nil)
		var open []*visit
		var most, used int64
		for range 60 {
			if len(open) < 5 && random.IntN(2) == 0 {
				v := k.visit("l")
				if v.got.Allowed {
					open = append(open, v)
				}
			} else if n := len(open); n > 0 {
				i := random.IntN(n)
				v := open[i]
				open = append(open[:i], open[i+1:]...)
				v.answered([]int{200, 401, 401}[random.IntN(3)])
				if random.IntN(4) > 0 {
					v.spent(random.Int64N(15))
				}
				v.end()
			}
			used = k.count("l")
			most = max(most, used)
		}
		for _, v := range open {
			v.answered(200)
			v.end()
		}
		used = k.count("l")
		all := strings.Join(k.n.lines, "\n")
		for _, percent := range []int64{10, 30, 50, 70, 90, 100} {
			reported := strings.Contains(all, fmt.Sprintf("l %d%%:", percent))
			if reported && most < percent || !reported && used >= percent {
				t.Fatalf("seed %d: %d are used, at most %d were: %d%% is reported: %v; all:\n%s", seed, used, most, percent, reported, all)
			}
		}
	}
}

// count returns the count of a limiter's only window.
func (k *desk) count(limiter string) int64 {
	k.Helper()
	states, err := k.d.Inspect(k.Context(), limiter, me)
	if err != nil {
		k.Fatal(err)
	}
	return states[0].Count
}

// Requests that settle are reported for free as long as they reach nothing.
func TestNotifyIsFreeForSettlementsThatReachNothing(t *testing.T) {
	p := policyOf(shares(onlyFailures(priced("l", 5, "1000 per minute by ip")), 75))
	d, err := weir.New(p, newStore(t, storetest.StartManualClock()), weir.Options{OnCrossed: func(weir.Crossed) { t.Error("reported") }})
	if err != nil {
		t.Fatal(err)
	}
	var s weir.Scratch
	var out weir.Decision
	r := weir.Request{Limiters: []string{"l"}, Keys: weir.Keys(me), Scratch: &s}
	if n := testing.AllocsPerRun(200, func() {
		if err := d.DecideInto(context.Background(), &r, &out); err != nil || !out.Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		d.Answered(context.Background(), &s, 401, &out)
		d.Spent(context.Background(), &s, 1, &out)
		d.End(context.Background(), &s)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
