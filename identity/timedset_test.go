package identity

import (
	"net/netip"
	"testing"
	"time"
)

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

// Two windows of one limiter (D16).
func TestAnAddressSpentAgainIsSpentUntilTheLaterReset(t *testing.T) {
	var s timedSet[spentKey]
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k := spentKey{"chat", netip.MustParseAddr("203.0.113.7")}
	s.add(k, now.Add(time.Hour))
	s.add(k, now.Add(time.Minute))
	if !s.holds(k, now.Add(time.Minute)) || s.holds(k, now.Add(time.Hour)) {
		t.Error("the shorter span ended the longer")
	}
}
