package identity

import (
	"net/netip"
	"testing"
	"time"
)

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
