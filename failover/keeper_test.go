package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A keptLink is a link to a common store over which an operator's changes still
// arrive.
type keptLink struct{ *link }

func (k keptLink) Reset(ctx context.Context, charges []weir.Charge) error {
	for i := range charges {
		k.known.Delete(string(charges[i].Key))
	}
	return k.inner.Reset(ctx, charges)
}

func (k keptLink) Grant(ctx context.Context, charges []weir.Charge, grants []weir.Grant) error {
	return k.inner.Grant(ctx, charges, grants)
}

func (k keptLink) Granted(charges []weir.Charge, grants []weir.Grant) bool {
	return k.inner.Granted(charges, grants)
}

// Units that were counted here for a window before its reset are not given to the
// store after it.
func TestAResetDropsPendingUnits(t *testing.T) {
	for _, reset := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newCommon(t)
			n := newNodeBy(t, 100*time.Millisecond, store, keptLink{&link{common: store}}, limiter("l", "9 per hour by ip"))
			store.mode.Store(fails)
			for range 4 {
				n.ask("l", 0, ip)
			}
			if reset {
				if err := n.d.Reset(context.Background(), "l", ip); err != nil {
					t.Fatal(err)
				}
			}
			store.mode.Store(answers)
			for range 10 {
				n.over.Probe(context.Background())
				time.Sleep(time.Second)
				synctest.Wait()
			}
			want := map[bool]int64{false: 4, true: 0}[reset]
			if got := store.units(); got != want {
				t.Errorf("reset %v: the store was given %d units, want %d", reset, got, want)
			}
			if d := n.ask("l", 0, ip); d.Binding().Remaining != 8-want {
				t.Errorf("reset %v: %d left, want %d", reset, d.Binding().Remaining, 8-want)
			}
		})
	}
}
