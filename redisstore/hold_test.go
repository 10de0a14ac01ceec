package redisstore

import (
	"context"
	"testing"

	"github.com/weirlimit/weir"
)

// Slots are given back after every renewal that has them: one that came later would take them
// again. If their caller does not wait for that, the last renewal gives them back.
func TestSlotsAreReleasedAfterTheirLastRenewal(t *testing.T) {
	h := newHeld()
	key := heldKey{1, "a"}
	h.keep(key.slot, []byte(key.key), &heldSlots{name: "a", cost: 1})
	part := func() []renewal { return []renewal{{key, h.all[key]}} }
	_, endFirst := h.begin(part())
	_, endSecond := h.begin(part())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if ended := endFirst(); len(ended) > 0 {
		t.Error("they are given back although nobody has asked for it")
	}
	later := new(order)
	giveLater := func(*heldSlots) *order { return later }
	changes := []weir.Change{{Charge: weir.Charge{Key: []byte(key.key), Held: true}}}
	s := h.end(key.slot, changes)[0]
	if h.release(gone, s, giveLater) == nil {
		t.Fatal("they are released while a renewal is under way")
	}
	if ended := endSecond(); len(ended) != 1 || ended[0] != later {
		t.Errorf("the last renewal gives back %v, want the slots", ended)
	}
	select {
	case <-s.answered:
	default:
		t.Error("they are not released after the last renewal")
	}
	h.keep(key.slot, []byte(key.key), &heldSlots{name: "a", cost: 1})
	if err := h.release(gone, h.end(key.slot, changes)[0], giveLater); err != nil {
		t.Errorf("without a renewal: %v", err)
	}
}
