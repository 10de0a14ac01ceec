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

// If a place becomes free before the reset, a caller with a shared budget does not
// get a fresh budget of its own.
func TestFreedRoomDoesNotDoubleABudget(t *testing.T) {
	s := newSmall(t)
	const limit, late = 4, 60
	s.fill(5)
	var admitted [late]int
	try := func() {
		for who := range admitted {
			for range limit + 1 {
				if s.take(charge("minute", limit, 60, fmt.Sprint("late ", who))).Allowed {
					admitted[who]++
				}
			}
		}
	}
	try()
	// the short windows end and are reused; the shared budgets of the late callers
	// do not end
	for second := range 59 {
		s.clock.Advance(time.Second)
		for i := range 200 {
			s.take(charge("fill", 1, 5, fmt.Sprint(second, "/", i)))
		}
		try()
	}
	for who, n := range admitted {
		if n > limit {
			t.Errorf("late caller %d was admitted %d times in one window of %d", who, n, limit)
		}
	}
}

// If an address invents agents, they share a budget with few other keys, and do not
// spend the other shared budgets.
func TestInventedAgentsLockOutFewOthers(t *testing.T) {
	s := newSmall(t)
	s.fill(3600)
	const limit, others = 30, 1000
	init := func(address, agent string) []weir.Charge {
		return []weir.Charge{charge("init", limit, 60, address, agent), charge("init of all", 1_000_000, 3600, address)}
	}
	admitted := 0
	for i := range 20_000 {
		if s.take(init("the attacker", fmt.Sprint("agent ", i))...).Allowed {
			admitted++
		}
	}
	if admitted > limit+100 { // some find a free place of their own
		t.Errorf("an address was admitted %d times by inventing agents, with one budget of %d to share", admitted, limit)
	}
	refused := 0
	for i := range others {
		if !s.take(init(fmt.Sprint("address ", i), "an agent")...).Allowed {
			refused++
		}
	}
	if refused > 12 { // one of 1024 is expected, each
		t.Errorf("%d of %d other addresses were locked out", refused, others)
	}
}

// A shared budget reports true values: its count goes up to the limit, and it ends
// exactly at its reset.
func TestASharedBudgetReportsTrueValues(t *testing.T) {
	s := newSmall(t)
	s.fill(86400)
	const limit = 7
	for who := range 50 {
		c := charge(fmt.Sprint("limiter ", who), limit, 60, "newcomer")
		shared, end := s.Stats().Shared, s.clock.Now().Unix()+60
		for n := int64(1); n <= limit; n++ {
			if r := s.take(c); !r.Allowed || r.Used[0] != (weir.Used{Count: n, Reset: end}) {
				t.Fatalf("take %d of %d returned %+v at %d", n, limit, r, s.clock.Now().Unix())
			}
			s.clock.Advance(time.Second)
		}
		read := c
		read.Cost = 0
		for range 3 {
			if r := s.take(c); r.Allowed || r.Used[0] != (weir.Used{Count: limit, Reset: end}) {
				t.Fatalf("a spent budget was returned as %+v", r)
			}
			if r := s.take(read); !r.Allowed || r.Used[0] != (weir.Used{Count: limit, Reset: end}) {
				t.Fatalf("a spent budget was read as %+v", r)
			}
		}
		// 0 if it found a free place of its own
		if n := s.Stats().Shared - shared; n != 0 && n != limit+6 {
			t.Fatalf("%d takes in a shared budget were counted as %d", limit+6, n)
		}
		s.clock.Advance(time.Duration(end-s.clock.Now().Unix()-1) * time.Second)
		if s.take(c).Allowed {
			t.Fatal("a shared budget was restored a second early")
		}
		s.clock.Advance(time.Second)
		if r := s.take(c); !r.Allowed || r.Used[0].Count != 1 {
			t.Fatalf("at its reset a shared budget was returned as %+v", r)
		}
	}
	if s.Stats().Shared == 0 {
		t.Error("nothing was shared in a table that is full")
	}
}

// In a full table too, the windows of new keys and others are charged together or
// not at all.
func TestAFullTableChargesAllOrNone(t *testing.T) {
	s := newSmall(t)
	spent := charge("hour", 1, 3600, "spent")
	s.take(spent)
	s.fill(86400)
	newcomer := charge("minute", 5, 60, "newcomer")
	for _, in := range [][]weir.Charge{{newcomer, spent}, {spent, newcomer}} {
		for range 10 {
			if s.take(in...).Allowed {
				t.Fatal("a spent window let a newcomer through")
			}
		}
	}
	if r := s.take(newcomer); !r.Allowed || r.Used[0].Count != 1 {
		t.Errorf("refused takes were charged to a shared budget: %+v", r)
	}
}

// Once the windows of a flood have ended, every key has its own budget again.
func TestAfterAFloodNewKeysHaveTheirOwnBudgets(t *testing.T) {
	s := newSmall(t)
	s.fill(60)
	s.clock.Advance(time.Minute)
	shared := s.Stats().Shared
	for i := range int(s.Stats().Capacity / 2) {
		if !s.take(charge("minute", 1, 60, fmt.Sprint("new ", i))).Allowed {
			t.Fatalf("newcomer %d was refused after the flood: %+v", i, s.Stats())
		}
	}
	if n := s.Stats().Shared - shared; n != 0 {
		t.Errorf("%d takes shared a budget with room left", n)
	}
	s.within()
}

// Room is reused without a background sweep: with a stream of new keys, the table
// settles at the number of live keys.
func TestExpiredKeysAreReclaimed(t *testing.T) {
	clock := storetest.StartManualClock()
	store, err := memstore.New(memstore.Options{Memory: 64 << 20, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	s := &small{t, store, clock}
	const rate, live = 200, 200 * 60
	most := int64(0)
	for second := range 600 {
		for i := range rate {
			s.take(charge("minute", 1, 60, fmt.Sprint(second, "/", i)))
		}
		clock.Advance(time.Second)
		most = max(most, s.Stats().Keys)
	}
	if st := s.Stats(); st.Keys > 2*live || most > 3*live || st.Shared != 0 {
		t.Errorf("with %d live keys, of %d in all, %d were held at most: %+v", live, 600*rate, most, st)
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

// If the clock is set back by a day, no room is blocked: entries that have ended by
// the new time are reused.
func TestAClockSetBackDoesNotPreventReclaiming(t *testing.T) {
	s := newSmall(t)
	for i := range 1000 {
		s.take(charge("minute", 5, 60, fmt.Sprint("before ", i)))
	}
	s.clock.Advance(-24 * time.Hour)
	const live = 2000
	for round := range 100 {
		for i := range live {
			if !s.take(charge("minute", 5, 60, fmt.Sprint(round, "/", i))).Allowed {
				t.Fatalf("round %d: the first request of caller %d was refused; the store holds %+v", round, i, s.Stats())
			}
		}
		s.clock.Advance(2 * time.Minute)
	}
	if s.Stats().Shared != 0 {
		t.Errorf("with %d live keys the store holds %+v", live, s.Stats())
	}
	s.within()
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
