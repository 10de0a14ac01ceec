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
// tokens that come again when they were told to (comesLater). Guesses that are sent once, or again
// at once, leave them, at any rate of guesses, so a session that comes again after its Retry-After
// is verified. A guesser that competes for them must send each token again after that time: with
// more than a hundred such tokens a second, a session may need further tries.
//
// The slots have a fixed size, and a flood of addresses makes them forget nothing: two addresses
// that share a slot share its checks. Slots are chosen by a random seed, so nobody can aim at
// another address. The table is safe for concurrent use.
type checkTable struct {
	seed   maphash.Seed
	start  time.Time                  // when the table was made
	slots  atomic.Pointer[checkSlots] // nil until the first use
	putOff timedSet[uint64]           // the hashes of tokens that were not verified
	bad    timedSet[uint64]           // the hashes of tokens whose signature did not verify
}

// checkSlots hold when each slot has all its checks again, in nanoseconds since the table's start.
// A slot that was never used is zero.
type checkSlots [1 << 14]atomic.Int64

const (
	checkBurst   = 100
	checkReserve = checkBurst / 2
	checkEvery   = time.Second / checkBurst

	putOffFor   = 10 * time.Second       // within which a token comes again
	putOffLeast = 900 * time.Millisecond // Retry-After is a second, by the client's clock
	badFor      = time.Minute            // a key may be replaced by one that verifies the token

	setBack = time.Second // more than the times of takes in one moment differ
)

// begin makes the zero table ready. start is the present time.
func (t *checkTable) begin(start time.Time) { t.seed, t.start = maphash.MakeSeed(), start }

// allow takes a check of the address for a token. It returns ErrNotChecked if it has none at now,
// and errBadSignature if the token did not verify lately.
func (t *checkTable) allow(a netip.Addr, token string, now time.Time) error {
	h, at := maphash.String(t.seed, token), t.steady(now)
	if t.bad.holds(h, at) {
		return errBadSignature
	}
	reserve := int64(checkReserve)
	left := t.putOff.left(h, at)
	if left > 0 && comesLater(at.Add(left-putOffFor), at) {
		reserve = 0
	}
	if !t.take(a, reserve, now) {
		if left == 0 { // else the time of its first try counts
			t.putOff.add(h, at.Add(putOffFor))
		}
		return ErrNotChecked
	}
	return nil
}

// comesLater reports whether a token that was put off at first comes again when it was told to: a
// second later, by the Retry-After of its answer, or in the next second, by its Reset.
func comesLater(first, now time.Time) bool {
	return now.Sub(first) >= putOffLeast || first.Unix() < now.Unix()
}

// checked records what the verification has shown that allow has admitted: nil, or what is wrong
// with the token.
func (t *checkTable) checked(a netip.Addr, token string, now time.Time, err error) {
	switch err {
	case nil:
		t.giveBack(a)
	case errBadSignature:
		t.bad.add(maphash.String(t.seed, token), t.steady(now).Add(badFor))
	}
}

// steady returns now by the monotonic clock, if now has its reading, so that no change of the wall
// clock prolongs what the table remembers.
func (t *checkTable) steady(now time.Time) time.Time { return t.start.Add(now.Sub(t.start)) }

// take takes one check of the address, or reports that it has no more than reserve at now.
//
// Parallel requests may call it with times that are not in order: a slot that is used up at one
// time is used up at any earlier one. Times of time.Now are monotonic. An injected clock may be set
// back: if a slot is used up for more than setBack beyond what now allows, it counts as used up at
// now, and has all its checks a second later. It gets none at once, because requests from before
// the step and after it may alternate.
func (t *checkTable) take(a netip.Addr, reserve int64, now time.Time) bool {
	const all = int64(checkBurst * checkEvery)
	slot, at := t.slot(a), int64(now.Sub(t.start))
	for {
		full := slot.Load()
		from := max(full, at)
		switch {
		case full == 0:
			from = at
		case full > at+all+int64(setBack):
			if slot.CompareAndSwap(full, at+all) {
				return false
			}
			continue
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
