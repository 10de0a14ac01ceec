package memstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// A settling is a store with its clock, and helpers to settle.
type settling struct {
	*testing.T
	*Store
	clock *storetest.ManualClock
}

func newSettling(t *testing.T, o Options) settling {
	clock := storetest.StartManualClock()
	o.Now = clock.Now
	return settling{t, newStore(t, o, smallLines), clock}
}

func windowOf(who string, limit, per, cost int64) weir.Charge {
	key := fmt.Appendf(nil, "\x01w%04d\x02%s", per, who)
	return weir.Charge{Key: key, Scope: 6, Subject: 7, Limit: limit, Per: per, Cost: cost}
}

func slotOf(who string, limit int64) weir.Charge {
	c := windowOf(who, limit, 0, 1)
	c.Held = true
	return c
}

func (s settling) reserve(charges ...weir.Charge) weir.Receipt {
	s.Helper()
	var r weir.Receipt
	if err := s.Take(s.Context(), charges, &r); err != nil || !r.Allowed {
		s.Fatalf("take: %+v, %v", r, err)
	}
	return r
}

func (s settling) settle(r weir.Receipt, c weir.Charge, units int64) weir.Change {
	s.Helper()
	one := []weir.Change{{Charge: c, Reset: r.Used[0].Reset, Units: units}}
	if err := s.Settle(s.Context(), &r.Ticket, one); err != nil {
		s.Fatal(err)
	}
	return one[0]
}

func (s settling) count(c weir.Charge) int64 {
	s.Helper()
	c.Cost = 0
	return s.reserve(c).Used[0].Count
}

func TestARefusedTakeHasNoTicket(t *testing.T) {
	s := newSettling(t, Options{})
	one := windowOf("a", 1, 60, 1)
	for _, in := range [][]weir.Charge{{one}, {slotOf("a", 1)}, {windowOf("b", 1, 60, 1), slotOf("b", 1)}} {
		s.reserve(in...)
		r := weir.Receipt{Ticket: weir.Ticket{Epoch: 7, Slot: 7}} // of the take before
		if err := s.Take(t.Context(), in, &r); err != nil || r.Allowed || r.Ticket != (weir.Ticket{}) {
			t.Errorf("the ticket of a refused take: %+v, %v", r.Ticket, err)
		}
	}
}

func TestAClosedStoreSettlesNothing(t *testing.T) {
	s := newSettling(t, Options{})
	one, slot := windowOf("a", 9, 60, 3), slotOf("a", 1)
	r := s.reserve(one, slot)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	changes := []weir.Change{{Charge: one, Reset: r.Used[0].Reset, Units: -3}, {Charge: slot, Units: -1}}
	if err := s.Settle(t.Context(), &r.Ticket, changes); !errors.Is(err, ErrClosed) || changes[0].Done || !changes[0].Lost {
		t.Errorf("settled in a closed store: %v, %+v", err, changes[0])
	}
	for _, in := range [][]weir.Charge{{slot}, {one, slot}} {
		if err := s.Take(t.Context(), in, &r); !errors.Is(err, ErrClosed) {
			t.Errorf("take of %d charges from a closed store: %v", len(in), err)
		}
	}
}

// The units of a take in a shared budget stay charged until it ends.
func TestASharedBudgetIsNotSettled(t *testing.T) {
	var s settling
	var newcomer weir.Charge
	var r weir.Receipt
	for !r.Allowed { // or the part of the table for the shared budget was full as well
		s = newSettling(t, Options{Memory: MinMemory})
		for i := 0; s.shared.Load() == 0; i++ { // until a part of the table is full
			newcomer = windowOf(fmt.Sprint(i), 5, 3600, 2)
			if err := s.Take(t.Context(), []weir.Charge{newcomer}, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c := s.settle(r, newcomer, -2); c.Done || !c.Lost {
		t.Errorf("a shared budget was settled: %+v", c)
	}
	if n := s.count(newcomer); n != 2 {
		t.Errorf("the shared budget has %d units, want 2", n)
	}
	s.clock.Advance(time.Hour)
	if c := s.settle(r, newcomer, -2); c.Done || c.Lost {
		t.Errorf("settled after the budget has ended: %+v", c)
	}
}

// What StartFrom has raised may be the units of others.
func TestARaisedWindowIsNotSettled(t *testing.T) {
	s := newSettling(t, Options{})
	for _, test := range []struct {
		to   weir.Used // the reset is after the window's
		want int64
		lost bool
	}{{weir.Used{Count: 8}, 8, true}, {weir.Used{Count: 5}, 2, false}, {weir.Used{Count: 1, Reset: -10}, 5, true}} {
		one := windowOf(fmt.Sprint(test.to), 10, 60, 3)
		r := s.reserve(one)
		s.reserve(windowOf(fmt.Sprint(test.to), 10, 60, 2))
		test.to.Reset += r.Used[0].Reset
		s.StartFrom([]weir.Charge{one}, []weir.Used{test.to})
		if c := s.settle(r, one, -3); c.Lost != test.lost || c.Done == test.lost {
			t.Errorf("settled after it was raised to %+v: %+v", test.to, c)
		}
		if n := s.count(one); n != test.want {
			t.Errorf("raised to %+v, and settled, it has %d units, want %d", test.to, n, test.want)
		}
		one.Cost = 1
		if c := s.settle(s.reserve(one), one, -1); !c.Done {
			t.Errorf("a take after it was raised: %+v", c)
		}
	}
}

// Resets are kept in bounded memory. If they were too many, nothing that was charged before them is
// given back.
func TestTheMemoryOfResetsIsBounded(t *testing.T) {
	s := newSettling(t, Options{})
	one := windowOf("a", 10, 3600, 3)
	r, most := s.reserve(one), 0
	for i := range 2 * maxResets {
		brief := windowOf(fmt.Sprint("brief ", i), 1, 1, 1)
		s.reserve(brief)
		if err := s.Reset(t.Context(), []weir.Charge{brief}); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			s.clock.Advance(time.Second)
		}
		most = max(most, len(s.resets.of))
	}
	if c := s.settle(r, one, -1); !c.Done || most > maxResets {
		t.Errorf("%d resets were kept of windows that end after a second: %+v", most, c)
	}
	r = s.reserve(one)
	for i := range maxResets + 1 {
		long := windowOf(fmt.Sprint("long ", i), 1, 3600, 1)
		s.reserve(long)
		if err := s.Reset(t.Context(), []weir.Charge{long}); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.settle(r, one, -3); c.Done || !c.Lost || len(s.resets.of) > maxResets {
		t.Errorf("%d resets are kept: %+v", len(s.resets.of), c)
	}
	if c := s.settle(s.reserve(one), one, -3); !c.Done {
		t.Errorf("a take after all resets: %+v", c)
	}
}

// A ticket of the moment at which the clock is set back may be from before or after.
func TestATicketOfASetBackIsVoid(t *testing.T) {
	s := newSettling(t, Options{})
	one := windowOf("a", 10, 60, 3)
	s.Store.clock.backs.Add(1)
	r := s.reserve(one)
	if c := s.settle(r, one, -3); c.Done || !c.Lost {
		t.Errorf("while it is set back: %+v", c)
	}
	s.Store.clock.backs.Add(1)
	if c := s.settle(r, one, -3); c.Done || !c.Lost {
		t.Errorf("after it: %+v", c)
	}
}

// More is never given back than was charged.
func TestAtMostTheCostIsGivenBack(t *testing.T) {
	s := newSettling(t, Options{})
	one, slot := windowOf("a", 10, 60, 3), slotOf("a", 5)
	s.reserve(one)
	s.reserve(slot)
	s.settle(s.reserve(one), one, -1<<62)
	s.settle(s.reserve(slot), slot, -1<<62)
	if n := s.count(one); n != 3 {
		t.Errorf("%d units, want 3", n)
	}
	if n := s.count(slot); n != 1 {
		t.Errorf("%d slots, want 1", n)
	}
}

func TestSettlingAllocatesNothing(t *testing.T) {
	s := newSettling(t, Options{})
	two := []weir.Charge{windowOf("a", 1000, 60, 3), windowOf("a", 1000, 3600, 3)}
	full := []weir.Charge{windowOf("b", 1000, 60, 3), slotOf("full", 1)}
	s.reserve(slotOf("full", 1))
	for _, test := range []struct {
		name string
		in   []weir.Charge
	}{{"a window", two[:1]}, {"two windows", two}, {"a slot", []weir.Charge{slotOf("a", 1)}}, {"a window and a slot", []weir.Charge{two[0], slotOf("a", 1)}}, {"no slot", full}} {
		var r weir.Receipt
		changes := make([]weir.Change, len(test.in))
		n := testing.AllocsPerRun(100, func() {
			if err := s.Take(t.Context(), test.in, &r); err != nil {
				t.Fatal(err)
			}
			for i, c := range test.in {
				changes[i] = weir.Change{Charge: c, Reset: r.Used[i].Reset, Units: -c.Cost}
			}
			if r.Allowed {
				if err := s.Settle(t.Context(), &r.Ticket, changes); err != nil || !changes[0].Done {
					t.Fatalf("%v, %+v", err, changes)
				}
			}
		})
		if n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}
