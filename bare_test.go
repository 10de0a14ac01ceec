package weir_test

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// If the store returns an error, no charge is certain, so the request is refused
// under every on_store_failure. Only package failover does better.
func TestABareStoreThatFailsRefuses(t *testing.T) {
	for mode := weir.FailLocal; mode <= weir.FailDeny; mode++ {
		l := limiter("l", "3 per minute by ip")
		l.OnStoreFailure = mode
		d, err := weir.New(policyOf(l), silent{}, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{TB: t, d: d}
		got := b.ask("l", 0, ip)
		b.want(got, "refused 3 0 1 1")
		if got.Outcome != weir.StoreUnavailable {
			t.Errorf("%v: outcome %v, want StoreUnavailable", mode, got.Outcome)
		}
	}
}

// A request is counted even if its caller has gone away (D5).
func TestABareStoreCountsACallerThatHasGoneAway(t *testing.T) {
	store := &attentive{Store: newStore(t, storetest.StartManualClock())}
	d, err := weir.New(policyOf(limiter("l", "3 per minute by ip")), store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := d.Decide(ctx, weir.Request{Limiters: []string{"l"}, Keys: ip}); err != nil || got.Outcome != weir.Counted {
		t.Errorf("got %+v, %v", got, err)
	}
}

// attentive stops with its caller's context, unlike the memory store.
type attentive struct{ weir.Store }

func (a *attentive) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.Store.Take(ctx, charges, r)
}

// After a failure, a Scratch reports no failure in the next decision, even by
// another Decider.
func TestAScratchForgetsAFailure(t *testing.T) {
	p, scratch := policyOf(limiter("l", "3 per minute by ip")), new(weir.Scratch)
	for _, test := range []struct {
		store weir.Store
		want  weir.Outcome
	}{{silent{}, weir.StoreUnavailable}, {newStore(t, storetest.StartManualClock()), weir.Counted}} {
		d, err := weir.New(p, test.store, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: ip, Scratch: scratch})
		if err != nil || got.Outcome != test.want {
			t.Errorf("outcome %v, %v; want %v", got.Outcome, err, test.want)
		}
	}
}
