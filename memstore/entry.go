package memstore

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/weirlimit/weir"
)

// An entry is one window of one key, in 16 bytes: who, and how much until when.
//
// The word holds the count in its low 31 bits, the reset (Unix seconds) in the next 32, and on top whether it is frozen:
// while it is, only whoever froze it writes it. The word is kept combined (XOR) with the hash, so that a compare-and-swap
// of it also compares whose it is: a slot that has passed to another key is never charged for the former one, however
// long a take was held up between its look and its swap.
type entry struct {
	hash atomic.Uint64
	word atomic.Uint64
}

// What the hash of a slot without an owner says; no key's hash is either.
const (
	vacant uint64 = 0 // never used since the segment was made: a probe ends at a line with a vacant slot
	passed uint64 = 1 // between two owners
)

const frozen uint64 = 1 << 63

// maxSecond is the latest reset that a word can hold, in the year 2106.
const maxSecond = 1<<32 - 1

// pack returns the word of a window. A count or a reset that no policy allows is brought down to the greatest there is: it must
// not spill.
func pack(u weir.Used, hash uint64) uint64 {
	return (uint64(min(u.Reset, maxSecond))<<31 | uint64(min(u.Count, weir.MaxLimit))) ^ hash
}

func unpack(word, hash uint64) weir.Used {
	word ^= hash
	return weir.Used{Count: int64(word & (1<<31 - 1)), Reset: int64(word >> 31 & maxSecond)}
}

// isHeld reports whether a word may not be written: it is frozen, or the memory under it has been cleared for another use,
// which a take that was held up can see happen. (No word in use is 0, but for odds of 1 in 2⁶⁴.)
func isHeld(word, hash uint64) bool { return word == 0 || (word^hash)&frozen != 0 }

// spins is how often a take looks at an entry that another holds before it takes the locked path, which waits.
const spins = 64

// freeze keeps all others from writing the entry and returns its word as it was, or not ok where it is no longer hash's,
// or was not let go in time.
func (e *entry) freeze(hash uint64) (word uint64, ok bool) {
	for n := range spins {
		word = e.word.Load()
		if e.hash.Load() != hash {
			return 0, false
		}
		if isHeld(word, hash) {
			yield(n)
			continue
		}
		if e.word.CompareAndSwap(word, word^frozen) {
			return word, true
		}
	}
	return 0, false
}

// await freezes an entry whose segment the caller has locked: whoever holds it lets go soon.
func (e *entry) await(hash uint64) (word uint64) {
	for n := 0; ; n++ {
		if word, ok := e.freeze(hash); ok {
			return word
		}
		yield(n)
	}
}

// yield passes the time until an entry is let go: at first by looking again, then by letting others run.
func yield(n int) {
	if n%16 == 15 {
		runtime.Gosched()
	}
}

// address orders entries for whoever freezes several.
func address(e *entry) uintptr { return uintptr(unsafe.Pointer(e)) }

const (
	perLine   = 4
	lineBytes = perLine * int64(unsafe.Sizeof(entry{})) // one cache line
)

// A line is what one cache line holds. Its slots are filled in order.
type line [perLine]entry

// at returns line i of a segment.
func at(lines unsafe.Pointer, i uint64) *line {
	return (*line)(unsafe.Add(lines, int64(i)*lineBytes))
}

// probe returns the entry of hash in the segment of mask+1 lines, or nil where it has none. Without the segment's lock, nil
// only means that one must look again with it.
func probe(lines unsafe.Pointer, hash, mask uint64) *entry {
	i := hash & mask
	for range mask + 1 {
		l := at(lines, i)
		if l[0].hash.Load() == hash {
			return &l[0]
		}
		if l[1].hash.Load() == hash {
			return &l[1]
		}
		if l[2].hash.Load() == hash {
			return &l[2]
		}
		last := l[3].hash.Load()
		if last == hash {
			return &l[3]
		}
		if last == vacant {
			return nil
		}
		i = (i + 1) & mask
	}
	return nil
}
