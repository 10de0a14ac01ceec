package memstore

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

func (s *Store) raiseTo(c weir.Charge, count, reset int64) {
	s.StartFrom([]weir.Charge{c}, []weir.Used{{Count: count, Reset: reset}})
}

// peek reads a window.
func (s *Store) peek(t testing.TB, c weir.Charge) weir.Used {
	t.Helper()
	c.Cost = 0
	return s.mustTake(t, c).Used[0]
}

func TestStartFromTakesTheHigherCountAndTheGivenReset(t *testing.T) {
	clock := storetest.StartManualClock()
	now := clock.Now().Unix()
	for _, test := range []struct {
		name           string
		takes          int
		to, want, then weir.Used // then is after another take, of a limit of 10
	}{
		{"no window here", 0, weir.Used{Count: 7, Reset: now + 20}, weir.Used{Count: 7, Reset: now + 20}, weir.Used{Count: 8, Reset: now + 20}},
		{"more there", 3, weir.Used{Count: 7, Reset: now + 20}, weir.Used{Count: 7, Reset: now + 20}, weir.Used{Count: 8, Reset: now + 20}},
		{"more here", 5, weir.Used{Count: 2, Reset: now + 20}, weir.Used{Count: 5, Reset: now + 20}, weir.Used{Count: 6, Reset: now + 20}},
		{"spent there", 1, weir.Used{Count: 10, Reset: now + 1}, weir.Used{Count: 10, Reset: now + 1}, weir.Used{Count: 10, Reset: now + 1}},
		{"over the limit there", 0, weir.Used{Count: 12, Reset: now + 9}, weir.Used{Count: 12, Reset: now + 9}, weir.Used{Count: 12, Reset: now + 9}},
		{"ended there", 4, weir.Used{Count: 9, Reset: now}, weir.Used{Count: 4, Reset: now + 60}, weir.Used{Count: 5, Reset: now + 60}},
		{"ended there, none here", 0, weir.Used{Count: 9, Reset: now}, weir.Used{}, weir.Used{Count: 1, Reset: now + 60}},
		{"none there", 4, weir.Used{}, weir.Used{Count: 4, Reset: now + 60}, weir.Used{Count: 5, Reset: now + 60}},
		{"a reset too far away", 1, weir.Used{Count: 2, Reset: now + 1000}, weir.Used{Count: 2, Reset: now + 60}, weir.Used{Count: 3, Reset: now + 60}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t, Options{Now: clock.Now}, defaultLines)
			c := charge(1, 10)
			for range test.takes {
				s.mustTake(t, c)
			}
			for range 2 { // the second time changes nothing
				s.raiseTo(c, test.to.Count, test.to.Reset)
				if got := s.peek(t, c); got != test.want {
					t.Errorf("raised to %+v it is %+v, want %+v", test.to, got, test.want)
				}
			}
			if got := s.mustTake(t, c).Used[0]; got != test.then {
				t.Errorf("after another take it is %+v, want %+v", got, test.then)
			}
		})
	}
}

// If a window here has ended, it does not count when another store's window is
// raised.
func TestStartFromIgnoresEndedWindows(t *testing.T) {
	clock := storetest.StartManualClock()
	s := newStore(t, Options{Now: clock.Now}, defaultLines)
	c := charge(1, 10)
	for range 8 {
		s.mustTake(t, c)
	}
	clock.Advance(60 * time.Second)
	reset := clock.Now().Unix() + 30
	s.raiseTo(c, 2, reset)
	if got, want := s.peek(t, c), (weir.Used{Count: 2, Reset: reset}); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
}

func TestStartFromAllocatesNothing(t *testing.T) {
	s := newStore(t, Options{}, defaultLines)
	reset := time.Now().Unix() + 50
	charges := []weir.Charge{charge(1, 1000), charge(2, 1000)}
	used := []weir.Used{{Count: 1, Reset: reset}, {Count: 1, Reset: reset}}
	if n := testing.AllocsPerRun(100, func() {
		used[0].Count++
		s.StartFrom(charges, used)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// At the bound, a key without an entry gets none. Its budget is shared with other
// keys, so it is not raised. A key with an entry is raised.
func TestAtTheBoundStartFromDoesNotRaiseSharedBudgets(t *testing.T) {
	clock := storetest.StartManualClock()
	s := newStore(t, Options{Memory: 16 << 10, Now: clock.Now}, smallLines)
	const keys = 5000
	for who := range uint64(keys) {
		s.mustTake(t, charge(who, 3))
	}
	if s.Stats().Shared == 0 {
		t.Fatal("the table is not full")
	}
	before, stood := s.Stats().Keys, make([]weir.Used, 2*keys)
	for who := range stood {
		stood[who] = s.peek(t, charge(uint64(who), 3))
	}
	reset := clock.Now().Unix() + 59
	own := 0
	for who := range stood {
		c := charge(uint64(who), 3)
		s.raiseTo(c, 3, reset)
		if s.table.find(s.seed.hash(c.Key)) != nil {
			own++
			stood[who] = weir.Used{Count: 3, Reset: reset}
		}
	}
	if own == 0 || own > keys {
		t.Errorf("%d keys have an entry of their own", own)
	}
	for who := range stood {
		if got := s.peek(t, charge(uint64(who), 3)); got != stood[who] {
			t.Fatalf("key %d is %+v, want %+v", who, got, stood[who])
		}
	}
	if got := s.peek(t, charge(0, 3)).Count; got != 3 {
		t.Errorf("the first key has an entry, and is at %d, want 3", got)
	}
	if after := s.Stats().Keys; after > before+before/8 {
		t.Errorf("raising took the table from %d to %d keys", before, after)
	}
	s.table.audit(t)
}

// Random takes and raises match the arithmetic, for segments of any size, while
// windows end.
func TestRandomRaisesFollowTheArithmetic(t *testing.T) {
	for _, lines := range []int64{smallLines, defaultLines} {
		clock := storetest.StartManualClock()
		s := newStore(t, Options{Now: clock.Now, Memory: 64 << 20}, lines)
		random := rand.New(rand.NewPCG(1, uint64(lines)))
		model := map[uint64]weir.Used{}
		for step := range 60_000 {
			who := random.Uint64N(300)
			c := charge(who, 20)
			c.Cost = random.Int64N(4)
			now := clock.Now().Unix()
			kept := model[who].At(now, c.End(now))
			if random.IntN(2) == 0 {
				to := weir.Used{Count: random.Int64N(25), Reset: now - 5 + random.Int64N(80)}
				s.raiseTo(c, to.Count, to.Reset)
				if to = to.At(now, c.End(now)); to.Count > 0 && to.Reset > 0 {
					kept = weir.Used{Count: max(kept.Count, to.Count), Reset: to.Reset}
				}
			} else {
				r := s.mustTake(t, c)
				if r.Allowed != kept.Fits(c.Cost, c.Limit) {
					t.Fatalf("step %d: %+v of %+v was answered %+v", step, c, kept, r)
				}
				if r.Allowed {
					kept = kept.Spend(c.Cost, c.End(now))
				}
			}
			model[who] = kept
			if got := s.peek(t, c); got != kept {
				t.Fatalf("step %d: key %d is %+v, want %+v", step, who, got, kept)
			}
			if random.IntN(40) == 0 {
				clock.Advance(time.Duration(random.IntN(9)) * time.Second)
			}
		}
		s.table.audit(t)
	}
}

// Concurrent takes come from raised windows, alone and together, while those are
// raised again and the table is rewritten. Each window admits exactly the rest of
// its limit, and no count ever falls.
func TestConcurrentRaisesAdmitOnlyTheRest(t *testing.T) {
	for _, file := range []string{"", filepath.Join(t.TempDir(), "counters")} {
		clock := storetest.StartManualClock()
		s := newStore(t, Options{Now: clock.Now, Memory: 64 << 20, File: file}, smallLines)
		const keys, limit, floor, callers = 1000, 9, 5, 4
		reset := clock.Now().Unix() + 40
		admitted := make([]atomic.Int64, keys)
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(2, uint64(caller)))
				for n := range 12 * keys {
					who := uint64(n % keys)
					c := charge(who, limit)
					s.raiseTo(c, floor-random.Int64N(2)*random.Int64N(floor), reset)
					if n < keys {
						s.raiseTo(c, floor, reset)
					}
					before := s.peek(t, c)
					charges := []weir.Charge{c}
					if n%3 == 0 {
						charges = append(charges, charge(1<<40|who, 1_000_000))
					}
					r := s.mustTake(t, charges...)
					if r.Allowed {
						admitted[who].Add(1)
					}
					if before.Count < floor || r.Used[0].Count < before.Count || r.Used[0].Reset != reset {
						t.Errorf("key %d was %+v and then %+v", who, before, r.Used[0])
						return
					}
				}
			})
		}
		wg.Wait()
		for who := range admitted {
			if n := admitted[who].Load(); n != limit-floor {
				t.Fatalf("key %d was admitted %d times, raised to %d of %d", who, n, floor, limit)
			}
		}
		s.table.audit(t)
	}
}

// A take between the two steps is counted.
func TestStartFromLosesNoTake(t *testing.T) {
	s := newStore(t, Options{}, defaultLines)
	c, reset := charge(1, weir.MaxLimit), time.Now().Unix()+3000
	c.Per = 3600
	const callers, takes = 2, 200_000
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range takes {
				s.mustTake(t, c)
			}
		})
		wg.Go(func() {
			for i := range int64(takes) {
				s.raiseTo(c, 1, reset+i%2)
			}
		})
	}
	wg.Wait()
	// one more if a raise came first
	if got := s.peek(t, c).Count; got != callers*takes && got != callers*takes+1 {
		t.Errorf("after %d takes the window is at %d", callers*takes, got)
	}
}

// A closed store is not changed.
func TestStartFromAfterCloseDoesNothing(t *testing.T) {
	s := newStore(t, Options{}, defaultLines)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.raiseTo(charge(1, 3), 2, time.Now().Unix()+30)
}
