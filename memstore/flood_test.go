//go:build !race

// One goroutine fills a whole table, which the race detector would only slow down.

package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
)

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

// If a caller shares a budget because the table was full, a reset is rejected. If
// the budget has ended, the reset has nothing to do.
func TestASharedBudgetIsNotReset(t *testing.T) {
	s := newSmall(t)
	s.fill(3600)
	own, newcomer := charge("fill", 1, 3600, "0"), weir.Charge{}
	if r := s.take(own); r.Allowed {
		t.Fatalf("the first caller has no entry of its own: %+v", r)
	}
	// until a part of the table is full
	for i, before := 0, s.Stats().Shared; s.Stats().Shared == before; i++ {
		newcomer = charge("three", 3, 3600, fmt.Sprint("newcomer ", i))
		s.take(newcomer)
	}
	if err := s.Reset(t.Context(), []weir.Charge{own, newcomer}); !errors.Is(err, memstore.ErrShared) {
		t.Errorf("a shared budget was reset: %v", err)
	}
	if r := s.take(own); r.Allowed {
		t.Errorf("one of two windows was reset, and the other not: %+v", r)
	}
	if err := s.Reset(t.Context(), []weir.Charge{own}); err != nil {
		t.Errorf("reset of a window of its own: %v", err)
	}
	if r := s.take(own); !r.Allowed || r.Used[0].Count != 1 {
		t.Errorf("it was reset, and %+v", r)
	}
	s.clock.Advance(time.Hour)
	if err := s.Reset(t.Context(), []weir.Charge{own, newcomer}); err != nil {
		t.Errorf("reset when all has ended: %v", err)
	}
	if r := s.take(newcomer); !r.Allowed || r.Used[0].Count != 1 {
		t.Errorf("after all had ended: %+v", r)
	}
}
