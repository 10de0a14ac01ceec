package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// While its inner store answers, a failover.Store passes the tests of any store.
func TestAFailoverStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		return around(t, newMem(t, clock.Now), newMem(t, clock.Now), clock.Now), clock
	})
}

// If the inner store never answers, it passes them, too: the fallback is a store as
// well.
func TestAFailoverStoreWithADeadStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		dead := &remote{}
		dead.mode.Store(fails)
		return takesAlone{around(t, dead, newMem(t, clock.Now), clock.Now)}, clock
	})
}

// takesAlone hides that a store is a Keeper.
type takesAlone struct{ weir.Store }

func newMem(t testing.TB, now func() time.Time) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func around(t testing.TB, inner, fallback weir.Store, now func() time.Time) *failover.Store {
	t.Helper()
	s, err := failover.New(inner, fallback, failover.Options{Now: now, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A take never returns an error, even if the inner store fails.
func TestATakeReturnsNoError(t *testing.T) {
	r := &remote{}
	r.mode.Store(fails)
	for _, fallback := range []weir.Store{nil, newMem(t, time.Now)} {
		s := around(t, r, fallback, time.Now)
		charges := []weir.Charge{{Key: []byte("k"), Limit: 3, Per: 60, Cost: 1}}
		// Left by an earlier take.
		receipt := weir.Receipt{Outcome: weir.AllowedUncounted, Remembered: true, Allowed: true}
		if err := s.Take(t.Context(), charges, &receipt); err != nil {
			t.Error(err)
		}
		want := weir.StoreUnavailable
		if fallback != nil {
			want = weir.CountedLocally
		}
		if receipt.Outcome != want || receipt.Allowed == (fallback == nil) || receipt.Remembered {
			t.Errorf("receipt %+v, want outcome %v", receipt, want)
		}
	}
}

// A limiter in Shadow mode is charged like any other: within the deadline, and in
// the fallback's windows if the store is silent. Its request does not wait for
// that.
func TestShadowChargesUseTheFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{inner: newMem(t, time.Now)}
		r.mode.Store(hangs)
		soon := limiter("soon", "1 per minute by ip")
		soon.Mode = weir.Shadow
		over, err := failover.New(r, newMem(t, time.Now), failover.Options{Deadline: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		decisions := make(chan weir.Decision, 2)
		d, err := weir.New(policyOf(soon), over, weir.Options{OnShadow: func(s weir.Shadowed) { decisions <- *s.Decision }})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for i, allowed := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			got, err := d.Decide(ctx, weir.Request{Limiters: []string{"soon"}, Keys: ip})
			cancel()
			if err != nil || got.Outcome != weir.Unlimited || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("the request got %+v, %v after %v", got, err, time.Since(start))
			}
			if s := <-decisions; s.Outcome != weir.CountedLocally || s.Allowed != allowed || time.Since(start) != time.Duration(i+1)*time.Second {
				t.Errorf("the shadow got %+v after %v", s, time.Since(start))
			}
		}
	})
}

// An operator gets the inner store's counts, or its error, but not the fallback's
// counts.
func TestOperatorsReadTheInnerStore(t *testing.T) {
	for _, failure := range []int32{answers, fails} {
		inner := &keptRemote{remote{inner: newMem(t, time.Now)}}
		inner.mode.Store(failure)
		b := newBench(t, policyOf(limiter("l", "3 per minute by ip")), inner, newMem(t, time.Now), failover.Options{})
		b.ask("l", 0, ip)
		held, err := b.d.Inspect(t.Context(), "l", ip)
		if failure == fails {
			if !errors.Is(err, errDown) {
				t.Errorf("inspect: %+v, %v", held, err)
			}
			if err := b.d.Grant(t.Context(), "l", ip, []int64{9}, time.Now().Add(time.Hour).Unix()); !errors.Is(err, errDown) {
				t.Errorf("grant: %v", err)
			}
			if err := b.d.Reset(t.Context(), "l", ip); !errors.Is(err, errDown) {
				t.Errorf("reset: %v", err)
			}
			continue
		}
		if err != nil || held[0].Count != 1 {
			t.Errorf("inspect: %+v, %v", held, err)
		}
		if err := b.d.Grant(t.Context(), "l", ip, []int64{9}, time.Now().Add(time.Hour).Unix()); err != nil {
			t.Errorf("grant: %v", err)
		}
		if d := b.ask("l", 0, ip); d.Binding().Limit != 9 || d.Binding().Remaining != 7 {
			t.Errorf("under a grant: %+v", d.Binding())
		}
		if err := b.d.Reset(t.Context(), "l", ip); err != nil {
			t.Errorf("reset: %v", err)
		}
		if d := b.ask("l", 0, ip); d.Binding().Remaining != 8 {
			t.Errorf("after a reset: %+v", d.Binding())
		}
	}
}

// If another store wraps a failover.Store, for example to measure it, operators
// still reach the innermost store.
func TestOperatorsReadTheInnermostStore(t *testing.T) {
	inner := &remote{inner: newMem(t, time.Now)}
	inner.mode.Store(fails)
	measured := measuring{around(t, inner, newMem(t, time.Now), time.Now)}
	d, err := weir.New(policyOf(limiter("l", "3 per minute by ip")), measured, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if held, err := d.Inspect(t.Context(), "l", ip); !errors.Is(err, errDown) {
		t.Errorf("inspect: %+v, %v", held, err)
	}
	if err := d.Reset(t.Context(), "l", ip); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("reset: %v", err)
	}
}

// measuring is a store around a failover.Store.
type measuring struct{ *failover.Store }

func (m measuring) Unwrap() weir.Store { return m.Store }

// A keptRemote is a remote whose windows an operator can change.
type keptRemote struct{ remote }

func (k *keptRemote) keeper() weir.Keeper { return k.inner.(weir.Keeper) }

func (k *keptRemote) Reset(ctx context.Context, charges []weir.Charge) error {
	if k.mode.Load() != answers {
		return errDown
	}
	return k.keeper().Reset(ctx, charges)
}

func (k *keptRemote) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	if k.mode.Load() != answers {
		return errDown
	}
	return k.keeper().Grant(ctx, charges, grants)
}

func (k *keptRemote) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	return k.keeper().Granted(charges, grants)
}

// It is a Keeper only if its inner store is one.
func TestAFailoverStoreIsAKeeperOnlyAroundOne(t *testing.T) {
	b := newBench(t, policyOf(limiter("l", "3 per minute by ip")), &remote{inner: newMem(t, time.Now)}, nil, failover.Options{})
	if err := b.d.Reset(t.Context(), "l", ip); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("reset: %v", err)
	}
	if err := b.d.Grant(t.Context(), "l", ip, []int64{9}, 0); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("grant: %v", err)
	}
	if err := b.over.Reset(t.Context(), nil); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("reset of the store: %v", err)
	}
	if err := b.over.Grant(t.Context(), nil, nil); !errors.Is(err, weir.ErrNoKeeper) {
		t.Errorf("grant of the store: %v", err)
	}
	if b.over.Granted(nil, nil) {
		t.Error("granted")
	}
}
