package memstore

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"

	"github.com/dchest/siphash"
)

// A seed keys the hash. It is secret, or a caller could choose keys that crowd into one place, or that share a victim's
// count; and it is kept with the counts, which mean nothing without it.
type seed struct{ k0, k1 uint64 }

func newSeed() seed {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return seed{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// hash is SipHash-2-4, all 64 bits of which an entry keeps. Two keys with the same hash would share one count: they could
// be refused early, and never get more. With 100 million live keys the odds that any two do are n²/2 / 2⁶⁴, 1 in 3,700; the
// odds for one given caller are 1 in 184 thousand million.
func (s seed) hash(key []byte) uint64 {
	h := siphash.Hash(s.k0, s.k1, key)
	if h <= passed {
		h += 2
	}
	return h
}

// position is where in the table's order a hash stands. It bends the even spread of hashes, u + 0.34·u·(1-u) with u from 0
// to 1, so that the last segments get twice as many keys as the first. A table of equal segments would fill all of them at
// the same time, then split them all at once and be half empty; bent, at any time some segments are about to be split and
// others have just been, and the table is about two thirds full at every size.
func position(hash uint64) uint64 {
	const bend = 0x57F0_0000_0000_0000 // 0.3435 · 2⁶⁴, which makes the steepest place twice as steep as the flattest
	hump, _ := bits.Mul64(hash, ^hash)
	hump, _ = bits.Mul64(hump, bend)
	return hash + hump
}
