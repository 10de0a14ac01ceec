package identity

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// A checkTable bounds how many public-key signatures of an address are verified while the address
// has spent a limiter's fallback budget (D16): checkBurst at once, then one in each checkEvery. A
// signature that verifies is free. The table has a fixed size, and a flood of addresses makes it
// forget nothing: two addresses that share a slot share its checks. Slots are chosen by a random
// seed, so nobody can aim at another address. It is safe for concurrent use.
type checkTable struct {
	seed  maphash.Seed
	slots atomic.Pointer[checkSlots] // nil until the first use
}

// checkSlots hold when each slot has all its checks again, in Unix nanoseconds.
type checkSlots [1 << 14]atomic.Int64

const (
	checkBurst = 5
	checkEvery = time.Second / checkBurst
)

// take takes one check of the address, or reports that it has none at now.
func (t *checkTable) take(a netip.Addr, now time.Time) bool {
	slot, at := t.slot(a), now.UnixNano()
	for {
		full := slot.Load()
		from := max(full, at)
		if full > at+int64(checkBurst*checkEvery) {
			from = at // the clock was set back
		}
		if from > at+int64((checkBurst-1)*checkEvery) {
			return false
		}
		if slot.CompareAndSwap(full, from+int64(checkEvery)) {
			return true
		}
	}
}

// giveBack undoes one take.
func (t *checkTable) giveBack(a netip.Addr) { t.slot(a).Add(-int64(checkEvery)) }

func (t *checkTable) slot(a netip.Addr) *atomic.Int64 {
	slots := t.slots.Load()
	if slots == nil {
		t.slots.CompareAndSwap(nil, new(checkSlots))
		slots = t.slots.Load()
	}
	return &slots[maphash.Comparable(t.seed, a)%uint64(len(slots))]
}
