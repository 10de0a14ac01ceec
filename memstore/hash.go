package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"
)

// A seed is the key of the hash. It is secret, since otherwise a caller could choose keys that
// collide in one segment or that share a victim's count. It is stored with the counts, because the
// hashes in them depend on it.
type seed struct{ k0, k1 uint64 }

func newSeed() seed {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return seed{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// hash is SipHash-2-4. An entry stores all 64 bits. Two keys with the same hash would share one
// count: they could be refused early, but never get more than the limit. With 100 million live keys
// the probability that any two collide is n²/2 / 2⁶⁴, 1 in 3,700, and for one given caller it is 1
// in 184 thousand million.
func (s seed) hash(key []byte) uint64 {
	h := siphash.Hash(s.k0, s.k1, key)
	if h <= claimed {
		h += 2
	}
	return h
}

// position returns the position of a hash in the table. It skews the uniform hashes by u +
// 0.34·u·(1-u), with u from 0 to 1, so that the last segments get twice as many keys as the first.
// Without the skew all segments would fill up and split at the same time, and the table would then
// be half empty. With it some segments are about to split while others just have, and the table is
// about two thirds full at every size.
func position(hash uint64) uint64 {
	// 0.3435 · 2⁶⁴: the steepest part is twice as steep as the flattest
	const bend = 0x57F0_0000_0000_0000
	hump, _ := bits.Mul64(hash, ^hash)
	hump, _ = bits.Mul64(hump, bend)
	return hash + hump
}
