package failover_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
)

// A splitStore is a common store of two machines, of which one can be dead.
type splitStore struct {
	*link
	dead atomic.Bool // the machine of cutOff is dead
}

const cutOff = "192.0.2.2"

func (h *splitStore) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	if h.dead.Load() && bytes.Contains(charges[0].Key, []byte(cutOff)) {
		return errDown
	}
	return h.link.Take(ctx, charges, receipt)
}

func (h *splitStore) Reach(ctx context.Context, spent []weir.Spent, reached []bool) (err error) {
	for i, s := range spent {
		if h.dead.Load() && bytes.Contains(s.Key, []byte(cutOff)) {
			err = errDown
		} else {
			reached[i] = true
		}
	}
	return err
}

func (h *splitStore) Give(ctx context.Context, spent []weir.Spent) (lost int64, err error) {
	var arrives []weir.Spent
	for _, s := range spent {
		if h.dead.Load() && bytes.Contains(s.Key, []byte(cutOff)) {
			lost, err = lost+s.Used.Count, errDown
		} else {
			arrives = append(arrives, s)
		}
	}
	more, failed := h.link.Give(ctx, arrives)
	if failed != nil {
		err = failed
	}
	return lost + more, err
}

// One machine of a store is dead, and the other answers. The dead machine's units
// stay pending.
func TestUnitsForADeadMachineStayPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		h := &splitStore{link: &link{common: store}}
		n := newNodeBy(t, 100*time.Millisecond, store, h, limiter("l", "1000000 per hour by ip"))
		living, cut := caller{"ip": "192.0.2.1"}, caller{"ip": cutOff}
		n.outcome(weir.Counted, living)
		n.outcome(weir.Counted, cut)
		h.dead.Store(true)
		for range 300 {
			n.outcome(weir.CountedLocally, cut)
			for range 9 {
				n.outcome(weir.Counted, living)
				<-time.After(10 * time.Millisecond)
			}
		}
		h.dead.Store(false)
		for range 50 {
			n.ask("l", 0, living)
			<-time.After(100 * time.Millisecond)
		}
		events := n.events()
		if last := events[len(events)-1]; last.Failing || last.Given != 300 || last.Lost != 0 {
			t.Errorf("of 300 units %d were given and %d lost", last.Given, last.Lost)
		}
	})
}

// One machine is dead, and the other fails once. Its caller is counted in common as
// soon as that unit has been given, though the dead machine has pending units. If
// the window of a dead machine's caller has ended, nothing is pending for it.
func TestADeadMachineHoldsBackNoOtherWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newCommon(t)
		h := &splitStore{link: &link{common: store}}
		n := newNodeBy(t, 100*time.Millisecond, store, h, limiter("l", "20 per 5 seconds by ip"))
		living, cut := caller{"ip": "192.0.2.1"}, caller{"ip": cutOff}
		h.dead.Store(true)
		for range 30 { // these open the circuit breaker
			n.outcome(weir.CountedLocally, cut)
			<-time.After(10 * time.Millisecond)
		}
		store.mode.Store(fails)
		n.outcome(weir.CountedLocally, living)
		store.mode.Store(answers)
		<-time.After(1500 * time.Millisecond)
		n.over.Probe(t.Context())
		synctest.Wait()
		for range 300 {
			n.outcome(weir.Counted, living)
			n.outcome(weir.CountedLocally, cut)
			n.over.Probe(t.Context())
			<-time.After(100 * time.Millisecond)
		}
		h.dead.Store(false)
		<-time.After(5 * time.Second)
		n.outcome(weir.Counted, cut) // its window has ended: nothing is pending for it
	})
}
