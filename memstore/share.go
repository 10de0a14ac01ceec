package memstore

import (
	"encoding/binary"

	"github.com/dchest/siphash"
	"github.com/weirlimit/weir"
)

// cellBits says into how many groups callers fall who share a budget when the table is full: 1024 for each window.
const cellBits = 10

// cell returns the hash of the budget that a newcomer shares: one for the window and the group of the first part of who is
// counted. So an address that invents agents shares with itself, and spoils one group of 1024 for others.
func (s seed) cell(c *weir.Charge) uint64 {
	var b [16]byte
	group := siphash.Hash(s.k0, s.k1, c.Key[c.Scope:c.Subject]) >> (64 - cellBits)
	binary.LittleEndian.PutUint64(b[:], siphash.Hash(s.k0, s.k1, c.Key[:c.Scope]))
	binary.LittleEndian.PutUint64(b[8:], group)
	h := siphash.Hash(^s.k0, s.k1, b[:]) // not the seed that keys have: no key is ever taken for a shared budget
	if h <= passed {
		h += 2
	}
	return h
}

// shareUntil notes that a shared budget is open until reset.
func (s *Store) shareUntil(reset int64) {
	for {
		until := s.sharedUntil.Load()
		if until >= uint64(reset) || s.sharedUntil.CompareAndSwap(until, uint64(reset)) {
			return
		}
	}
}
