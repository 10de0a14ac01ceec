package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// In an outage a node counts the slots that its requests hold in the store, and no more of them
// than the limit are under way on each node: on two nodes at most twice the limit.
func TestSlotsOfTheStoreCountInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		a := newSettlingNode(t)
		way := &settlingLink{link: &link{common: a.way.common}}
		b := &settlingNode{newNodeBy(t, 100*time.Millisecond, way.common, way, limiter("l", "100 per minute by ip")), way}
		first := a.reserve(weir.Counted, window(1), heldSlot(limit))
		a.reserve(weir.Counted, window(1), heldSlot(limit))
		b.reserve(weir.Counted, window(1), heldSlot(limit))
		a.way.mode.Store(fails)
		b.way.mode.Store(fails)
		more := 0
		for range 2 * limit {
			for _, n := range []*settlingNode{a, b} {
				if r := n.take(window(1), heldSlot(limit)); r.Allowed {
					more++
				} else if r.Outcome != weir.CountedLocally || r.Used[1].Count != limit {
					t.Errorf("a request without a slot was answered %+v", r)
				}
			}
		}
		if more != 2*limit-3 {
			t.Errorf("%d requests beside 3 were admitted, want %d", more, 2*limit-3)
		}
		first.settle(1, -1) // the store does not answer, and the request has ended all the same
		a.reserve(weir.CountedLocally, window(1), heldSlot(limit))
		if a.take(window(1), heldSlot(limit)).Allowed {
			t.Error("one slot too many")
		}
	})
}

// A limiter that is closed in an outage gives no slot.
func TestAClosedLimiterGivesNoSlotInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSettlingNode(t)
		n.way.mode.Store(fails)
		c := heldSlot(3)
		c.OnFailure = weir.FailDeny
		if r := n.take(c); r.Allowed || r.Outcome != weir.StoreUnavailable {
			t.Errorf("it was answered %+v", r)
		}
	})
}

// A betweenLink takes, and runs something before it returns the answer.
type betweenLink struct {
	*settlingLink
	before func()
}

func (l *betweenLink) Take(ctx context.Context, charges []weir.Charge, r *weir.Receipt) error {
	err := l.settlingLink.Take(ctx, charges, r)
	if before := l.before; before != nil && err == nil {
		l.before = nil
		before()
	}
	return err
}

// The store gives the last slot while another request, which it does not answer, is given it here.
// One of the two is refused, and what the store has counted for it is given back.
func TestTheLastSlotIsGivenByOneStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &betweenLink{settlingLink: &settlingLink{link: &link{common: newCommon(t)}}}
		n := &settlingNode{newNodeBy(t, 100*time.Millisecond, way.common, way, limiter("l", "100 per minute by ip")), way.settlingLink}
		var other *reserved
		way.before = func() {
			way.mode.Store(fails)
			other = n.reserve(weir.CountedLocally, heldSlot(1))
			way.mode.Store(answers)
		}
		if r := n.take(window(5), heldSlot(1)); r.Allowed || r.Ticket != (weir.Ticket{}) || r.Used[1].Count != 1 {
			t.Errorf("beside it a request was answered %+v", r)
		}
		n.counts(0)
		other.settle(0, -1)
		n.comesBack()
		n.reserve(weir.Counted, heldSlot(1))
	})
}
