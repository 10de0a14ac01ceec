// Package storetest is the test suite of weir.Store: the same timelines, the same property and the
// same concurrent histories for every implementation, here and elsewhere.
package storetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A Clock is the clock of the store under test.
type Clock interface {
	// Now returns the store's time.
	Now() time.Time
	// Advance moves it by d. A negative d sets the clock back.
	Advance(d time.Duration)
}

// A ManualClock is a Clock that only Advance moves. It is safe for concurrent use. The zero value
// is at Go's zero time; StartManualClock returns one at a realistic time.
type ManualClock struct {
	mu  sync.Mutex
	now time.Time
}

// StartManualClock returns a clock at a time with a fraction of a second, so that rounding errors
// show.
func StartManualClock() *ManualClock {
	return &ManualClock{now: time.Unix(1_800_000_000, 123_456_789)}
}

// Now implements Clock.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance implements Clock.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run tests that a store keeps the contract of weir.Store, and those of weir.Keeper, weir.Settler
// and weir.Leaser if it implements them. open returns an empty store and its clock. It is called
// once for each subtest, and cleans up through t. A bounded store needs room for 10,000 open
// windows.
func Run(t *testing.T, open func(t *testing.T) (weir.Store, Clock)) {
	RunExcept(t, open)
}

// RunExcept is Run without the subtests that have some names. It is for a store that differs from
// the contract where its documentation says so, and has tests of its own for that. A name that no
// subtest has fails the test.
func RunExcept(t *testing.T, open func(t *testing.T) (weir.Store, Clock), names ...string) {
	names = slices.Clone(names)
	for _, test := range []struct {
		name string
		run  func(*harness)
	}{
		{"a window starts at its first unit and is restored exactly at reset", restoredAtReset},
		{"the reset stays put through a window", resetStays},
		{"a refused take spends nothing", refusedSpendsNothing},
		{"a refused minute leaves the hour alone", refusedMinuteLeavesHour},
		{"a refused hour leaves the minute alone", refusedHourLeavesMinute},
		{"the order of charges makes no difference", orderMakesNoDifference},
		{"a take that does not fit spends nothing", costThatDoesNotFit},
		{"a cost of nothing reads without opening", readOpensNothing},
		{"a gate spends nothing, and refuses while its window is full", gateRefusesWhileFull},
		{"a gate is judged in the same step as the other charges", gateAmongOthers},
		{"a raised limit takes effect at once", raisedLimit},
		{"a lowered limit refuses and keeps the count", loweredLimit},
		{"a clock that was set back keeps the count", clockSetBack},
		{"a clock that was set back does not keep a spent window waiting", clockSetBackOnSpent},
		{"keys are bytes", keysAreBytes},
		{"as many charges as there can be", manyCharges},
		{"a day later everything is restored", dayLater},
		{"a thousand at once on a limit of ten", thousandAtOnce},
		{"two windows at once are all or none", twoWindowsAtOnce},
		{"a cancelled take returns", cancelledTakeReturns},
		{"a take spends nothing after its deadline", nothingAfterTheDeadline},
		{"a reset that was told holds", toldResetHolds},
		{"random takes follow the arithmetic", followsArithmetic},
		{"concurrent takes are linearizable", linearizable},
		{"concurrent takes are linearizable while the store grows", linearizableWhileGrowing},
		{"thousands of keys at once are exact while windows end", manyKeys},
		{"totals are bounded while the clock is set back", totalsWhenTheClockJumps},
		{"the clock never runs backwards from take to take", nowNeverRunsBackwards},
		{"a window aligned to the clock ends at a multiple of its length", alignedEnds},
		{"a window of a calendar ends when a local day begins", calendarEnds},
		{"windows by the clock and others are all or none", clockAmongOthers},
		{"a clock that was set back keeps the count of a window by the clock", clockSetBackInCalendar},
		{"a clock that was set by days finds the right span", clockSetByDays},
		{"random takes of windows by the clock follow the arithmetic", clockFollowsArithmetic},
		{"concurrent takes of windows by the clock are linearizable", linearizableByTheClock},
		{"at once and across a boundary, each span admits exactly the limit", exactAcrossBoundary},
		{"a window that was reset begins anew", kept(resetRestores)},
		{"a reset leaves other windows alone", kept(resetLeavesOthers)},
		{"a reset of nothing changes nothing", kept(resetOfNothing)},
		{"between two resets exactly the limit is admitted", kept(resetAmongTakes)},
		{"windows are reset together or not", kept(resetIsWhole)},
		{"a grant is its window's alone", kept(grantHolds)},
		{"a grant ends at its very second", kept(grantEnds)},
		{"a grant is replaced and taken back", kept(grantReplaced)},
		{"as many grants as every keeper keeps", kept(grantsOfMany)},
		{"keys with grants are bytes", kept(grantOfAnyKey)},
		{"a grant that cannot be one changes nothing", kept(grantCannotBe)},
		{"grants spend nothing", kept(grantsSpendNothing)},
		{"units that are given back can be spent again", settled(unitsComeBack)},
		{"a window that got all its units back stays open", settled(allComesBack)},
		{"an overrun is charged beyond the limit", settled(overrunIsCharged)},
		{"the highest count stays", settled(highestCount)},
		{"a window that has ended is not settled, nor is the next", settled(endedStaysEnded)},
		{"a take before a reset is not settled after it", settledAndKept(resetVoids)},
		{"a reset of other windows voids no take", settledAndKept(resetOfOthers)},
		{"each window of a take is settled on its own", settled(severalWindows)},
		{"takes are settled under another limit", settled(changedLimit)},
		{"takes by the clock are settled in their span", settled(settledByTheClock)},
		{"a clock that was set back gives nothing to a later window", settled(settledAfterSetBack)},
		{"at once, what was used is counted to the unit", settled(settledAtOnce)},
		{"slots are held until they are given back", settled(slotsAreHeld)},
		{"slots are their caller's alone", settled(slotsAreTheirCallersAlone)},
		{"slots and windows are all or none", settled(slotsAmongWindows)},
		{"slots of several callers are all or none", settled(severalSlots)},
		{"slots under another limit", settled(changedSlots)},
		{"at once, no slot too many is held", settled(slotsAtOnce)},
		{"random settlements follow the arithmetic", settled(settlesByArithmetic)},
		{"concurrent takes, settlements and resets are linearizable", settled(settlesLinearizable)},
		{"leased units are charged, and are spent once", leased(leasedIsCharged)},
		{"leased units serve only what they may", leased(leasedSpendsOnlyWhatItMay)},
		{"leased units end with their window", leased(leasedEndsWithItsWindow)},
	} {
		if i := slices.Index(names, test.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			store, clock := open(t)
			test.run(&harness{T: t, store: store, clock: clock})
		})
	}
	if len(names) > 0 {
		t.Errorf("no tests have these names: %q", names)
	}
}

type harness struct {
	*testing.T
	store   weir.Store
	clock   Clock
	settles bool // a window can be open and empty
}

// charge returns a charge of cost units to a window that is named by its length and counted by who.
// All windows share the first key source, since a store may be able to charge only such windows
// together.
func charge(who string, limit int64, per time.Duration, cost int64) weir.Charge {
	c := weir.Charge{Limit: limit, Per: int64(per / time.Second), Cost: cost}
	c.Key = binary.BigEndian.AppendUint32([]byte("\x04test"), uint32(c.Per))
	c.Scope = len(c.Key)
	c.Key = append(c.Key, "\x05first"...)
	c.Subject = len(c.Key)
	c.Key = append(c.Key, byte(len(who)))
	c.Key = append(c.Key, who...)
	return c
}

func (h *harness) take(charges ...weir.Charge) weir.Receipt {
	h.Helper()
	var r weir.Receipt
	if err := h.store.Take(h.Context(), charges, &r); err != nil {
		h.Fatalf("take: %v", err)
	}
	if err := coherent(charges, r, h.settles); err != nil {
		h.Fatalf("take of %+v answered %+v: %v", charges, r, err)
	}
	return r
}

// expect takes, and compares the whole receipt: each used is the count, then the seconds from now
// to the reset.
func (h *harness) expect(allowed bool, charges []weir.Charge, used ...[2]int64) {
	h.Helper()
	r := h.take(charges...)
	if now := h.clock.Now().Unix(); r.Now != now {
		h.Errorf("the receipt's clock says %d, the store's %d", r.Now, now)
	}
	if r.Allowed != allowed {
		h.Errorf("allowed = %v, want %v", r.Allowed, allowed)
	}
	for i, want := range used {
		got := [2]int64{r.Used[i].Count, r.Used[i].Reset - r.Now}
		if r.Used[i].Reset == 0 {
			got[1] = 0
		}
		if got != want {
			h.Errorf("charge %d: count and seconds to reset %v, want %v", i, got, want)
		}
	}
	if h.Failed() {
		h.FailNow()
	}
}

func (h *harness) advance(d time.Duration) { h.clock.Advance(d) }

// toFraction moves the clock to the given part of the current second.
func (h *harness) toFraction(ns int) {
	h.advance(time.Duration(ns) - time.Duration(h.clock.Now().Nanosecond()))
}

type charges = []weir.Charge

func restoredAtReset(h *harness) {
	one := charges{charge("a", 2, time.Minute, 1)}
	h.expect(true, one, [2]int64{1, 60})
	h.expect(true, one, [2]int64{2, 60})
	h.expect(false, one, [2]int64{2, 60})
	h.advance(59 * time.Second)
	h.toFraction(999_999_999) // one nanosecond before the reset
	h.expect(false, one, [2]int64{2, 1})
	h.advance(time.Nanosecond)
	h.expect(true, one, [2]int64{1, 60})
}

func resetStays(h *harness) {
	one := charges{charge("a", 100, time.Minute, 1)}
	h.toFraction(900_000_000)
	for i := range int64(60) {
		h.expect(true, one, [2]int64{i + 1, 60 - i})
		h.advance(time.Second)
	}
	h.expect(true, one, [2]int64{1, 60})
}

func refusedSpendsNothing(h *harness) {
	one := charges{charge("a", 1, 10*time.Second, 1)}
	for range 5 { // through boundaries: each window admits one
		h.expect(true, one, [2]int64{1, 10})
		for i := range int64(10) {
			for range 20 {
				h.expect(false, one, [2]int64{1, 10 - i})
			}
			h.advance(time.Second)
		}
	}
}

func refusedMinuteLeavesHour(h *harness) {
	both := charges{charge("a", 2, time.Minute, 1), charge("a", 5, time.Hour, 1)}
	h.expect(true, both, [2]int64{1, 60}, [2]int64{1, 3600})
	h.expect(true, both, [2]int64{2, 60}, [2]int64{2, 3600})
	for range 50 {
		h.expect(false, both, [2]int64{2, 60}, [2]int64{2, 3600})
	}
	h.advance(time.Minute)
	h.expect(true, both, [2]int64{1, 60}, [2]int64{3, 3540})
}

func refusedHourLeavesMinute(h *harness) {
	a := charges{charge("a", 3, time.Minute, 1), charge("all", 3, time.Hour, 1)}
	b := charges{charge("b", 3, time.Minute, 1), charge("all", 3, time.Hour, 1)}
	for i := range int64(3) {
		h.expect(true, a, [2]int64{i + 1, 60}, [2]int64{i + 1, 3600})
	}
	for range 50 {
		h.expect(false, b, [2]int64{0, 0}, [2]int64{3, 3600})
	}
	h.expect(true, charges{charge("b", 3, time.Minute, 3)}, [2]int64{3, 60})
}

func orderMakesNoDifference(h *harness) {
	minute, hour := charge("a", 2, time.Minute, 1), charge("a", 3, time.Hour, 1)
	h.expect(true, charges{minute, hour}, [2]int64{1, 60}, [2]int64{1, 3600})
	h.expect(true, charges{hour, minute}, [2]int64{2, 3600}, [2]int64{2, 60})
	h.expect(false, charges{hour, minute}, [2]int64{2, 3600}, [2]int64{2, 60})
	h.expect(false, charges{minute, hour}, [2]int64{2, 60}, [2]int64{2, 3600})
}

func costThatDoesNotFit(h *harness) {
	h.expect(true, charges{charge("a", 10, time.Minute, 7)}, [2]int64{7, 60})
	h.expect(false, charges{charge("a", 10, time.Minute, 4)}, [2]int64{7, 60})
	h.expect(true, charges{charge("a", 10, time.Minute, 3)}, [2]int64{10, 60})
	h.expect(false, charges{charge("a", 10, time.Minute, 1)}, [2]int64{10, 60})
	h.expect(true, charges{charge("b", weir.MaxLimit, time.Minute, weir.MaxLimit)}, [2]int64{weir.MaxLimit, 60})
	h.expect(false, charges{charge("b", weir.MaxLimit, time.Minute, weir.MaxLimit)}, [2]int64{weir.MaxLimit, 60})
}

func readOpensNothing(h *harness) {
	read, one := charges{charge("a", 2, time.Minute, 0)}, charges{charge("a", 2, time.Minute, 1)}
	h.expect(true, read, [2]int64{0, 0})
	h.advance(30 * time.Second)
	h.expect(true, one, [2]int64{1, 60})
	h.expect(true, one, [2]int64{2, 60})
	h.expect(true, read, [2]int64{2, 60}) // a read is allowed with nothing left
	h.expect(false, one, [2]int64{2, 60})
	h.advance(time.Minute)
	h.expect(true, read, [2]int64{0, 0})
}

func raisedLimit(h *harness) {
	h.expect(true, charges{charge("a", 1, time.Minute, 1)}, [2]int64{1, 60})
	h.expect(false, charges{charge("a", 1, time.Minute, 1)}, [2]int64{1, 60})
	h.expect(true, charges{charge("a", 2, time.Minute, 1)}, [2]int64{2, 60})
}

func loweredLimit(h *harness) {
	for i := range int64(5) {
		h.expect(true, charges{charge("a", 10, time.Minute, 1)}, [2]int64{i + 1, 60})
	}
	h.expect(false, charges{charge("a", 3, time.Minute, 1)}, [2]int64{5, 60})
	h.expect(true, charges{charge("a", 3, time.Minute, 0)}, [2]int64{5, 60})
	h.expect(true, charges{charge("a", 6, time.Minute, 1)}, [2]int64{6, 60})
}

func clockSetBack(h *harness) {
	one := charges{charge("a", 2, time.Minute, 1)}
	h.expect(true, one, [2]int64{1, 60})
	h.advance(-30 * time.Second) // the reset, 90 s away, moves to one length from now
	h.expect(true, one, [2]int64{2, 60})
	h.expect(false, one, [2]int64{2, 60})
	h.advance(time.Minute)
	h.expect(true, one, [2]int64{1, 60})
}

func clockSetBackOnSpent(h *harness) {
	one := charges{charge("a", 1, time.Minute, 1)}
	h.expect(true, one, [2]int64{1, 60})
	h.advance(-time.Hour)
	for i := range int64(60) { // the reset comes nearer though nothing is spent
		h.expect(false, one, [2]int64{1, 60 - i})
		h.advance(time.Second)
	}
	h.expect(true, one, [2]int64{1, 60})
}

func keysAreBytes(h *harness) {
	long := make([]byte, 4096)
	for i, who := range []string{"", "\x00", "\x00\x00", "a\x00b", "a", "b", "a_b", "\xff\xfe", "{a}", string(long), string(long[1:])} {
		for n := range int64(2) {
			h.expect(true, charges{charge(who, 2, time.Minute, 1)}, [2]int64{n + 1, 60})
		}
		h.expect(false, charges{charge(who, 2, time.Minute, 1)}, [2]int64{2, 60})
		if h.Failed() {
			h.Fatalf("key %d, %.20q, is counted with another", i, who)
		}
	}
}

func manyCharges(h *harness) {
	var all charges
	var once, twice [][2]int64
	for i := range weir.MaxCharges {
		all = append(all, charge(fmt.Sprint(i), 2, time.Minute, 1))
		once, twice = append(once, [2]int64{1, 60}), append(twice, [2]int64{2, 60})
	}
	h.expect(true, all, once...)
	h.expect(true, all, twice...)
	h.expect(false, all, twice...)
}

func dayLater(h *harness) {
	both := charges{charge("a", 1, time.Minute, 1), charge("a", 3, 24*time.Hour, 1)}
	for day := range 3 {
		for i := range int64(3) {
			h.expect(true, both, [2]int64{1, 60}, [2]int64{i + 1, 86400 - i*60})
			h.advance(time.Minute)
		}
		h.expect(false, both, [2]int64{0, 0}, [2]int64{3, 86400 - 180})
		h.advance(24*time.Hour - 3*time.Minute)
		if h.Failed() {
			h.Fatalf("on day %d", day)
		}
	}
}
