package redisstore

import (
	"context"
	"testing"
)

// Slots are given back after every renewal that has them: one that came later would take them
// again.
func TestSlotsAreReleasedAfterTheirLastRenewal(t *testing.T) {
	h := newHeld()
	key := heldKey{1, "a"}
	h.keep(key.slot, []byte(key.key), &heldSlots{name: "a", cost: 1})
	part := func() []renewal { return []renewal{{key, h.all[key]}} }
	_, endFirst := h.begin(part())
	_, endSecond := h.begin(part())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	endFirst()
	s, err := h.release(gone, key.slot, []byte(key.key))
	if err == nil {
		t.Fatal("they are released while a renewal is under way")
	}
	endSecond()
	select {
	case <-s.answered:
	default:
		t.Error("they are not released after the last renewal")
	}
	h.keep(key.slot, []byte(key.key), s)
	if _, err := h.release(gone, key.slot, []byte(key.key)); err != nil {
		t.Errorf("without a renewal: %v", err)
	}
}
