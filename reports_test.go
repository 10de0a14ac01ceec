package weir_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// get asks for a path.
func (v *visit) get(path string) {
	v.Helper()
	if err := v.d.DecideInto(v.Context(), &weir.Request{Method: "GET", Path: path, Keys: me, Scratch: &v.scratch}, &v.got); err != nil {
		v.Fatal(err)
	}
}

func (k *desk) got(path string) *visit {
	k.Helper()
	v := &visit{desk: k}
	v.get(path)
	return v
}

// A limiter in mode shadow counts what the limiter would that it is to become, also where no other
// limiter awaits anything, or covers the request.
func TestAShadowIsSettled(t *testing.T) {
	k := newDesk(t, policyOf(
		routed(limiter("live", "9 per minute by ip"), "/a"),
		shadowOf(routed(onlyFailures(priced("s", 5, "10 per minute by ip", "9 requests per hour by ip")), "/a", "/b"))), nil)
	for i, path := range []string{"/a", "/b"} {
		v := k.got(path)
		if a := v.scratch.Awaits(); a != weir.AwaitsStatus|weir.AwaitsCost || v.scratch.Reading() != fromTokens || v.scratch.CanSettle() != (path == "/a") {
			t.Errorf("%s awaits %b from %v", path, a, v.scratch.Reading())
		}
		k.counts("s", "5 1")
		v.answered(200)
		k.wantSettled("s 5 0 shadow")
		k.counts("s", "0 0")
		if v.scratch.Awaits() != 0 {
			t.Error("it still awaits something")
		}
		v.end()
		v.get(path)
		v.answered(401)
		v.d.SpentFrom(t.Context(), &v.scratch, fromTokens, 3, &v.got)
		v.end()
		k.wantSettled("s 5 3 shadow")
		k.counts("s", "3 1")
		v.get(path)
		v.answered(401)
		v.get("/nowhere") // the next use ends it
		k.wantSettled("s 5 5 unreported shadow")
		k.counts("s", "8 2")
		k.counts("live", []string{"3", "0"}[i])
		k.clock.Advance(time.Hour)
	}
}

// A handler that tells what it has spent settles the live limiter as without a shadow.
func TestAShadowDoesNotChangeWhatIsSettled(t *testing.T) {
	k := newDesk(t, policyOf(
		routed(limiter("live", "90 per minute by ip"), "/a"),
		shadowOf(routed(priced("s", 5, "10 per minute by ip"), "/a"))), nil)
	v := k.got("/a")
	v.d.SpentFrom(t.Context(), &v.scratch, fromTokens, 3, &v.got) // read for the shadow alone
	k.wantSettled("s 5 3 shadow")
	k.counts("live", "1")
	v.get("/a")
	v.spent(4)
	k.wantSettled("s 5 4 shadow; live 1 4")
	k.counts("live", "5")
	v.end()
	k.wantSettled("")
}

func TestAShadowHoldsItsSlotUntilTheEnd(t *testing.T) {
	k := newDesk(t, policyOf(
		routed(limiter("live", "3 per minute by ip"), "/a"),
		shadowOf(routed(inFlight(limiter("s", "9 per minute by ip"), 2), "/a")),
		shadowOf(routed(inFlight(limiter("t", "9 per minute by ip"), 1), "/a"))), nil)
	a, b := k.got("/a"), k.got("/a")
	if b.scratch.Awaits() != weir.AwaitsEnd {
		t.Errorf("it awaits %b", b.scratch.Awaits())
	}
	c := k.got("/a")
	k.counts("s", "2 2")
	k.counts("t", "1 1")
	a.end()
	k.counts("s", "2 1")
	k.counts("t", "1 0")
	// refused: the trials end at once
	if d := k.got("/a"); d.got.Allowed || d.scratch.Awaits() != 0 {
		t.Errorf("%+v", d.got)
	}
	k.counts("s", "3 1")
	k.counts("t", "2 0")
	b.get("/nowhere")
	c.end()
	k.counts("s", "3 0")
	want := []string{"s true", "t true", "s true", "t false", "s false", "t false", "s true", "t true"}
	if fmt.Sprint(k.shadows) != fmt.Sprint(want) {
		t.Errorf("shadows %q, want %q", k.shadows, want)
	}
}

func TestAShadowOfAServedRequestHoldsNoSlot(t *testing.T) {
	k := newDesk(t, policyOf(
		routed(limiter("live", "9 per minute by ip"), "/a"),
		shadowOf(routed(inFlight(limiter("s", "9 per minute by ip"), 2), "/a"))), nil)
	a, b := k.got("/a"), k.got("/a")
	for range 2 {
		a.d.Served(t.Context(), &a.scratch)
		k.counts("s", "2 1")
	}
	a.end()
	k.counts("s", "2 1")
	b.end()
	k.counts("s", "2 0")
}

func TestACandidateIsSettled(t *testing.T) {
	k := newDesk(t, policyOf(routed(limiter("live", "9 per minute by ip"), "/a")), nil)
	candidate := policyOf(routed(inFlight(priced("live", 5, "11 per minute by ip"), 1), "/a"))
	if err := k.d.SetCandidate(&candidate, newStore(t, k.clock)); err != nil {
		t.Fatal(err)
	}
	var v *visit
	for range 4 { // one after the other, each with 2 units
		v = k.got("/a")
		v.d.SpentFrom(t.Context(), &v.scratch, v.scratch.Reading(), 2, &v.got)
		v.end()
	}
	k.got("/a") // 8 units are spent of 11
	if err := k.d.SetCandidate(nil, nil); err != nil {
		t.Fatal(err)
	}
	v.end()
	v.get("/a")
	if want := "[true true true true false]"; fmt.Sprint(k.compared) != want || v.scratch.Awaits() != 0 {
		t.Errorf("compared %v, want %s", k.compared, want)
	}
	k.wantSettled("") // it is no limiter in force
	k.counts("live", "6")
}

// A slotted candidate is full until the request has ended, and may be replaced before that.
func TestACandidateHoldsItsSlots(t *testing.T) {
	k := newDesk(t, policyOf(routed(limiter("live", "9 per minute by ip"), "/a")), nil)
	candidate := policyOf(routed(inFlight(limiter("live", "10 per minute by ip"), 1), "/a"))
	store := newStore(t, k.clock)
	if err := k.d.SetCandidate(&candidate, store); err != nil {
		t.Fatal(err)
	}
	v, w := k.got("/a"), k.got("/a")
	if err := k.d.SetCandidate(&candidate, store); err != nil {
		t.Fatal(err)
	}
	k.got("/a")
	v.end()
	w.end()
	k.got("/a")
	if want := "[true false false true]"; fmt.Sprint(k.compared) != want {
		t.Errorf("compared %v, want %s", k.compared, want)
	}
}

// slowSettler is a store elsewhere that is slow for one limiter.
type slowSettler struct {
	weir.Settler
	slow *slowFor
}

func (s slowSettler) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	return s.slow.Take(ctx, charges, r)
}

// What a request tells while its shadow waits for the store is not lost.
func TestAShadowIsSettledWhenItsStoreHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storetest.StartManualClock()
		store := newStore(t, clock)
		k := &desk{bench: &bench{TB: t, clock: clock}}
		var err error
		k.d, err = weir.New(policyOf(
			routed(limiter("live", "900 per minute by ip"), "/a"),
			shadowOf(routed(onlyFailures(inFlight(priced("soon", 5, "1000 per hour by ip"), 400)), "/a"))),
			slowSettler{store, &slowFor{Store: store, scope: "soon", wait: time.Minute}}, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		states := func(when, want string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			got, err := k.d.Inspect(t.Context(), "soon", me)
			if err != nil || fmt.Sprint(got[0].Count, " ", got[1].Count) != want {
				t.Errorf("%s: %d units and %d slots, %v; want %s", when, got[0].Count, got[1].Count, err, want)
			}
		}
		early, partly, late, refused := k.got("/a"), k.got("/a"), k.got("/a"), k.got("/a")
		if a := early.scratch.Awaits(); a != weir.AwaitsStatus|weir.AwaitsCost|weir.AwaitsEnd || early.scratch.Reading() != fromTokens {
			t.Errorf("it awaits %b", a)
		}
		early.answered(401)
		early.d.SpentFrom(t.Context(), &early.scratch, fromTokens, 2, nil)
		early.end()
		refused.answered(200)
		partly.answered(401)
		states("when the store has answered", "12 3") // 2 + 5 + 5 + 0
		partly.spent(1)
		late.answered(401)
		late.spent(40)
		states("when all have told", "43 3")
		partly.end()
		late.end()
		refused.end()
		states("in the end", "43 0")
	})
}

// A cost that is told for another limiter, while a shadow waits for the store, does not take the
// place of the shadow's own.
func TestAShadowWaitsForTheCostThatItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storetest.StartManualClock()
		store := newStore(t, clock)
		k := &desk{bench: &bench{TB: t, clock: clock}}
		live, fromHeader := routed(limiter("live", "900 per minute by ip"), "/a"), weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
		live.Cost, live.Actual = 9, fromHeader
		var err error
		k.d, err = weir.New(policyOf(live, shadowOf(routed(priced("soon", 5, "1000 per hour by ip"), "/a"))),
			slowSettler{store, &slowFor{Store: store, scope: "soon", wait: time.Minute}}, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := k.got("/a")
		v.d.SpentFrom(t.Context(), &v.scratch, fromHeader, 3, nil)
		if a, r := v.scratch.Awaits(), v.scratch.Reading(); a != weir.AwaitsCost || r != fromTokens {
			t.Errorf("it awaits %b, from %v", a, r)
		}
		v.d.SpentFrom(t.Context(), &v.scratch, fromTokens, 2, nil)
		v.end()
		time.Sleep(2 * time.Minute)
		k.counts("soon", "2")
	})
}

// Settlements that wait for a store are bounded, and slots are given back all the same.
func TestEverySlotIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 5000
		clock := storetest.StartManualClock()
		store := newStore(t, clock)
		k := &desk{bench: &bench{TB: t, clock: clock}}
		var err error
		k.d, err = weir.New(policyOf(inFlight(priced("l", 5, "1000000 per hour by ip"), requests)), waitingSettler{store}, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var all []*visit
		for range requests {
			all = append(all, k.visit("l"))
		}
		for _, v := range all {
			v.spent(0)
			v.end()
		}
		synctest.Wait()
		k.d.Close(t.Context())
		synctest.Wait()
		got, err := k.d.Inspect(t.Context(), "l", me)
		if err != nil || got[1].Count != 0 || got[0].Count == 0 {
			t.Errorf("%d units and %d slots, %v", got[0].Count, got[1].Count, err)
		}
	})
}

// waitingSettler is a store elsewhere that takes a minute to settle.
type waitingSettler struct{ weir.Settler }

func (s waitingSettler) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	time.Sleep(time.Minute)
	return s.Settler.Settle(ctx, t, changes)
}

// The trials that wait for their requests to end are bounded. One more ends at once: it holds no
// slot, and its reservation stays.
func TestKeptTrialsAreBounded(t *testing.T) {
	k := newDesk(t, policyOf(shadowOf(routed(inFlight(priced("s", 5, "1000000 per minute by ip"), 1_000_000), "/a"))), nil)
	const kept = 8192
	var all []*visit
	for range kept + 3 {
		all = append(all, k.got("/a"))
	}
	k.counts("s", fmt.Sprint(5*(kept+3), " ", kept))
	if last := all[kept+2]; last.scratch.Awaits() != 0 {
		t.Errorf("it awaits %b", last.scratch.Awaits())
	}
	all[0].spent(1)
	all[0].end()
	k.got("/a").spent(1) // there is room for one
	k.counts("s", fmt.Sprint(5*(kept+4)-8, " ", kept))
	for _, v := range all {
		v.end()
	}
	k.counts("s", fmt.Sprint(5*(kept+4)-8, " 1"))
}

// yieldingSettler is a store elsewhere that lets others run before it answers.
type yieldingSettler struct {
	weir.Settler
	takes atomic.Int64
}

func (s *yieldingSettler) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	for range s.takes.Add(1) % 7 {
		runtime.Gosched()
	}
	return s.Settler.Take(ctx, charges, r)
}

// Whatever a trial is told before, while and after its store answers, it is settled once.
func TestTrialsAreToldAtAnyMoment(t *testing.T) {
	const callers, requests = 8, 200
	store := newStore(t, storetest.StartManualClock())
	var admitted atomic.Int64
	d, err := weir.New(policyOf(
		routed(limiter("live", "1000000 per hour by ip"), "/a"),
		shadowOf(routed(onlyFailures(inFlight(priced("s", 5, "1000000 per hour by ip"), 1_000_000)), "/a"))),
		&yieldingSettler{Settler: store}, weir.Options{OnShadow: func(s weir.Shadowed) {
			if !s.Skipped {
				admitted.Add(1)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			v := &visit{desk: &desk{bench: &bench{TB: t, d: d}}}
			for n := range requests {
				v.get("/a")
				if n%2 == 0 {
					runtime.Gosched()
				}
				v.answered(401)
				v.d.SpentFrom(t.Context(), &v.scratch, fromTokens, 2, nil)
				if n%3 == 0 {
					runtime.Gosched()
				}
				if n%5 > 0 {
					v.end()
				}
			}
			v.end()
		})
	}
	all.Wait()
	d.Close(t.Context())
	got, err := d.Inspect(t.Context(), "s", me)
	if err != nil || got[0].Count != 2*admitted.Load() || got[1].Count != 0 {
		t.Errorf("%d trials of 2 units: %d units and %d slots, %v", admitted.Load(), got[0].Count, got[1].Count, err)
	}
}
