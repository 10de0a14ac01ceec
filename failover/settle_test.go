package failover_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/failover"
)

// A settlingLink is a link to a common store that settles.
type settlingLink struct {
	*link
	settles atomic.Int32
}

func (l *settlingLink) Settle(ctx context.Context, t *weir.Ticket, changes []weir.Change) error {
	l.settles.Add(1)
	switch l.mode.Load() {
	case fails:
		lost(changes)
		return errDown
	case hangs:
		<-ctx.Done()
		lost(changes)
		return ctx.Err()
	}
	return l.inner.Settle(ctx, t, changes)
}

func lost(changes []weir.Change) {
	for i := range changes {
		changes[i].Lost = true
	}
}

// A settlingNode is a node whose takes are settled.
type settlingNode struct {
	*node
	way *settlingLink
}

func newSettlingNode(t *testing.T) *settlingNode {
	t.Helper()
	way := &settlingLink{link: &link{common: newCommon(t)}}
	return &settlingNode{newNodeBy(t, 100*time.Millisecond, way.common, way, limiter("l", "100 per minute by ip")), way}
}

// A reserved is an allowed take that is to be settled.
type reserved struct {
	*settlingNode
	charges []weir.Charge
	receipt weir.Receipt
}

func window(cost int64) weir.Charge {
	return weir.Charge{Key: []byte("window"), Limit: 100, Per: 60, Cost: cost}
}

func heldSlot(limit int64) weir.Charge {
	return weir.Charge{Key: []byte("slot"), Limit: limit, Cost: 1, Held: true}
}

func (n *settlingNode) take(charges ...weir.Charge) weir.Receipt {
	n.Helper()
	var r weir.Receipt
	if err := n.over.Take(n.Context(), charges, &r); err != nil {
		n.Fatal(err)
	}
	return r
}

func (n *settlingNode) reserve(want weir.Outcome, charges ...weir.Charge) *reserved {
	n.Helper()
	r := n.take(charges...)
	if !r.Allowed || r.Outcome != want || r.Ticket.Local != (want == weir.CountedLocally) {
		n.Fatalf("the take was answered %+v, want allowed and outcome %v", r, want)
	}
	return &reserved{n, charges, r}
}

// settle changes the charge by units.
func (r *reserved) settle(charge int, units int64) weir.Change {
	r.Helper()
	c := []weir.Change{{Charge: r.charges[charge], Reset: r.receipt.Used[charge].Reset, Units: units}}
	if err := r.over.Settle(r.Context(), &r.receipt.Ticket, c); err != nil && !c[0].Lost {
		r.Errorf("settled as %+v, %v", c[0], err)
	}
	return c[0]
}

// counts compares the count of the store's window.
func (n *settlingNode) counts(want int64) {
	n.Helper()
	var r weir.Receipt
	if err := n.way.inner.Take(n.Context(), []weir.Charge{window(0)}, &r); err != nil || r.Used[0].Count != want {
		n.Errorf("the store counts %d, want %d (%v)", r.Used[0].Count, want, err)
	}
}

// comesBack lets the store answer, until it has what it is owed.
func (n *settlingNode) comesBack() {
	n.Helper()
	n.way.mode.Store(answers)
	<-time.After(2 * time.Second)
	n.over.Probe(n.Context())
	synctest.Wait()
	if n.take(window(0)).Outcome != weir.Counted {
		n.Error("the store is not used again")
	}
}

// A take is settled where it was counted: in the store, or here and in what the store is owed.
func TestATakeIsSettledWhereItWasCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		first, second := n.reserve(weir.Counted, window(20)), n.reserve(weir.Counted, window(10))
		if c := first.settle(0, -15); !c.Done || c.Used.Count != 15 {
			t.Errorf("in the store it was settled as %+v", c)
		}
		n.counts(15)
		n.take(window(0)) // this process knows of it
		n.way.mode.Store(fails)
		less, over, sent := n.reserve(weir.CountedLocally, window(30)), n.reserve(weir.CountedLocally, window(5)), n.reserve(weir.CountedLocally, window(7))
		if c := less.settle(0, -25); !c.Done || c.Used.Count != 32 {
			t.Errorf("here it was settled as %+v", c)
		}
		over.settle(0, 4)
		if c := second.settle(0, -9); c.Done || !c.Lost {
			t.Errorf("without the store its take was settled as %+v", c)
		}
		n.comesBack()
		n.counts(15 + 5 + 9 + 7)
		if c := sent.settle(0, -7); c.Done || !c.Lost {
			t.Errorf("units that the store has were settled here as %+v", c)
		}
		n.counts(36)
		if c := n.reserve(weir.Counted, window(1)).settle(0, -1); !c.Done {
			t.Errorf("after the outage: %+v", c)
		}
		n.counts(36)
		if got := n.way.units(); got != 21 {
			t.Errorf("the store was given %d units, want 21", got)
		}
	})
}

// Units that are on their way to the store, or that it has not confirmed, are not given back: it
// may have them. Units of later takes in the same window are.
func TestUnitsOnTheirWayAreNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		n.way.mode.Store(fails)
		n.open(ip)
		sent, overrun := n.reserve(weir.CountedLocally, window(30)), n.reserve(weir.CountedLocally, window(2))
		n.way.slow.Store(int64(500 * time.Millisecond))
		n.way.mode.Store(answers)
		<-time.After(time.Second)
		n.over.Probe(t.Context()) // the first round is under way
		synctest.Wait()
		later := n.reserve(weir.CountedLocally, window(10))
		if c := sent.settle(0, -30); c.Done || !c.Lost {
			t.Errorf("units on their way were given back: %+v", c)
		}
		if c := later.settle(0, -9); !c.Done {
			t.Errorf("units that wait here were settled as %+v", c)
		}
		if c := overrun.settle(0, 3); !c.Done { // more is owed
			t.Errorf("an overrun was settled as %+v", c)
		}
		<-time.After(5 * time.Second)
		n.over.Probe(t.Context())
		synctest.Wait()
		n.counts(30 + 2 + 1 + 3)
	})
}

// While the breaker is open a take of the store is not settled, and nothing waits for it. One that
// the store does not answer waits for the deadline.
func TestASettlementWaitsNoLongerThanTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		first, second := n.reserve(weir.Counted, window(20)), n.reserve(weir.Counted, window(10), heldSlot(3))
		n.way.mode.Store(hangs)
		start := time.Now()
		if c := first.settle(0, -15); c.Done || !c.Lost || time.Since(start) > 100*time.Millisecond {
			t.Errorf("after %v it was settled as %+v", time.Since(start), c)
		}
		n.open(ip)
		start, asked := time.Now(), n.way.settles.Load()
		if c := second.settle(0, -9); c.Done || !c.Lost || time.Since(start) != 0 || n.way.settles.Load() != asked {
			t.Errorf("with an open breaker it was settled after %v as %+v", time.Since(start), c)
		}
		if c := second.settle(1, -1); !c.Lost || n.way.settles.Load() != asked+1 {
			t.Errorf("the store does not know that a slot has ended: %+v", c)
		}
	})
}

// What was admitted without being counted cannot be given back.
func TestNothingThatIsNotCountedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		n.way.mode.Store(fails)
		full := window(100)
		full.OnFailure = weir.FailAllow
		n.take(full)
		r := n.take(full)
		if !r.Allowed || r.Outcome != weir.AllowedUncounted || r.Ticket != (weir.Ticket{}) {
			t.Errorf("beyond the limit it was admitted as %+v", r)
		}
	})
}

// Slots that are counted here are given back here.
func TestLocalSlotsAreGivenBackHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		n.way.mode.Store(fails)
		one := n.reserve(weir.CountedLocally, window(1), heldSlot(2))
		two := n.reserve(weir.CountedLocally, window(1), heldSlot(2))
		if r := n.take(window(1), heldSlot(2)); r.Allowed || r.Used[1].Count != 2 {
			t.Errorf("a third of two was answered %+v", r)
		}
		if c := one.settle(1, -1); !c.Done || c.Used.Count != 1 {
			t.Errorf("a slot was given back as %+v", c)
		}
		three := n.reserve(weir.CountedLocally, window(1), heldSlot(2))
		n.comesBack()
		n.counts(3) // slots are owed to nobody
		three.settle(1, -1)
		n.reserve(weir.Counted, window(1), heldSlot(2))
		if r := n.take(window(1), heldSlot(2)); r.Allowed || r.Used[1].Count != 2 {
			t.Errorf("beside a slot that is still held here, a second was answered %+v", r)
		}
		two.settle(1, -1)
		n.reserve(weir.Counted, window(1), heldSlot(2))
	})
}

// Only a fallback that settles can hold slots.
func TestAFallbackThatCannotHoldSlotsRefuses(t *testing.T) {
	r := &remote{}
	r.mode.Store(fails)
	s, err := failover.New(r, plain{newMem(t, time.Now)}, failover.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var receipt weir.Receipt
	if err := s.Take(t.Context(), []weir.Charge{heldSlot(1)}, &receipt); err != nil || receipt.Allowed || receipt.Outcome != weir.StoreUnavailable {
		t.Errorf("it was answered %+v, %v", receipt, err)
	}
}

// plain hides that a store settles.
type plain struct{ weir.Store }

func (plain) InProcess() {}
