package memstore

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A tableTest is a store under test with a clock that the test moves.
type tableTest struct {
	testing.TB
	*Store
	clock *storetest.ManualClock
}

func newTableTest(t testing.TB, memory int64) *tableTest {
	t.Helper()
	clock := storetest.StartManualClock()
	return &tableTest{t, newStore(t, Options{Memory: memory, Now: clock.Now}, defaultLines), clock}
}

func (s *tableTest) take(charges ...weir.Charge) weir.Receipt {
	s.Helper()
	return s.mustTake(s.TB, charges...)
}

// Trap 44: a flood of keys pushes no live count out, and no newcomer gets more than the limit.
func TestAFloodOfKeysBuysNoBudget(t *testing.T) {
	s := newTableTest(t, LeastMemory)
	const victim, limit = 1 << 60, 5
	for range limit {
		s.take(charge(victim, limit))
	}
	keys := uint64(10 * s.Stats().Capacity)
	for who := range keys {
		s.take(charge(who, limit))
	}
	if s.take(charge(victim, limit)).Allowed {
		t.Error("a flood gave a spent key its budget back")
	}
	st := s.Stats()
	if st.Keys > 2*st.Capacity || st.Shared == 0 {
		t.Errorf("%d keys are held with room for %d, and %d takes shared a budget", st.Keys, st.Capacity, st.Shared)
	}
	for who := range uint64(1000) { // whoever was first has a budget of its own, late ones share; nobody has more than one
		for _, who := range []uint64{who, keys - 1 - who} {
			admitted := 1 // at most, in the flood
			for range limit + 1 {
				if s.take(charge(who, limit)).Allowed {
					admitted++
				}
			}
			if admitted > limit {
				t.Fatalf("key %d was admitted %d times with a limit of %d", who, admitted, limit)
			}
		}
	}
}

// A caller that spent in a shared budget does not get a fresh one of its own when room comes free before the reset.
func TestRoomThatComesFreeDoesNotDoubleABudget(t *testing.T) {
	s := newTableTest(t, LeastMemory)
	const limit = 4
	short := func(who uint64) weir.Charge { c := charge(who, limit); c.Per = 5; c.Key[0] = 'S'; return c }
	for who := range uint64(4 * s.Stats().Capacity) {
		s.take(short(who))
	}
	const late = 1 << 60
	admitted := 0
	try := func() {
		for range 3 * limit {
			if s.take(charge(late, limit)).Allowed {
				admitted++
			}
		}
	}
	try()
	for range 59 { // the short windows end and are reclaimed, the late caller's shared one does not
		s.clock.Advance(time.Second)
		for who := range uint64(200) {
			s.take(short(who))
		}
		try()
	}
	if admitted > limit {
		t.Errorf("%d requests were admitted in one window of %d", admitted, limit)
	}
}

// Room is reclaimed without a sweeper: a stream of ever new keys settles at what is live.
func TestExpiredKeysAreReclaimed(t *testing.T) {
	s := newTableTest(t, 64<<20)
	who := uint64(0)
	for range 300 {
		for range 100 {
			s.take(charge(who, 1))
			who++
		}
		s.clock.Advance(time.Second)
	}
	if live, held := int64(60*100), s.Stats().Keys; held > 2*live {
		t.Errorf("%d keys are held with %d live", held, live)
	}
	if s.Stats().Shared != 0 {
		t.Errorf("%d takes shared a budget with room left", s.Stats().Shared)
	}
}

// Trap 6: reclaiming under load loses no count, also where one take opens what another reclaims.
func TestReclaimingUnderLoadLosesNoCount(t *testing.T) {
	s := newTableTest(t, LeastMemory)
	const limit, callers = 50, 8
	for range 20 {
		var wg sync.WaitGroup
		admitted := make([]int, callers)
		for i := range callers {
			wg.Go(func() {
				for n := range uint64(200) {
					s.take(charge(n<<8|uint64(i), 1), charge(1<<50|n<<8|uint64(i), 1))
					if s.take(charge(1<<60, limit)).Allowed {
						admitted[i]++
					}
				}
			})
		}
		wg.Wait()
		total := 0
		for _, n := range admitted {
			total += n
		}
		if total != limit {
			t.Fatalf("%d takes were admitted on a limit of %d", total, limit)
		}
		s.clock.Advance(time.Minute)
	}
}

// Setting the clock back by a day stops no reclaiming: what was open then may stay until its own reset, what comes after goes.
func TestAClockThatWasSetBackBlocksNoReclaiming(t *testing.T) {
	s := newTableTest(t, LeastMemory)
	for who := range uint64(1000) {
		s.take(charge(who, 5))
	}
	s.clock.Advance(-24 * time.Hour)
	who := uint64(1 << 20)
	for range 100 {
		for range 2000 {
			if !s.take(charge(who, 5)).Allowed {
				t.Fatalf("the first request of caller %d was refused; the store holds %+v", who, s.Stats())
			}
			who++
		}
		s.clock.Advance(2 * time.Minute)
	}
	if st := s.Stats(); st.Shared != 0 {
		t.Errorf("with 2000 live keys the store holds %+v", st)
	}
}

// Trap 46: too little memory is an error that says what is allowed; it is never read as no bound.
func TestTooLittleMemoryIsRefused(t *testing.T) {
	for _, memory := range []int64{-1, 1, LeastMemory - 1} {
		if _, err := New(Options{Memory: memory}); err == nil || !strings.Contains(err.Error(), "1 MiB") {
			t.Errorf("%d bytes gave error %v", memory, err)
		}
	}
}

// D6: the machine's clock is read once and then advanced by the monotonic one.
func TestTheMachinesClockIsTheWallClockAtStart(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Unix()
	var r weir.Receipt
	s.Take(context.Background(), []weir.Charge{charge(1, 1)}, &r)
	if after := time.Now().Unix(); r.Now < before-1 || r.Now > after+1 {
		t.Errorf("the store's clock says %d between %d and %d", r.Now, before, after)
	}
}
