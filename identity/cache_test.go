package identity

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// entries returns the number of a cache's entries, and the bytes of their
// credentials.
func (c *verifiedCache[V]) entries() (n, bytes int) {
	t := c.table.Load()
	for i := range t.sets {
		for j := range t.sets[i].ways {
			if e := t.sets[i].ways[j].Load(); e != nil {
				n, bytes = n+1, bytes+len(e.credential)
			}
		}
	}
	return n, bytes
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

// A token of 8 KiB can hold 100 KiB of small values.
func TestASessionsClaimsCountAgainstTheBound(t *testing.T) {
	var few, many verifiedCache[SessionClaims]
	list := make([]any, 2000)
	for i := range list {
		list[i] = map[string]any{}
	}
	for i := range 10_000 {
		s := fmt.Sprintf("%08d", i)
		few.keep(s, &SessionClaims{})
		many.keep(s, &SessionClaims{Claims: map[string]any{"list": list}})
	}
	// Of those that meet by chance one makes way, though there is room elsewhere.
	if n, _ := few.entries(); n < 9_900 {
		t.Fatalf("%d small sessions are kept, want nearly all: the test is too large", n)
	}
	if n, _ := many.entries(); n*len(list)*64 > 2*cacheBytes {
		t.Errorf("%d sessions with %d values each are kept", n, len(list))
	}
}

// An entry that is used does not make way.
func TestACredentialInUseSurvivesAFlood(t *testing.T) {
	var c verifiedCache[int]
	hot, v := 1, 7
	c.keep("hot", &hot)
	c.keep("cold", &v)
	for i := range 300_000 {
		c.keep(fmt.Sprintf("%08d", i), &v)
		if i%1000 == 0 && c.find("hot") != &hot {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if c.find("cold") != nil {
		t.Error("an unused one is still there: the flood was too small")
	}
}

func TestAKeptCredentialIsFoundByTheWholeOfIt(t *testing.T) {
	var c verifiedCache[int]
	a, b := 1, 2
	c.keep("payload1.signature", &a)
	c.keep("payload2.signature", &b)
	if c.find("payload1.signature") != &a || c.find("payload2.signature") != &b || c.find("payload3.signature") != nil || c.find("signature") != nil || c.find("") != nil {
		t.Error("another credential's entry was found")
	}
	c.drop("payload1.signature")
	if c.find("payload1.signature") != nil || c.find("payload2.signature") != &b {
		t.Error("drop dropped another one, or none")
	}
}

func TestACacheIsSharedByManyRequests(t *testing.T) { // for the race detector, across generations
	var c verifiedCache[int]
	v, large := 7, strings.Repeat("x", 4<<10)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 2_000 {
				k := fmt.Sprintf("%s%d/%d", large, i, g%2)
				c.keep(k, &v)
				if found := c.find(k); found != nil && found != &v {
					t.Error("another entry was found")
				}
				if i%10 == 0 {
					c.drop(k)
				}
			}
		})
	}
	all.Wait()
}

func TestAMillionSpentAddressesStayBounded(t *testing.T) {
	var s spentTable
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(i int) spentKey {
		return spentKey{"chat", netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})}
	}
	for i := range 1_000_000 {
		s.add(key(i), now.Add(time.Minute))
	}
	if n := len(s.young) + len(s.old); n > 2*maxSpent || int64(n) != s.size.Load() {
		t.Errorf("%d entries, %d counted, at most %d are allowed", n, s.size.Load(), 2*maxSpent)
	}
	for i := 1_000_000 - maxSpent; i < 1_000_000; i++ {
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
	var s spentTable
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k := spentKey{"chat", netip.MustParseAddr("203.0.113.7")}
	s.add(k, now.Add(time.Hour))
	s.add(k, now.Add(time.Minute))
	if !s.holds(k, now.Add(time.Minute)) || s.holds(k, now.Add(time.Hour)) {
		t.Error("the shorter span ended the longer")
	}
}

// A flood of addresses frees no address from its bound (D16).
func TestTenMillionAddressesForgetNoChecks(t *testing.T) {
	checks := checkTable{seed: maphash.MakeSeed()}
	now, guesser := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), netip.MustParseAddr("203.0.113.7")
	for range checkBurst {
		if !checks.take(guesser, now) {
			t.Fatal("a check is missing")
		}
	}
	for i := range 10_000_000 {
		checks.take(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if checks.take(guesser, now) {
		t.Error("the address that has spent its checks has another one")
	}
	if !checks.take(guesser, now.Add(time.Second)) {
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
				if checks.take(guesser, now) {
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
