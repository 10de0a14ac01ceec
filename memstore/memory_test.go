package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

// shares is the number of shared budgets for the new keys of one window when the
// table is full.
const shares = 1024

// A small store has the minimum memory, and a clock that the test sets.
type small struct {
	testing.TB
	*memstore.Store
	clock *storetest.ManualClock
}

func newSmall(t testing.TB) *small {
	t.Helper()
	clock := storetest.StartManualClock()
	s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &small{t, s, clock}
}

func (s *small) take(charges ...weir.Charge) weir.Receipt {
	s.Helper()
	return take(s, s.Store, charges...)
}

// fill opens windows of per seconds, for so many callers that every part of the
// table is full.
func (s *small) fill(per int64) {
	s.Helper()
	for i := range int(2 * s.Stats().Capacity) {
		s.take(charge("fill", 1, per, fmt.Sprint(i)))
	}
	if s.Stats().Shared == 0 {
		s.Fatalf("the table is not full: %+v", s.Stats())
	}
}

func (s *small) within() {
	s.Helper()
	if st := s.Stats(); st.Bytes > st.Memory || st.Memory != memstore.MinMemory || st.Keys > st.Capacity+st.Capacity/8 {
		s.Errorf("the bound is exceeded: %+v", st)
	}
}

// A concurrent flood of keys displaces no live count, and no key exceeds its limit.
func TestAFloodOfKeysRestoresNoBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of work")
	}
	s := newSmall(t)
	const victims, limit, callers = 200, 5, 3
	victim := func(i int) weir.Charge { return charge("minute", limit, 60, fmt.Sprint("victim ", i)) }
	for i := range victims * limit {
		s.take(victim(i % victims))
	}
	keys := int(flood * s.Stats().Capacity)
	admitted := make([]atomic.Int32, keys)
	var flood sync.WaitGroup
	for caller := range callers {
		flood.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(caller)))
			for n := range keys {
				who := n
				if n%4 == 0 {
					who = random.IntN(n + 1) // an earlier key tries again
				}
				in := []weir.Charge{charge("minute", limit, 60, fmt.Sprint(who))}
				if n%16 == 0 {
					in = append(in, victim(n%victims)) // spends neither
				}
				if s.take(in...).Allowed {
					admitted[who].Add(1)
				}
				if n%64 == 0 && s.take(victim(random.IntN(victims))).Allowed {
					t.Error("a flood gave a spent key its budget back")
				}
			}
		})
	}
	flood.Wait()
	s.within()
	for i := range victims {
		if r := s.take(victim(i)); r.Allowed || r.Used[0].Count != limit {
			t.Errorf("spent key %d is %+v after the flood", i, r)
		}
	}
	total := int64(0)
	for who := range admitted {
		n := admitted[who].Load()
		if total += int64(n); n > limit {
			t.Fatalf("key %d was admitted %d times with a limit of %d", who, n, limit)
		}
	}
	if st := s.Stats(); st.Shared == 0 || total > st.Keys*limit+shares*limit {
		t.Errorf("%d were admitted by a table that holds %+v", total, st)
	}
}

// Reuse under load loses no count, even if one take opens what another reuses.
func TestReclaimingUnderLoadLosesNoCount(t *testing.T) {
	s := newSmall(t)
	const limit, callers = 50, 8
	for round := range 20 {
		var total atomic.Int64
		var running sync.WaitGroup
		for i := range callers {
			running.Go(func() {
				for n := range 200 {
					s.take(charge("one", 1, 60, fmt.Sprint(n, "/", i)), charge("other", 1, 60, fmt.Sprint(n, "/", i)))
					if s.take(charge("all", limit, 60, "all")).Allowed {
						total.Add(1)
					}
				}
			})
		}
		running.Wait()
		if total.Load() != limit {
			t.Fatalf("round %d: %d takes were admitted on a limit of %d", round, total.Load(), limit)
		}
		s.clock.Advance(time.Minute)
	}
}

// Too little memory is an error with the allowed minimum. It never means unbounded.
func TestTooLittleMemoryIsRefused(t *testing.T) {
	for _, memory := range []int64{-1, 1, memstore.MinMemory - 1} {
		if _, err := memstore.New(memstore.Options{Memory: memory}); err == nil || !strings.Contains(err.Error(), "1 MiB") {
			t.Errorf("%d bytes gave error %v", memory, err)
		}
	}
}

// The system clock is read once, and then advanced by the monotonic clock (D6).
func TestTheMachinesClockIsTheWallClockAtStart(t *testing.T) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := time.Now().Unix()
	r := take(t, s, charge("minute", 1, 60, "a"))
	if after := time.Now().Unix(); r.Now < before-1 || r.Now > after+1 {
		t.Errorf("the store's clock is at %d, between %d and %d", r.Now, before, after)
	}
}
