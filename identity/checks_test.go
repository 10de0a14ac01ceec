package identity

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A flood of addresses frees no address from its bound (D16).
func TestTenMillionAddressesForgetNoChecks(t *testing.T) {
	checks := checkTable{seed: maphash.MakeSeed()}
	now, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	for range checkBurst {
		if !checks.take(guesser, 0, now) {
			t.Fatal("a check is missing")
		}
	}
	for i := range 10_000_000 {
		checks.take(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), 0, now)
	}
	if checks.take(guesser, 0, now) {
		t.Error("the address that has spent its checks has another one")
	}
	if !checks.take(guesser, 0, now.Add(time.Second)) {
		t.Error("a second later it has none: the flood took them")
	}
}

func TestParallelGuessesAreCountedExactly(t *testing.T) {
	checks := checkTable{seed: maphash.MakeSeed()}
	now, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	var all sync.WaitGroup
	var checked atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if checks.take(guesser, 0, now) {
					checked.Add(1)
				}
			}
		})
	}
	all.Wait()
	if checked.Load() != checkBurst {
		t.Errorf("%d of 8000 guesses were checked, want %d", checked.Load(), checkBurst)
	}
}
