package memstore_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// The contract holds even if a take is interrupted between reading the clock and
// using the time.
func TestATakeThatIsInterruptedAtTheClockIsExact(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (weir.Store, storetest.Clock) {
		clock := storetest.StartManualClock()
		var readings atomic.Uint64
		s, err := memstore.New(memstore.Options{Now: func() time.Time {
			now := clock.Now()
			for range readings.Add(1) % 3 { // some continue at once, and overtake the others
				runtime.Gosched()
			}
			return now
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s, clock
	})
}

// While the table grows from empty, repeatedly, under concurrent takes, each key
// admits exactly its limit, alone and together with another key.
func TestGrowthUnderLoadIsExact(t *testing.T) {
	const keys, limit, callers = 30_000, 3, 4
	clock := storetest.StartManualClock()
	s, err := memstore.New(memstore.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := func(i int) weir.Charge {
		return charge("week", limit, week, fmt.Sprint("address ", i/8), fmt.Sprint(i))
	}
	address := func(i int) weir.Charge { return charge("month", 8*limit, 30*day, fmt.Sprint("address ", i/8)) }
	admitted := make([]atomic.Int32, keys)
	var growing sync.WaitGroup
	for caller := range callers {
		growing.Go(func() {
			for i := range keys {
				in := []weir.Charge{key(i), address(i)}
				if caller%2 == 0 {
					in[0], in[1] = in[1], in[0]
				}
				if take(t, s, in...).Allowed {
					admitted[i].Add(1)
				}
				if i%1000 == 0 {
					clock.Advance(time.Second)
				}
			}
		})
	}
	growing.Wait()
	for i := range keys {
		k, a := count(t, s, key(i)), count(t, s, address(i))
		if admitted[i].Load() != limit || k.Count != limit || a.Count != 8*limit {
			t.Fatalf("key %d was admitted %d times and has %d of %d, its address %d of %d", i, admitted[i].Load(), k.Count, limit, a.Count, 8*limit)
		}
	}
	if st := s.Stats(); st.Keys != keys+keys/8 || st.Shared != 0 {
		t.Errorf("with %d keys opened the store holds %+v", keys+keys/8, st)
	}
}
