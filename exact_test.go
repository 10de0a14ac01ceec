package weir_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// exactness records which charges need the store's very count.
type exactness struct {
	weir.Store
	exact, plain atomic.Int64
}

func (e *exactness) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	for i := range charges {
		if charges[i].Exact {
			e.exact.Add(1)
		} else {
			e.plain.Add(1)
		}
	}
	return e.Store.Take(ctx, charges, r)
}

// A store that charges units before it gives them out must not do so where somebody needs its very
// count: for events, for penalties, and for callers without a limit.
func TestWhoNeedsTheVeryCountSaysSo(t *testing.T) {
	plain := limiter("l", "1 per minute by ip", "9 per hour by ip")
	notifies, exempts, punishes, shadow := plain, plain, plain, plain
	notifies.Notify = []int64{75, 100}
	exempts.Exempt = []weir.Who{whom("192.0.2.1")}
	punishes.Penalty = weir.Penalty{After: 1, Per: time.Minute, For: time.Minute}
	shadow.Mode = weir.Shadow
	for _, c := range []struct {
		name         string
		limiter      weir.Limiter
		exact, plain int64 // charges of an admitted request and a refused one
	}{
		{"a limiter", plain, 0, 4},
		{"a limiter that notifies", notifies, 4, 0},
		{"an exempt caller", exempts, 4, 0},
		// the gate of each request, the refusal, and the penalty that it begins
		{"a limiter with a penalty", punishes, 4, 4},
		{"a limiter in mode shadow", shadow, 0, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts, err := memstore.New(memstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer counts.Close()
			store := &exactness{Store: counts}
			d, err := weir.New(policyOf(c.limiter), store, weir.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"l"}, Keys: from("192.0.2.1", "")}); err != nil {
					t.Fatal(err)
				}
			}
			d.Close(t.Context())
			if exact, plain := store.exact.Load(), store.plain.Load(); exact != c.exact || plain != c.plain {
				t.Errorf("%d charges are exact and %d are not, want %d and %d", exact, plain, c.exact, c.plain)
			}
		})
	}
}
