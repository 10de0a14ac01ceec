package replay

import "hash/maphash"

// peers cache the counted form of addresses, since they repeat in logs: reading one, and finding it
// among all others, takes as long as everything else about a caller. A new address replaces another
// one.
type peers struct {
	seed  maphash.Seed
	slots [1 << 14]peer // 512 KiB, which fits a processor's own cache
}

// A peer is a cached address, in 32 bytes.
type peer struct {
	hash  uint64   // of the logged text; a collision is less likely than a memory error; 0: empty
	key   [16]byte // what a limiter counts by
	size  uint8    // of key
	noted uint8    // the marks that were recorded for it among all addresses
}

// find returns the place of an address; ok is false if the place is empty or holds another.
func (p *peers) find(logged []byte) (at *peer, hash uint64, ok bool) {
	hash = maphash.Bytes(p.seed, logged) | 1
	at = &p.slots[hash>>1%uint64(len(p.slots))]
	return at, hash, at.hash == hash
}

// keep stores an address in the place.
func (at *peer) keep(hash uint64, key []byte) {
	*at = peer{hash: hash, size: uint8(len(key))}
	copy(at.key[:], key)
}
