package memstore

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/weirlimit/weir"
)

// An entry is one window of one key, in 16 bytes.
//
// The word holds the count in its low 31 bits, the reset (Unix seconds) in the next 32, and the
// frozen bit on top. While it is frozen, only the take that froze it may write it. The word is
// stored XORed with the hash, so that a compare-and-swap of the word also compares the key. A slot
// that was reassigned to another key is therefore never charged for the former one, however long a
// take was delayed between its read and its swap.
type entry struct {
	hash atomic.Uint64
	word atomic.Uint64
}

// The hash of a slot that no key owns. No key's hash has one of these values.
const (
	// not used since the segment was made: a probe ends at a line with a vacant slot
	vacant  uint64 = 0
	claimed uint64 = 1 // claimed by a locked take, and not assigned yet
)

const frozen uint64 = 1 << 63

// maxSecond is the latest reset that a word can hold, in the year 2106.
const maxSecond = 1<<32 - 1

// pack returns the word of a window. It clamps count and reset to what their bits can hold.
func pack(u weir.Used, hash uint64) uint64 {
	return (uint64(min(u.Reset, maxSecond))<<31 | uint64(min(u.Count, weir.MaxLimit))) ^ hash
}

// repack returns the word of an entry, which was word, after a take has made its window used. A
// window that has ended stays as it is if nothing is spent: were it emptied, its word could be the
// one that a delayed takeOne has read some windows ago.
func repack(word, hash uint64, used weir.Used) uint64 {
	if used.Reset == 0 {
		return word
	}
	return pack(used, hash)
}

func unpack(word, hash uint64) weir.Used {
	word ^= hash
	return weir.Used{Count: int64(word & (1<<31 - 1)), Reset: int64(word >> 31 & maxSecond)}
}

// isBusy reports whether a word must not be written: it is frozen, or its memory has been cleared
// for another use, which a delayed take can observe. (A word in use is 0 with a probability of
// 2⁻⁶⁴.)
func isBusy(word, hash uint64) bool { return word == 0 || (word^hash)&frozen != 0 }

// spins is how often a take reads an entry that another take has frozen before it falls back to the
// locked path, which waits.
const spins = 64

// freeze freezes the entry and returns its word before that. It returns false if the entry is no
// longer that of hash, or if another take kept it frozen for too long.
func (e *entry) freeze(hash uint64) (word uint64, ok bool) {
	for n := range spins {
		word = e.word.Load()
		if e.hash.Load() != hash {
			return 0, false
		}
		if isBusy(word, hash) {
			spinWait(n)
			continue
		}
		if e.word.CompareAndSwap(word, word^frozen) {
			return word, true
		}
	}
	return 0, false
}

// await freezes an entry of a segment that the caller has locked, and waits until it can.
func (e *entry) await(hash uint64) (word uint64) {
	for n := 0; ; n++ {
		if word, ok := e.freeze(hash); ok {
			return word
		}
		spinWait(n)
	}
}

// spinWait is called in the nth turn of a loop that waits for an entry: every 16th turn it yields
// the processor.
func spinWait(n int) {
	if n%16 == 15 {
		runtime.Gosched()
	}
}

// address is the order in which a take freezes several entries.
func address(e *entry) uintptr { return uintptr(unsafe.Pointer(e)) }

const (
	perLine   = 4
	lineBytes = perLine * int64(unsafe.Sizeof(entry{})) // one cache line
)

// A line is one cache line of slots, which are filled in order.
type line [perLine]entry

// at returns line i of a segment.
func at(lines unsafe.Pointer, i uint64) *line {
	return (*line)(unsafe.Add(lines, int64(i)*lineBytes))
}

// probe returns the entry of hash in a segment of mask+1 lines, or nil if it has none. If the
// caller does not hold the segment's lock, nil may be outdated: it must probe again with the lock.
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
