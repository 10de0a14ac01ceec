package memstore

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

var discard = slog.New(slog.DiscardHandler)

func charge(who uint64, limit int64) weir.Charge {
	key := binary.BigEndian.AppendUint64([]byte("scope"), who)
	return weir.Charge{Key: key, Scope: 5, Subject: len(key), Limit: limit, Per: 60, Cost: 1}
}

func (s *Store) mustTake(t testing.TB, charges ...weir.Charge) weir.Receipt {
	t.Helper()
	var r weir.Receipt
	if err := s.Take(context.Background(), charges, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// audit checks the table's invariants while there are no takes.
func (t *table) audit(tb testing.TB) {
	tb.Helper()
	seen := map[uint64]bool{}
	for from := uint64(0); ; {
		seg := t.segmentAt(from)
		if !t.lock(seg) {
			tb.Fatal("without takes, a segment was rewritten")
		}
		seg.mu.Unlock()
		if !seg.scope.covers(from) {
			tb.Fatalf("position %x leads to a segment of %+v", from, seg.scope)
		}
		occupied := 0
		t.each(seg, func(e *entry, hash uint64) {
			occupied++
			switch {
			case hash == claimed:
				tb.Errorf("a slot has no owner")
			case isBusy(e.word.Load(), hash):
				tb.Errorf("an entry is held without a take")
			case seen[hash]:
				tb.Errorf("a key has two entries")
			case !seg.scope.covers(position(hash)):
				tb.Errorf("an entry is in a segment that is not its own")
			case probe(seg.lines, hash, t.mask) != e:
				tb.Errorf("an entry is not found")
			}
			seen[hash] = true
		})
		if seg.occupied >= 0 && occupied != seg.occupied {
			tb.Errorf("%d slots are in use, and %d are counted", occupied, seg.occupied)
		}
		if from = seg.scope.end(); from == 0 {
			return
		}
	}
}

// Many goroutines open many keys, in tables that are split, merged and cleaned all
// the time. Each key admits exactly its limit.
func TestEveryKeyGetsExactlyItsLimitWhileTheTableIsRewritten(t *testing.T) {
	for _, file := range []bool{false, true} {
		clock := storetest.StartManualClock()
		o := Options{Memory: 8 << 20, Now: clock.Now}
		if file {
			o.File = filepath.Join(t.TempDir(), "counters")
		}
		s := newStore(t, o, smallLines)
		const keys, limit, callers = 3000, 3, 8
		for round := range 6 {
			var wg sync.WaitGroup
			admitted := make([][keys]int, callers)
			for i := range callers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
					for range 2 {
						for _, who := range random.Perm(keys) {
							charges := []weir.Charge{charge(uint64(who), limit)}
							if who%3 == 0 {
								charges = append(charges, charge(uint64(who)|1<<40, 2*limit))
							}
							if s.mustTake(t, charges...).Allowed {
								admitted[i][who]++
							}
						}
					}
				})
			}
			wg.Wait()
			for who := range keys {
				total := 0
				for i := range callers {
					total += admitted[i][who]
				}
				if total != limit {
					t.Fatalf("round %d: key %d was admitted %d times with a limit of %d", round, who, total, limit)
				}
			}
			s.table.audit(t)
			clock.Advance(time.Minute)
			if round%2 == 1 { // few keys for a while: the table shrinks
				for n := range uint64(20000) {
					if n%100 == 0 {
						clock.Advance(time.Second)
					}
					s.mustTake(t, charge(1<<50|n%50, weir.MaxLimit))
				}
				s.table.audit(t)
				if st := s.Stats(); st.Keys > 500 {
					t.Errorf("with 50 live keys the table holds %+v", st)
				}
			}
		}
	}
}

// A store may be closed during takes. Each take counts or returns an error, and the
// next user of the file finds every reported count.
func TestAStoreMayBeClosedDuringTakes(t *testing.T) {
	for round := range 20 {
		o := Options{Memory: 16 << 20, File: filepath.Join(t.TempDir(), "counters"), Log: discard}
		s, err := open(o, smallLines)
		if err != nil {
			t.Fatal(err)
		}
		const callers = 4
		var wg sync.WaitGroup
		var closing sync.WaitGroup
		closing.Add(1)
		admitted := make([]int64, callers)
		for i := range callers {
			wg.Go(func() {
				var r weir.Receipt
				for n := uint64(0); ; n++ {
					own := charge(1<<50|uint64(i), weir.MaxLimit)
					own.Per = 86400
					if err := s.Take(context.Background(), []weir.Charge{own}, &r); err != nil {
						return
					}
					admitted[i] = r.Used[0].Count
					if err := s.Take(context.Background(), []weir.Charge{charge(n<<3|uint64(i), 5), charge(1<<40|n, 5)}, &r); err != nil {
						return
					}
					if n == uint64(20+round*10) && i == 0 {
						closing.Done()
					}
				}
			})
		}
		closing.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		s = newStore(t, o, smallLines)
		for i := range callers {
			own := charge(1<<50|uint64(i), weir.MaxLimit)
			own.Per, own.Cost = 86400, 0
			if count := s.mustTake(t, own).Used[0].Count; count < admitted[i] {
				t.Errorf("caller %d got %d, and the file has %d", i, admitted[i], count)
			}
		}
	}
}
