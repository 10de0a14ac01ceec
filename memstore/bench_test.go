package memstore

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A floor is the minimum cost of a fixed window: the same hash and clock, and one
// atomic add in a flat array.
type floor struct {
	seed         seed
	clock        *secondClock
	sharedHashes []entry
}

func (f *floor) Take(_ context.Context, charges []weir.Charge, r *weir.Receipt) error {
	h := f.seed.hash(charges[0].Key)
	now := f.clock.read()
	n := f.sharedHashes[h&uint64(len(f.sharedHashes)-1)].word.Add(1)
	r.Now, r.Allowed = now, int64(n&(1<<31-1)) <= charges[0].Limit
	r.Used[0] = weir.Used{Count: int64(n & (1<<31 - 1)), Reset: now}
	return nil
}

func newFloor(keys int) *floor {
	n := 1
	for n < 2*keys {
		n *= 2
	}
	return &floor{newSeed(), newSecondClock(nil), make([]entry, n)}
}

// measure runs takes of random 40-byte keys, keys of them.
func measure(b *testing.B, s weir.Store, keys uint64, limit int64, charges int) {
	c := make([]weir.Charge, charges)
	for i := range c {
		key := make([]byte, 40)
		key[0] = byte(i)
		c[i] = weir.Charge{Key: key, Scope: 24, Subject: 40, Limit: limit, Per: 3600, Cost: 1}
	}
	var r weir.Receipt
	ctx := context.Background()
	set := func(n uint64) {
		for i := range c {
			binary.LittleEndian.PutUint64(c[i].Key[32:], n)
		}
	}
	for n := range keys {
		set(n)
		s.Take(ctx, c, &r)
	}
	b.ReportAllocs()
	x := uint64(1)
	b.ResetTimer()
	for b.Loop() {
		x = x*6364136223846793005 + 1442695040888963407
		set((x >> 20) % keys)
		s.Take(ctx, c, &r)
	}
}

func stores(b *testing.B, keys int) map[string]weir.Store {
	mem, err := New(Options{Memory: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	return map[string]weir.Store{"weir": mem, "floor": newFloor(keys)}
}

func BenchmarkTake(b *testing.B) {
	for _, name := range []string{"floor", "weir"} {
		b.Run("hot/"+name, func(b *testing.B) { measure(b, stores(b, 1)[name], 1, weir.MaxLimit, 1) })
		b.Run("refused/"+name, func(b *testing.B) { measure(b, stores(b, 1)[name], 1, 1, 1) })
		b.Run("million/"+name, func(b *testing.B) { measure(b, stores(b, 1e6)[name], 1e6, weir.MaxLimit, 1) })
	}
	b.Run("two-windows", func(b *testing.B) { measure(b, stores(b, 1)["weir"], 1, weir.MaxLimit, 2) })
	b.Run("two-windows-refused", func(b *testing.B) { measure(b, stores(b, 1)["weir"], 1, 1, 2) })
}

// 64 goroutines per processor take from one key (go test -cpu 1,2).
func BenchmarkContention(b *testing.B) {
	for _, name := range []string{"floor", "weir"} {
		for _, limit := range []int64{weir.MaxLimit, 1} {
			b.Run(map[bool]string{true: "refused/", false: "hot/"}[limit == 1]+name, func(b *testing.B) {
				s := stores(b, 1)[name]
				b.SetParallelism(64)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					c := []weir.Charge{{Key: make([]byte, 40), Scope: 24, Subject: 40, Limit: limit, Per: 3600, Cost: 1}}
					var r weir.Receipt
					for pb.Next() {
						s.Take(context.Background(), c, &r)
					}
				})
			})
		}
	}
}

// The cost of a key without an entry, while the table grows from empty.
func BenchmarkNewKeys(b *testing.B) {
	s, _ := New(Options{Memory: 8 << 30})
	c := []weir.Charge{{Key: make([]byte, 40), Scope: 24, Subject: 40, Limit: 5, Per: 3600, Cost: 1}}
	var r weir.Receipt
	var n uint64
	worst := time.Duration(0)
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint64(c[0].Key[32:], n)
		start := time.Now()
		s.Take(context.Background(), c, &r)
		worst = max(worst, time.Since(start))
	}
	b.ReportMetric(float64(worst.Microseconds()), "µs-worst")
	b.ReportMetric(float64(s.Stats().Bytes)/float64(n), "B/key")
}

// The cost of looking up grants for two windows: without any grants, with others'
// grants, and with both.
func BenchmarkGranted(b *testing.B) {
	c := []weir.Charge{{Key: make([]byte, 40), Scope: 24, Subject: 40}, {Key: make([]byte, 41), Scope: 24, Subject: 41}}
	others := []weir.Charge{{Key: make([]byte, 42), Scope: 24, Subject: 42}, {Key: make([]byte, 43), Scope: 24, Subject: 43}}
	until := time.Now().Unix() + 3600
	for _, test := range []struct {
		name string
		to   []weir.Charge
	}{{"none", nil}, {"others", others}, {"both", c}} {
		b.Run(test.name, func(b *testing.B) {
			s, err := New(Options{Memory: MinMemory})
			if err != nil {
				b.Fatal(err)
			}
			for i := range test.to {
				if err := s.Grant(b.Context(), test.to[i:i+1], []weir.Grant{{Limit: 5, Until: until}}); err != nil {
					b.Fatal(err)
				}
			}
			grants := make([]weir.Grant, 2)
			b.ReportAllocs()
			for b.Loop() {
				s.Granted(c, grants)
			}
		})
	}
}
