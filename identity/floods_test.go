//go:build !race

// One goroutine does all this, which the race detector would only slow down.

package identity

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A flood of addresses frees no address from its bound (D16).
func TestTenMillionAddressesForgetNoChecks(t *testing.T) {
	var checks checkTable
	now, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	checks.begin(now)
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

func TestAFloodOfVerifiedCredentialsStaysBounded(t *testing.T) {
	const bound = cacheBytes
	for _, length := range []int{61, 400, maxBearer} {
		var c verifiedCache[int]
		v, flood := 7, bound/length+20_000
		padding := strings.Repeat("x", length)
		for i := range min(flood, 200_000) {
			s := fmt.Sprintf("%s%08d", padding, i)
			c.keep(s[len(s)-length:], &v)
		}
		if n, bytes := c.entries(); bytes+n*entryOverhead > bound || n < 1000 {
			t.Errorf("%d credentials of %d bytes: %d bytes, at most %d are allowed", n, length, bytes+n*entryOverhead, bound)
		}
	}
}

func TestAMillionSpentAddressesStayBounded(t *testing.T) {
	var s timedSet[spentKey]
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(i int) spentKey {
		return spentKey{"chat", netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})}
	}
	for i := range 1_000_000 {
		s.add(key(i), now.Add(time.Minute))
	}
	if n := len(s.young) + len(s.old); n > 2*maxTimed || int64(n) != s.size.Load() {
		t.Errorf("%d entries, %d counted, at most %d are allowed", n, s.size.Load(), 2*maxTimed)
	}
	for i := 1_000_000 - maxTimed; i < 1_000_000; i++ {
		if !s.holds(key(i), now.Add(time.Minute-1)) {
			t.Fatalf("the one %d before the last is forgotten", 1_000_000-i)
		}
	}
	if s.holds(key(0), now) {
		t.Error("the first of a million is still there")
	}
	for i := range 1_000_000 {
		if s.holds(key(i), now.Add(time.Minute)) {
			t.Fatal("one is spent beyond its reset")
		}
	}
	if !s.empty() {
		t.Errorf("%d are kept beyond their reset", s.size.Load())
	}
}
