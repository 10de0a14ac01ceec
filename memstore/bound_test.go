package memstore

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// The table is always full, and windows end all the time. So places and shared
// budgets are taken over by others during the takes that need them. No take waits
// for itself, and no key exceeds its limit.
func TestAtTheBoundNoTakeWaitsForItself(t *testing.T) {
	clock := storetest.StartManualClock()
	s := newStore(t, Options{Memory: 16 << 10, Now: clock.Now}, smallLines)
	for who := range uint64(30_000) {
		a, b := charge(who, 3), charge(1<<40|who, 3)
		b.Key[0] = 'B'
		a.Per, b.Per = int64(1+who%7), int64(1+who%11)
		s.mustTake(t, a, b)
		if who%50 == 0 {
			clock.Advance(time.Second)
		}
	}
	if s.Stats().Shared == 0 {
		t.Error("the bound was not reached")
	}
	s.table.audit(t)
}

// There are many callers and few places. In each window a key admits at most its
// limit, whether it has an entry, shares a budget, or changes between the two.
func TestAtTheBoundNoKeyExceedsItsLimit(t *testing.T) {
	for _, file := range []string{"", filepath.Join(t.TempDir(), "counters")} {
		clock := storetest.StartManualClock()
		s := newStore(t, Options{Memory: 64 << 10, Now: clock.Now, File: file}, smallLines)
		const keys, limit, callers, seconds = 3000, 2, 6, 12
		const per = 8
		var mu sync.Mutex
		windows := map[[2]int64]int{} // of key and reset: number admitted
		for range seconds {
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(i), uint64(clock.Now().Unix())))
					for range 600 {
						who := random.Uint64N(keys)
						own, other := charge(who, limit), charge(1<<32|who/2, 3*limit)
						own.Per, other.Per = per, per+3
						charges := []weir.Charge{own}
						if who%2 == 0 {
							charges = append(charges, other)
						}
						r := s.mustTake(t, charges...)
						if !r.Allowed {
							continue
						}
						mu.Lock()
						windows[[2]int64{int64(who), r.Used[0].Reset}]++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			clock.Advance(time.Second)
		}
		for w, admitted := range windows {
			if admitted > limit {
				t.Errorf("key %d was admitted %d times until %d with a limit of %d", w[0], admitted, w[1], limit)
			}
		}
		if s.Stats().Shared == 0 {
			t.Error("the bound was not reached")
		}
		s.table.audit(t)
	}
}
