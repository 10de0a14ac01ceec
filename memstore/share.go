package memstore

import (
	"encoding/binary"

	"github.com/dchest/siphash"
	"github.com/weirlimit/weir"
)

// shareGroupBits sets how many groups callers fall into when the table is full and each group
// shares a budget: 1024 for each window.
const shareGroupBits = 10

// sharedHash returns the hash of the budget that a new key shares. It depends on the window and on
// the first part of the key, such as the address. An address that invents agents therefore shares
// with itself, and affects one group of 1024.
func (s seed) sharedHash(c *weir.Charge) uint64 {
	var b [16]byte
	group := siphash.Hash(s.k0, s.k1, c.Key[c.Scope:c.Subject]) >> (64 - shareGroupBits)
	binary.LittleEndian.PutUint64(b[:], siphash.Hash(s.k0, s.k1, c.Key[:c.Scope]))
	binary.LittleEndian.PutUint64(b[8:], group)
	// another seed than that of keys, so that no key's hash is a shared budget's
	h := siphash.Hash(^s.k0, s.k1, b[:])
	if h <= claimed {
		h += 2
	}
	return h
}

// shareUntil records that a shared budget is open until reset.
func (s *Store) shareUntil(reset int64) {
	for {
		until := s.sharedUntil.Load()
		if until >= uint64(reset) || s.sharedUntil.CompareAndSwap(until, uint64(reset)) {
			return
		}
	}
}
