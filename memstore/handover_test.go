//go:build linux

package memstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// handOver hands the counts of a store over to a new store in the same process.
func (f *file) handOver(s *memstore.Store) *memstore.Store {
	f.Helper()
	state, err := s.HandOver()
	if err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := memstore.New(f.options()); !errors.As(err, new(*memstore.InUseError)) {
		f.Fatalf("another store opened counts that are on their way: %v", err)
	}
	o := f.options()
	o.Continue = &memstore.State{Lock: state.Lock}
	if err := json.Unmarshal(text, o.Continue); err != nil {
		f.Fatal(err)
	}
	next, err := memstore.New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = next.Close() })
	return next
}

// ask takes, slots too.
func ask(t testing.TB, s *memstore.Store, charges ...weir.Charge) (r weir.Receipt) {
	t.Helper()
	if err := s.Take(t.Context(), charges, &r); err != nil {
		t.Fatalf("take: %v", err)
	}
	return r
}

// spent reads how many units or slots are taken.
func spent(t testing.TB, s *memstore.Store, c weir.Charge) int64 {
	t.Helper()
	c.Cost = 0
	return ask(t, s, c).Used[0].Count
}

func slot(limit int64, who string) weir.Charge {
	c := charge("slots", limit, 0, who)
	c.Held = true
	return c
}

func settle(t testing.TB, s *memstore.Store, r *weir.Receipt, c weir.Charge, units int64) (weir.Change, error) {
	t.Helper()
	changes := []weir.Change{{Charge: c, Reset: r.Used[0].Reset, Units: units}}
	err := s.Settle(t.Context(), &r.Ticket, changes)
	return changes[0], err
}

func TestTheNextStoreKnowsCountsSlotsAndTickets(t *testing.T) {
	f := newFile(t)
	s := f.open()
	minute, void, busy := charge("minute", 10, 60, "a"), charge("minute", 10, 60, "void"), slot(2, "a")
	minute.Cost, void.Cost = 7, 7
	reserved, reset := take(t, s, minute), take(t, s, void)
	if err := s.Reset(t.Context(), []weir.Charge{void}); err != nil {
		t.Fatal(err)
	}
	held := ask(t, s, charge("hour", 10, 3600, "a"), busy)
	f.clock.Advance(10 * time.Second)
	next := f.handOver(s)

	var r weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{minute}, &r); !errors.Is(err, memstore.ErrClosed) {
		t.Errorf("a take of the store that was handed over: %v", err)
	}
	if c, err := settle(t, s, &held, busy, -1); !errors.Is(err, memstore.ErrClosed) || c.Done || !c.Lost {
		t.Errorf("a slot given back to the store that was handed over: %+v, %v", c, err)
	}
	if c, err := settle(t, s, &reserved, minute, -6); !errors.Is(err, memstore.ErrClosed) || c.Done || !c.Lost {
		t.Errorf("a settlement of the store that was handed over: %+v, %v", c, err)
	}
	f.mustHold(next, minute, 7, 50)
	if c, err := settle(t, next, &reserved, minute, -6); err != nil || !c.Done || c.Used.Count != 1 {
		t.Errorf("a settlement of a take of before: %+v, %v", c, err)
	}
	take(t, next, void) // opens the same window again, with the same reset
	if c, err := settle(t, next, &reset, void, -6); err != nil || c.Done {
		t.Errorf("a take of before a reset was settled after it: %+v, %v", c, err)
	}
	hour := charge("hour", 10, 3600, "a")
	if !ask(t, next, hour, busy).Allowed || ask(t, next, hour, busy).Allowed {
		t.Error("of two slots, one that was held before, not exactly one was free")
	}
	if c, err := settle(t, next, &held, busy, -1); err != nil || !c.Done || c.Used.Count != 1 {
		t.Errorf("a slot of before that is given back: %+v, %v", c, err)
	}
	if !ask(t, next, hour, busy).Allowed {
		t.Error("a slot that was given back is not free")
	}
}

// Goroutines take one unit of all windows at a time, of the store that has the counts, while these
// are handed over several times, until one is refused.
func TestHandOversUnderLoadAdmitExactlyTheLimit(t *testing.T) {
	const limit, takers, handOvers = 20_000, 4, 5
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprint("slots ", held), func(t *testing.T) {
			f := newFile(t)
			var stores [handOvers + 1]atomic.Pointer[memstore.Store]
			stores[0].Store(f.open())
			charges := []weir.Charge{charge("minute", limit, 60, "a"), charge("hour", 2*limit, 3600, "a")}
			if held {
				charges = append(charges, slot(1<<30, "a"))
			}
			var admitted atomic.Int64
			var taking sync.WaitGroup
			for range takers {
				taking.Go(func() {
					var r weir.Receipt
					for n := 0; n <= handOvers; {
						s := stores[n].Load()
						if s == nil { // on its way
							runtime.Gosched()
							continue
						}
						err := s.Take(context.Background(), charges, &r)
						if errors.Is(err, memstore.ErrClosed) {
							n++
							continue
						}
						if err != nil || !r.Allowed {
							return // a failure leaves the count short
						}
						admitted.Add(1)
					}
				})
			}
			for n := range handOvers { // at a seventh of the limit, two sevenths, …
				for admitted.Load() < int64(n+1)*limit/(handOvers+2) {
					runtime.Gosched()
				}
				stores[n+1].Store(f.handOver(stores[n].Load()))
			}
			taking.Wait()
			last := stores[handOvers].Load()
			if n := admitted.Load(); n != limit {
				t.Errorf("%d takes were admitted, want %d", n, limit)
			}
			for _, c := range charges {
				if n := spent(t, last, c); n != limit {
					t.Errorf("%q counts %d, want %d", c.Key, n, limit)
				}
			}
		})
	}
}

func TestAGuestsSlotsAreGivenBackWhenItLeaves(t *testing.T) {
	f := newFile(t)
	s := f.open()
	one, two := slot(2, "a"), slot(2, "b")
	ask(t, s, one)
	next := f.handOver(s)
	guest := next.Guest(nil)
	var r weir.Receipt
	for _, c := range []weir.Charge{one, two} {
		if err := guest.Take([]weir.Charge{c}, &r); err != nil || !r.Allowed {
			t.Fatalf("a guest's take: %+v, %v", r, err)
		}
	}
	changes := []weir.Change{{Charge: two, Units: -1}}
	if err := guest.Settle(&r.Ticket, changes); err != nil || !changes[0].Done {
		t.Fatalf("a guest's settlement: %+v, %v", changes, err)
	}
	if ask(t, next, one).Allowed {
		t.Error("a guest's slot is free")
	}
	if n := len(guest.Held()); n != 1 {
		t.Errorf("the guest holds slots of %d keys, want 1", n)
	}
	guest.Leave()
	if n := spent(t, next, one); n != 1 {
		t.Errorf("%d slots are held after the guest has left, want that of before", n)
	}
}

// A store whose counts are in memory only stays as it is.
func TestCountsInMemoryAreNotHandedOver(t *testing.T) {
	s, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.HandOver(); !errors.Is(err, memstore.ErrNoMapping) {
		t.Errorf("handed over: %v", err)
	}
	take(t, s, charge("minute", 1, 60, "a"))
}

// The next store's clock is never behind that of the store before it.
func TestTheClockContinues(t *testing.T) {
	o := memstore.Options{Memory: memstore.MinMemory, File: newFile(t).path, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	s, err := memstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	state, err := s.HandOver()
	if err != nil {
		t.Fatal(err)
	}
	const ahead = 1000 // seconds, as if the wall clock had been set back meanwhile
	state.Wall += ahead * int64(time.Second)
	o.Continue = state
	before := time.Now().Unix()
	if s, err = memstore.New(o); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := take(t, s, charge("minute", 1, 60, "a")).Now
	if after := time.Now().Unix(); now < before+ahead || now > after+ahead+1 {
		t.Errorf("the clock is at %d, and should be from %d to %d", now, before+ahead, after+ahead+1)
	}
}

// BenchmarkHandOver hands a million counts over: the time in which nothing can be counted.
func BenchmarkHandOver(b *testing.B) {
	o := memstore.Options{File: filepath.Join(b.TempDir(), "counters")}
	s, err := memstore.New(o)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1_000_000 {
		take(b, s, charge("day", 10, day, strconv.Itoa(i)))
	}
	b.ResetTimer()
	for range b.N {
		state, err := s.HandOver()
		if err != nil {
			b.Fatal(err)
		}
		o.Continue = state
		if s, err = memstore.New(o); err != nil {
			b.Fatal(err)
		}
		take(b, s, charge("day", 10, day, "0"))
	}
	b.StopTimer()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
