package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A table is a store under test with a clock that the test moves.
type table struct {
	testing.TB
	*Store
	clock *storetest.ManualClock
}

func newTable(t testing.TB, memory int64) *table {
	t.Helper()
	clock := storetest.StartManualClock()
	s, err := New(Options{Memory: memory, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return &table{t, s, clock}
}

func charge(who uint64, limit int64) weir.Charge {
	key := binary.BigEndian.AppendUint64([]byte("scope"), who)
	return weir.Charge{Key: key, Scope: 5, Subject: len(key), Limit: limit, Per: 60, Cost: 1}
}

func (s *table) take(charges ...weir.Charge) weir.Receipt {
	s.Helper()
	var r weir.Receipt
	if err := s.Take(context.Background(), charges, &r); err != nil {
		s.Fatal(err)
	}
	return r
}

// Trap 44: a flood of keys pushes no live count out, and no newcomer gets more than the limit.
func TestAFloodOfKeysBuysNoBudget(t *testing.T) {
	s := newTable(t, LeastMemory)
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
	if st.Keys > st.Capacity+shardCount || st.Shared == 0 {
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
	s := newTable(t, LeastMemory)
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
	s := newTable(t, 64<<20)
	who := uint64(0)
	for range 300 {
		for range 100 {
			s.take(charge(who, 1))
			who++
		}
		s.clock.Advance(time.Second)
	}
	if live, held := 60*100, s.Stats().Keys; held > 2*live {
		t.Errorf("%d keys are held with %d live", held, live)
	}
	if s.Stats().Shared != 0 {
		t.Errorf("%d takes shared a budget with room left", s.Stats().Shared)
	}
}

// Trap 6: reclaiming under load loses no count, also where one take opens what another reclaims.
func TestReclaimingUnderLoadLosesNoCount(t *testing.T) {
	s := newTable(t, LeastMemory)
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

// A take whose own newcomer reclaims the expired entry that its other charge was about to reopen counts both.
func TestATakeThatReclaimsItsOwnEntryCountsBoth(t *testing.T) {
	s := newTable(t, LeastMemory)
	first := charge(0, 1)
	sh := s.shard(s.hash(first.Key))
	sh.init(1)
	second := charge(1, 1)
	for who := uint64(2); s.shard(s.hash(second.Key)) != sh; who++ {
		second = charge(who, 1)
	}
	s.take(first)
	s.clock.Advance(time.Minute)
	if !s.take(first, second).Allowed {
		t.Fatal("two fresh windows were refused")
	}
	if s.take(first).Allowed || s.take(second).Allowed {
		t.Error("a count was lost: a limit of one admitted twice")
	}
}

// Setting the clock back by a day keeps no room occupied: what had expired by the new time is reclaimed as ever.
func TestAClockThatWasSetBackBlocksNoReclaiming(t *testing.T) {
	s := newTable(t, LeastMemory)
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
	if st := s.Stats(); st.Shared != 0 || st.Keys > 5000 {
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

func BenchmarkTake(b *testing.B) {
	for _, keys := range []uint64{1, 1_000_000} {
		b.Run(fmt.Sprintf("%d-keys", keys), func(b *testing.B) {
			s, _ := New(Options{Memory: 1 << 30})
			c := []weir.Charge{charge(0, weir.MaxLimit)}
			var r weir.Receipt
			b.ReportAllocs()
			x := uint64(1)
			for b.Loop() {
				x = x*6364136223846793005 + 1442695040888963407
				binary.BigEndian.PutUint64(c[0].Key[5:], (x>>20)%keys)
				s.Take(context.Background(), c, &r)
			}
		})
	}
}

// Everyone's budget is one key, and so one lock: what that costs where every processor asks for it
// (go test ./memstore -run - -bench Contention -cpu 2). On two processors that were busy with other things too, it could not be
// told from keys of each processor's own: 266 and 268 ns a take, the medians of nine runs each.
func BenchmarkContention(b *testing.B) {
	for _, test := range []struct {
		name string
		keys uint64 // of each processor
	}{{"everyone", 1}, {"each-its-own", 1000}} {
		b.Run(test.name, func(b *testing.B) {
			s, _ := New(Options{})
			var processors atomic.Uint64
			b.RunParallel(func(pb *testing.PB) {
				first := uint64(0)
				if test.keys > 1 {
					first = processors.Add(1) << 32
				}
				c := []weir.Charge{charge(0, weir.MaxLimit)}
				var r weir.Receipt
				for n := uint64(0); pb.Next(); n++ {
					binary.BigEndian.PutUint64(c[0].Key[5:], first+n%test.keys)
					s.Take(context.Background(), c, &r)
				}
			})
		})
	}
}

func BenchmarkBytesAKey(b *testing.B) {
	const keys = 4_000_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, _ := New(Options{Memory: 8 << 30})
		c := []weir.Charge{charge(0, weir.MaxLimit)}
		var r weir.Receipt
		for who := range uint64(keys) {
			binary.BigEndian.PutUint64(c[0].Key[5:], who)
			s.Take(context.Background(), c, &r)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
		runtime.KeepAlive(s)
	}
}
