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

// While the store inside answers, the store around it is a store like any other.
func TestAStoreAroundAStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		return around(t, newMem(t, clock.Now), newMem(t, clock.Now), clock.Now), clock
	})
}

// So is one whose inner store never answers: the fallback is a store as well.
func TestAStoreAroundADeadStoreIsAStore(t *testing.T) {
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

// A take never fails, whatever the store inside does.
func TestATakeReturnsNoError(t *testing.T) {
	r := &remote{}
	r.mode.Store(fails)
	for _, fallback := range []weir.Store{nil, newMem(t, time.Now)} {
		s := around(t, r, fallback, time.Now)
		charges := []weir.Charge{{Key: []byte("k"), Limit: 3, Per: 60, Cost: 1}}
		// Of a take before.
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

// A limiter in Shadow mode is charged as any other: within the deadline, and in the fallback's
// windows if the store is silent. Its request does not wait for that.
func TestAShadowIsTakenThroughTheFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &remote{inner: newMem(t, time.Now)}
		r.mode.Store(hangs)
		soon := limiter("soon", "1 per minute by ip")
		soon.Mode = weir.Shadow
		over, err := failover.New(r, newMem(t, time.Now), failover.Options{Deadline: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan weir.Decision, 2)
		d, err := weir.New(policyOf(soon), over, weir.Options{OnShadow: func(s weir.Shadowed) { told <- *s.Decision }})
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
			if s := <-told; s.Outcome != weir.CountedLocally || s.Allowed != allowed || time.Since(start) != time.Duration(i+1)*time.Second {
				t.Errorf("the shadow got %+v after %v", s, time.Since(start))
			}
		}
	})
}

// An operator wants the counts of the store inside, or its error: not what the fallback counted.
func TestAnOperatorAsksTheStoreInside(t *testing.T) {
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

// A store around a failover.Store, such as one that measures, hides the store inside from nobody.
func TestAnOperatorAsksTheInnermostStore(t *testing.T) {
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

// measuring is a store around a store around a store.
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

// It is a Keeper only around one.
func TestAroundAStoreThatIsNoKeeperThereIsNone(t *testing.T) {
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
