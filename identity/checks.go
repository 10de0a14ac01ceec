package identity

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// A checkTable bounds how many public-key signatures of an address are verified while the address
// has spent a limiter's fallback budget (D16): checkBurst at once, then one in each checkEvery. A
// signature that verifies is free, and one that does not is remembered for a while.
//
// It puts tokens off as greylisting does with mail: the last checkReserve checks are only for
// tokens that were put off before. Guesses that are sent once leave them, at any rate of guesses,
// so a session that comes again is verified. A guesser that competes for them must send a new token
// twice for each.
//
// The slots have a fixed size, and a flood of addresses makes them forget nothing: two addresses
// that share a slot share its checks. Slots are chosen by a random seed, so nobody can aim at
// another address. The table is safe for concurrent use.
type checkTable struct {
	seed   maphash.Seed
	slots  atomic.Pointer[checkSlots] // nil until the first use
	putOff timedSet[uint64]           // the hashes of tokens that were not verified
	bad    timedSet[uint64]           // the hashes of tokens whose signature did not verify
}

// checkSlots hold when each slot has all its checks again, in Unix nanoseconds.
type checkSlots [1 << 14]atomic.Int64

const (
	checkBurst   = 100
	checkReserve = checkBurst / 2
	checkEvery   = time.Second / checkBurst

	putOffFor = 10 * time.Second // within which a token comes again
	badFor    = time.Minute      // a key may be replaced by one that verifies the token
)

// allow takes a check of the address for a token. It returns ErrNotChecked if it has none at now,
// and errBadSignature if the token did not verify lately.
func (t *checkTable) allow(a netip.Addr, token string, now time.Time) error {
	h := maphash.String(t.seed, token)
	if t.bad.holds(h, now) {
		return errBadSignature
	}
	reserve := int64(checkReserve)
	if t.putOff.holds(h, now) {
		reserve = 0
	}
	if !t.take(a, reserve, now) {
		t.putOff.add(h, now.Add(putOffFor))
		return ErrNotChecked
	}
	return nil
}

// checked records what the verification has shown that allow has admitted: nil, or what is wrong
// with the token.
func (t *checkTable) checked(a netip.Addr, token string, now time.Time, err error) {
	switch err {
	case nil:
		t.giveBack(a)
	case errBadSignature:
		t.bad.add(maphash.String(t.seed, token), now.Add(badFor))
	}
}

// take takes one check of the address, or reports that it has no more than reserve at now.
func (t *checkTable) take(a netip.Addr, reserve int64, now time.Time) bool {
	slot, at := t.slot(a), now.UnixNano()
	for {
		full := slot.Load()
		from := max(full, at)
		if full > at+int64(checkBurst*checkEvery) {
			from = at // the clock was set back
		}
		if from > at+(checkBurst-reserve-1)*int64(checkEvery) {
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
