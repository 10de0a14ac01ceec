package redis_test

import (
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
)

// A reset is written as its rest modulo 4194303, so some are written as a key without a window
// reads. What the settlement of such a window finds gone, it must not create: it would have no end.
func TestASettlementCreatesNoWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	k := admitted(t, s, charge("here", 10, 60, 1))
	changes := k.changes(5)
	changes[0].Charge = charge("gone", 10, 60, 1)
	changes[0].Reset -= changes[0].Reset % 4194303
	if err := s.Settle(t.Context(), &k.receipt.Ticket, changes); err != nil {
		t.Fatal(err)
	}
	if changes[0].Done {
		t.Errorf("a window that is gone was settled: %+v", changes[0])
	}
	if n := spent(t, s, charge("gone", 10, 60, 1)); n != 0 {
		t.Errorf("%d units are spent of a window that was never opened", n)
	}
}
