package main

import (
	"context"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// The floor is the minimal cost of a fixed window: the same keyed hash of the key, the same clock,
// one atomic add in a flat array of 16-byte entries of a fixed size. It is a weir.Store, so that it
// is called and answers as Weir does. It drops nothing, cannot grow, and takes one window at a
// time: the difference to a store is the price of these.
type floor struct {
	k0, k1  uint64
	clock   clock
	entries []floorEntry
}

type floorEntry struct {
	hash atomic.Uint64
	word atomic.Uint64 // the second at which the window ends, then 31 bits of count
}

const countBits = 31

func openFloor(s setup) (store, error) {
	return weirStore{store: &floor{k0: 1, k1: 2, clock: newClock(), entries: make([]floorEntry, max(8, 2*s.Keys))}, setup: s}, nil
}

func (f *floor) Take(_ context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	c := &charges[0]
	e := f.find(siphash.Hash(f.k0, f.k1, c.Key))
	now := f.clock.nanos() / int64(time.Second)
	receipt.Now = now
	for {
		word := e.word.Load()
		reset, count := int64(word>>countBits), int64(word&(1<<countBits-1))
		switch {
		case reset <= now:
			reset = now + c.Per
			if !e.word.CompareAndSwap(word, uint64(reset)<<countBits|uint64(c.Cost)) {
				continue
			}
			receipt.Allowed, receipt.Used[0] = true, weir.Used{Count: c.Cost, Reset: reset}
		case count+c.Cost > c.Limit:
			receipt.Allowed, receipt.Used[0] = false, weir.Used{Count: count, Reset: reset}
		// a window that ends between the load and the add is counted in the next one, without a
		// correction
		default:
			count = int64(e.word.Add(uint64(c.Cost)) & (1<<countBits - 1))
			receipt.Allowed, receipt.Used[0] = count <= c.Limit, weir.Used{Count: min(count, c.Limit), Reset: reset}
		}
		return nil
	}
}

// find returns the entry of a hash, probing from its place onwards.
func (f *floor) find(hash uint64) *floorEntry {
	i, _ := bits.Mul64(hash, uint64(len(f.entries)))
	for {
		e := &f.entries[i]
		switch e.hash.Load() {
		case hash:
			return e
		case 0:
			if e.hash.CompareAndSwap(0, hash) || e.hash.Load() == hash {
				return e
			}
		}
		if i++; i == uint64(len(f.entries)) {
			i = 0
		}
	}
}
